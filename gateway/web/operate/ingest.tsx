import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { type IngestStatus, ingestQuery } from '../api/operate.ts'
import { Micros } from '../ui/amount.tsx'
import { formatCount, formatDollars } from '../ui/amounts.ts'
import { formatInteger } from '../ui/long-amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { Page } from '../ui/page.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'
import { OutboxCard } from './outbox.tsx'

/** How far events were read, what waits for a price, and what waits for other systems. */
export function Ingest(): ReactNode {
  const status = useQuery(ingestQuery)
  return (
    <Page title="Ingest" about="From the signer’s events to tickets, and on to other systems.">
      <Answer query={status} rows={6}>
        {(data) => (
          <>
            <Attention status={data} />
            <Figures status={data} />
            <Streams streams={data.streams} />
            <Sidecars sidecars={data.sidecars} />
          </>
        )}
      </Answer>
      <OutboxCard />
    </Page>
  )
}

const Attention = ({ status }: { status: IngestStatus }): ReactNode => (
  <>
    {status.usableRate === undefined && (
      <p className="notice">
        No price of ETH is usable now: calls are refused, and tickets wait. Record one:{' '}
        <code>./tollgate rate set USD_PER_ETH</code>
      </p>
    )}
    {status.oldestUnpricedAt !== undefined && (
      <p className="notice">
        Tickets wait for a price since <Instant at={status.oldestUnpricedAt} />. Record the price of
        that time: <code>./tollgate rate set USD_PER_ETH --at {status.oldestUnpricedAt}</code>
      </p>
    )}
    {status.reachedQuotas.map(({ email, maxUsdMicros, unpaidUsdMicros }) => (
      <p className="notice" key={email}>
        Calls are refused for apps of {email}: they hold <Micros value={unpaidUsdMicros} /> of the{' '}
        <Micros value={maxUsdMicros} /> that the account can pay.
      </p>
    ))}
  </>
)

const Figures = ({ status }: { status: IngestStatus }): ReactNode => (
  <dl className="stats">
    <div>
      <dt>Newest ticket</dt>
      <dd>
        {status.newestTicket === undefined ? (
          'none'
        ) : (
          <Instant at={status.newestTicket.signedAt} isTimeOnly />
        )}
        <small>{toLag(status.newestTicket)}</small>
      </dd>
    </div>
    <div>
      <dt>Price of ETH</dt>
      <dd>
        {status.usableRate === undefined ? 'none' : formatDollars(status.usableRate.usdPerEth)}
        {status.usableRate && (
          <small>
            {status.usableRate.source}, <Instant at={status.usableRate.observedAt} />
          </small>
        )}
      </dd>
    </div>
    <div>
      <dt>Tickets without a price</dt>
      <dd>{formatInteger(status.unpricedTickets)}</dd>
    </div>
    <div>
      <dt>Events in quarantine</dt>
      <dd>
        <Link to="/operate/quarantine">{formatInteger(status.quarantinedEvents)}</Link>
      </dd>
    </div>
  </dl>
)

/** How long the newest event was on its way: from the signer to the ledger. */
function toLag(newest: IngestStatus['newestTicket']): string {
  if (newest === undefined) return 'signed in the last 16 minutes'
  const ms = Date.parse(newest.receivedAt) - Date.parse(newest.signedAt)
  return `signed then, booked ${formatCount(Math.max(0, Math.round(ms / 1_000)))} s later`
}

const Streams = ({ streams }: Pick<IngestStatus, 'streams'>): ReactNode => (
  <section className="card" aria-labelledby="streams">
    <h2 id="streams">Streams</h2>
    {streams.length === 0 ? (
      <Empty>No event has arrived yet.</Empty>
    ) : (
      <TableBox label="Table of streams">
        <table>
          <thead>
            <tr>
              <th scope="col">Stream</th>
              <th scope="col">Newest event</th>
              {['Waiting', 'Next', 'Tickets', 'Duplicates', 'Ignored', 'Quarantined'].map(
                (name) => (
                  <th scope="col" className="number" key={name}>
                    {name}
                  </th>
                ),
              )}
            </tr>
          </thead>
          <tbody>
            {streams.map((stream) => (
              <tr key={`${stream.source} ${stream.partition}`}>
                <th scope="row">
                  {stream.source} <small className="soft">partition {stream.partition}</small>
                  {stream.stalled && <span className="badge bad">stands still</span>}
                </th>
                <td>{stream.newestAt === undefined ? '' : <Instant at={stream.newestAt} />}</td>
                <td className="number">
                  <Waiting stream={stream} />
                </td>
                <td className="number">{formatInteger(stream.nextOffset)}</td>
                <td className="number">{formatInteger(stream.tickets)}</td>
                <td className="number">{formatInteger(stream.duplicates)}</td>
                <td className="number">{formatInteger(stream.ignored)}</td>
                <td className="number">{formatInteger(stream.quarantined)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </TableBox>
    )}
  </section>
)

/** Events that the broker has and core has not booked; unknown while no collector reads the end. */
function Waiting({ stream }: { stream: IngestStatus['streams'][number] }): ReactNode {
  const { eventsBehind, secondsBehind, endReadAt } = stream
  if (eventsBehind === undefined)
    return (
      <>
        <span className="soft">unknown</span>
        {endReadAt !== undefined && (
          <small className="bad">
            {' '}
            end not read since <Instant at={endReadAt} />
          </small>
        )}
      </>
    )
  return (
    <>
      {formatInteger(eventsBehind)}
      {eventsBehind !== '0' && secondsBehind !== undefined && (
        <small className="soft"> for up to {formatCount(secondsBehind)} s</small>
      )}
      {endReadAt !== undefined && (
        <small className="soft">
          {' '}
          at <Instant at={endReadAt} isTimeOnly />
        </small>
      )}
    </>
  )
}

const Sidecars = ({ sidecars }: { sidecars: IngestStatus['sidecars'] }): ReactNode => (
  <section className="card" aria-labelledby="sidecars">
    <h2 id="sidecars">Sidecars</h2>
    <p className="soft">Whether the events of the calls that each sidecar allowed arrive.</p>
    {sidecars === undefined ? (
      <Empty>Unknown: core is of an older release.</Empty>
    ) : sidecars.length === 0 ? (
      <Empty>No sidecar has reported in the last 30 days.</Empty>
    ) : (
      <TableBox label="Table of sidecars">
        <table>
          <thead>
            <tr>
              <th scope="col">Sidecar</th>
              <th scope="col">Last report</th>
              <th scope="col">Latest call</th>
              <th scope="col">Events booked up to</th>
              <th scope="col" className="number">
                Behind
              </th>
            </tr>
          </thead>
          <tbody>
            {sidecars.map((sidecar) => (
              <tr key={sidecar.id}>
                <th scope="row">
                  {sidecar.id} {sidecar.stopped && <span className="badge">stopped</span>}
                  {sidecar.stalled && <span className="badge bad">events are missing</span>}
                </th>
                {[sidecar.seenAt, sidecar.lastAuthorisedAt, sidecar.bookedThrough].map(
                  (at, column) => (
                    <td key={column}>{at === undefined ? 'none' : <Instant at={at} />}</td>
                  ),
                )}
                <td className="number">{formatCount(sidecar.secondsBehind)} s</td>
              </tr>
            ))}
          </tbody>
        </table>
      </TableBox>
    )}
  </section>
)
