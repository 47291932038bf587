import { useQuery } from '@tanstack/react-query'
import { Link, useParams } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { quarantinedQuery } from '../api/quarantine.ts'
import type { Schemas } from '../api/client.ts'
import { Wei } from '../ui/amount.tsx'
import { formatCount } from '../ui/amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { Page } from '../ui/page.tsx'
import { TableBox } from '../ui/table-box.tsx'
import { Decisions } from './decisions.tsx'
import { explainReason } from './reasons.ts'

type Sample = Schemas['QuarantineSample']

/** One event in quarantine: why it is there, its beginning, and what to do about it. */
export function Quarantined(): ReactNode {
  const { quarantineId } = useParams({ from: '/operate/quarantine/$quarantineId' })
  const event = useQuery(quarantinedQuery(quarantineId))
  return (
    <Page title="Event in quarantine" about={<Link to="/operate/quarantine">All events</Link>}>
      <Answer query={event} rows={8}>
        {(data) => (
          <>
            <Facts event={data} />
            {data.status === 'open' && <Decisions event={data} />}
            <Beginning event={data} />
          </>
        )}
      </Answer>
    </Page>
  )
}

const Facts = ({ event }: { event: Sample }): ReactNode => (
  <section className="card" aria-label="Event">
    <p>
      <strong>{event.reason}</strong>: {event.detail}{' '}
      <span className="soft">{explainReason(event.reason)}</span>
    </p>
    <dl className="facts">
      <Fact name="State">
        <span className={event.status === 'open' ? 'badge warn' : 'badge'}>{event.status}</span>
      </Fact>
      <Fact name="Money">
        {event.feeWei === undefined ? 'cannot be read' : <Wei value={event.feeWei} />}
      </Fact>
      <Fact name="Event id">{event.eventId && <code>{event.eventId}</code>}</Fact>
      <Fact name="Names the user">{event.authId && <code>{event.authId}</code>}</Fact>
      <Fact name="Arrived">
        <Instant at={event.receivedAt} />
        {event.deliveries !== '1' && `, ${event.deliveries} times`}
      </Fact>
      <Fact name="From">
        {event.source}
        {event.offset !== undefined && `, partition ${event.partition}, offset ${event.offset}`}
      </Fact>
      {event.resolvedAt !== undefined && (
        <Fact name="Decided">
          <Instant at={event.resolvedAt} /> by {event.resolvedBy}: {event.resolution}
        </Fact>
      )}
      {event.ticketEventId !== undefined && (
        <Fact name="Ticket">
          <code>{event.ticketEventId}</code>
        </Fact>
      )}
      {event.attributedTo !== undefined && (
        <Fact name="Assigned to">
          <code>{event.attributedTo}</code>
        </Fact>
      )}
    </dl>
  </section>
)

const Fact = ({ name, children }: { name: string; children: ReactNode }): ReactNode => (
  <div>
    <dt>{name}</dt>
    <dd>{children || <span className="soft">none</span>}</dd>
  </div>
)

const Beginning = ({ event }: { event: Sample }): ReactNode => (
  <section className="card" aria-labelledby="bytes">
    <h2 id="bytes">As it arrived</h2>
    <p className="soft">
      {formatCount(event.byteCount)} bytes
      {event.isComplete ? '.' : '; this is the beginning. '}
      {!event.isComplete && <code>./tollgate quarantine show {event.id}</code>}
    </p>
    <TableBox label="The event’s text">
      <pre>{event.sample}</pre>
    </TableBox>
  </section>
)
