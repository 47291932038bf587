import { useInfiniteQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import {
  type QuarantineFilter,
  type QuarantinedEvent,
  type QuarantineStatus,
  type Waiting,
  quarantineQuery,
  quarantineStatuses,
} from '../api/quarantine.ts'
import { Wei } from '../ui/amount.tsx'
import { formatInteger } from '../ui/long-amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { More } from '../ui/more.tsx'
import { Page } from '../ui/page.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'
import { LongTable } from '../ui/table/long-table.tsx'
import { explainReason } from './reasons.ts'
import { type BulkRedrive, useBulkRedrive } from './bulk-redrive.ts'
import { BulkReport, RedriveAll } from './redrive-all.tsx'

/** Events that could not become tickets, and the money that waits in them. */
export function Quarantine(): ReactNode {
  const filter = useSearch({ from: '/operate/quarantine' })
  const events = useInfiniteQuery(quarantineQuery(filter))
  const bulk = useBulkRedrive()
  return (
    <Page
      title="Quarantine"
      about="Signed events that could not become tickets. Nobody has paid for them yet."
    >
      <BulkReport bulk={bulk} />
      <Answer query={events} rows={6}>
        {({ pages }) => {
          const waiting = pages.at(-1)?.waiting ?? []
          return (
            <>
              <Totals waiting={waiting} />
              {waiting.length > 0 && <Reasons waiting={waiting} bulk={bulk} />}
              <section className="card" aria-labelledby="events">
                <h2 id="events">Events</h2>
                <Filter filter={filter} waiting={waiting} />
                <Events
                  events={pages.flatMap((page) => page.events)}
                  hasMore={events.hasNextPage}
                  filter={filter}
                />
                <More query={events} label="Show newer" />
              </section>
            </>
          )
        }}
      </Answer>
    </Page>
  )
}

const sum = (values: readonly string[]): bigint =>
  values.reduce((total, value) => total + BigInt(value), 0n)

const Totals = ({ waiting }: { waiting: readonly Waiting[] }): ReactNode => (
  <dl className="stats">
    <div>
      <dt>Events that wait</dt>
      <dd>{formatInteger(sum(waiting.map(({ events }) => events)))}</dd>
    </div>
    <div>
      <dt>Money that waits</dt>
      <dd>
        <Wei value={String(sum(waiting.map(({ feeWei }) => feeWei)))} />
        <small>where the cost can be read</small>
      </dd>
    </div>
  </dl>
)

interface ReasonsProps {
  readonly waiting: readonly Waiting[]
  readonly bulk: BulkRedrive
}

const Reasons = ({ waiting, bulk }: ReasonsProps): ReactNode => (
  <section className="card" aria-labelledby="reasons">
    <h2 id="reasons">Reasons</h2>
    <TableBox label="Table of reasons">
      <table>
        <thead>
          <tr>
            <th scope="col">Reason</th>
            <th scope="col" className="number">
              Events
            </th>
            <th scope="col" className="number">
              Money
            </th>
            <th scope="col">Again</th>
          </tr>
        </thead>
        <tbody>
          {waiting.map(({ reason, events, feeWei }) => (
            <tr key={reason}>
              <th scope="row">
                <Link to="/operate/quarantine" search={{ reason }}>
                  {reason}
                </Link>
                <small className="soft">{explainReason(reason)}</small>
              </th>
              <td className="number">{formatInteger(events)}</td>
              <td className="number">
                <Wei value={feeWei} />
              </td>
              <td>
                <RedriveAll reason={reason} count={Number(events)} bulk={bulk} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </TableBox>
  </section>
)

interface FilterProps {
  readonly filter: QuarantineFilter
  readonly waiting: readonly Waiting[]
}

function Filter({ filter, waiting }: FilterProps): ReactNode {
  const navigate = useNavigate({ from: '/operate/quarantine' })
  const { status = 'open', reason = '' } = filter
  const show = (next: { status: QuarantineStatus; reason: string }): void =>
    void navigate({
      search: {
        ...(next.status !== 'open' && { status: next.status }),
        ...(next.reason !== '' && { reason: next.reason }),
      },
    })
  const reasons = [...new Set([...waiting.map((each) => each.reason), reason])].filter(Boolean)
  return (
    <div className="row">
      <label>
        State
        <select
          value={status}
          onChange={(event) => {
            const known = quarantineStatuses.find((one) => one === event.target.value)
            show({ status: known ?? 'open', reason })
          }}
        >
          {quarantineStatuses.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </label>
      <label>
        Reason
        <select value={reason} onChange={(event) => show({ status, reason: event.target.value })}>
          <option value="">all</option>
          {reasons.toSorted().map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </label>
    </div>
  )
}

interface EventsProps {
  readonly events: readonly QuarantinedEvent[]
  readonly hasMore: boolean
  readonly filter: QuarantineFilter
}

function Events({ events, hasMore, filter: { status = 'open', reason } }: EventsProps): ReactNode {
  if (events.length === 0)
    return (
      <Empty>
        {reason === undefined
          ? status === 'open'
            ? 'Nothing waits for a decision.'
            : `No event is ${status}.`
          : `No ${status} event has the reason ${reason}.`}
      </Empty>
    )
  return (
    <LongTable
      label="Table of events"
      columns={status === 'open' ? columns : [...columns, { name: 'Decided' }]}
      pages={[events]}
      hasMore={hasMore}
      keyOf={idOf}
    >
      {(event) => <EventCells event={event} />}
    </LongTable>
  )
}

const columns = [
  { name: 'Event' },
  { name: 'Arrived' },
  { name: 'Names the user' },
  { name: 'Money', isNumber: true },
]

const idOf = ({ id }: QuarantinedEvent): string => id

const EventCells = ({ event }: { event: QuarantinedEvent }): ReactNode => (
  <>
    <th scope="row">
      <Link to="/operate/quarantine/$quarantineId" params={{ quarantineId: event.id }}>
        {event.eventId ?? event.id}
      </Link>
      <small className="soft">
        {event.reason}: {event.detail}
      </small>
    </th>
    <td>
      <Instant at={event.receivedAt} />
      {event.deliveries !== '1' && <small>{event.deliveries} times</small>}
    </td>
    <td>{event.authId ? <code>{event.authId}</code> : <span className="soft">nobody</span>}</td>
    <td className="number">
      {event.feeWei === undefined ? (
        <span className="soft">unreadable</span>
      ) : (
        <Wei value={event.feeWei} />
      )}
    </td>
    {event.resolvedAt !== undefined && (
      <td>
        <Instant at={event.resolvedAt} />
        <small>
          {event.resolvedBy}: {event.resolution}
        </small>
      </td>
    )}
  </>
)
