import { Link } from '@tanstack/react-router'
import { type ReactNode, useEffect, useState } from 'react'
import { formatCount } from '../ui/amounts.ts'
import { Attos, ExactDollars } from '../ui/amount.tsx'
import { Button } from '../ui/button.tsx'
import { Instant } from '../ui/instant.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'
import type { RangeSearch } from '../ui/usage/range.ts'
import { type LiveCharge, type LiveState, rowsMax, useLive } from './live-stream.ts'
import { type Second, seconds, sumMinute } from './minute.ts'

const states: Readonly<Record<LiveState, readonly [text: string, className: string]>> = {
  connecting: ['Connecting …', 'badge'],
  live: ['Live', 'badge good'],
  reconnecting: ['Reconnecting …', 'badge warn'],
  paused: ['Paused', 'badge'],
  hidden: ['Paused while hidden', 'badge'],
}

interface LiveProps {
  readonly clientId: string
  readonly user: string | undefined
  readonly search: RangeSearch
}

/** Charges as they are booked, and what was spent in the last minute. */
export function Live({ clientId, user, search }: LiveProps): ReactNode {
  const [isPaused, setIsPaused] = useState(false)
  const { state, charges, minute, since, hasGap } = useLive(clientId, user, isPaused)
  const [text, className] = states[state]
  return (
    <section className="card" aria-labelledby="live">
      <div className="head">
        <h2 id="live">Live</h2>
        <div className="row center">
          <span className={className} role="status" aria-label="Connection">
            {text}
          </span>
          <Button isSmall onClick={() => setIsPaused(!isPaused)}>
            {isPaused ? 'Resume' : 'Pause'}
          </Button>
        </div>
      </div>
      <Minute minute={minute} since={since} isRunning={state === 'live'} />
      {hasGap && (
        <p className="notice">
          The connection was interrupted for more than a day: charges are missing here.
        </p>
      )}
      {charges.length === 0 ? (
        <Empty>
          {state === 'paused' ? 'Resume to see new tickets.' : 'New tickets show here at once.'}
        </Empty>
      ) : (
        <Charges charges={charges} clientId={clientId} search={search} />
      )}
    </section>
  )
}

/** The sums of the last sixty seconds, and their seconds as bars. */
function Minute({
  minute,
  since,
  isRunning,
}: {
  minute: readonly Second[]
  since: number | null
  isRunning: boolean
}): ReactNode {
  const now = useSeconds(isRunning)
  const { recent, tickets, attos } = sumMinute(minute, now)
  const highest = recent.reduce((most, { attos: each }) => (each > most ? each : most), 1n)
  return (
    <div className="minute">
      <p>
        <strong>
          <Attos value={attos.toString()} />
        </strong>{' '}
        <span className="soft">
          billed to end users for {formatCount(tickets)} {tickets === 1 ? 'ticket' : 'tickets'}{' '}
          {since === null || now - since >= seconds ? (
            `in the last ${seconds} seconds`
          ) : (
            <>
              since <Instant at={new Date(since * 1_000).toISOString()} isTimeOnly />
            </>
          )}
        </span>
      </p>
      <svg viewBox={`0 0 ${seconds} 100`} preserveAspectRatio="none" aria-hidden="true">
        {recent.map(({ at, attos: each }) => {
          const size = Math.max(4, Number((each * 100n) / highest))
          return (
            <rect
              key={at}
              x={seconds - 1 - (now - at) + 0.1}
              y={100 - size}
              width={0.8}
              height={size}
            />
          )
        })}
      </svg>
    </div>
  )
}

const toSeconds = (): number => Math.floor(Date.now() / 1_000)

/** The time in seconds, which stops while nothing can arrive. */
function useSeconds(isRunning: boolean): number {
  const [now, setNow] = useState(toSeconds)
  useEffect(() => {
    setNow(toSeconds())
    if (!isRunning) return undefined
    const timer = setInterval(() => setNow(toSeconds()), 1_000)
    return () => clearInterval(timer)
  }, [isRunning])
  return now
}

interface ChargesProps {
  readonly charges: readonly LiveCharge[]
  readonly clientId: string
  readonly search: RangeSearch
}

const Charges = ({ charges, clientId, search }: ChargesProps): ReactNode => (
  <TableBox label="Table of live charges">
    <table>
      <caption>
        Tickets of a user that were booked together, the newest first; at most {rowsMax} rows.
      </caption>
      <thead>
        <tr>
          <th scope="col">Booked</th>
          <th scope="col">User</th>
          <th scope="col" className="number">
            Tickets
          </th>
          <th scope="col" className="number">
            Network cost
          </th>
          <th scope="col" className="number">
            Charged to the owner
          </th>
          <th scope="col" className="number">
            Billed to the user
          </th>
          <th scope="col" className="number">
            User’s balance
          </th>
        </tr>
      </thead>
      <tbody>
        {charges.map((charge) => (
          <tr key={charge.key}>
            <td>
              <Instant at={charge.time} isTimeOnly />
            </td>
            <th scope="row">
              <Link
                to="/$clientId/usage"
                params={{ clientId }}
                search={{ ...search, user: charge.externalUserId }}
              >
                {charge.externalUserId}
              </Link>
            </th>
            <td className="number">{formatCount(charge.ticketCount)}</td>
            <Usd value={charge.networkFeeUsdExact} />
            <Usd value={charge.ownerChargeUsdExact} />
            <Usd value={charge.costUsdExact} />
            <Usd value={charge.balanceUsdExact} />
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)

/** Exact dollars, which show on hover; null while the service does not know them. */
const Usd = ({ value }: { value: string | null }): ReactNode => (
  <td className="number">{value === null ? '–' : <ExactDollars value={value} />}</td>
)
