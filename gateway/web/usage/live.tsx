import { Link } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import { formatCount } from '../ui/amounts.ts'
import { ExactDollars } from '../ui/amount.tsx'
import { Button } from '../ui/button.tsx'
import { Instant } from '../ui/instant.tsx'
import { Name } from '../ui/name.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'
import type { RangeSearch } from '../ui/usage/range.ts'
import { Connection, Minute } from '../ui/usage/last-minute.tsx'
import { type LiveCharge, rowsMax, useLive } from '../ui/usage/live-stream.ts'

interface LiveProps {
  readonly clientId: string
  readonly user: string | undefined
  readonly search: RangeSearch
}

/** Charges as they are booked, and what was spent in the last minute. */
export function Live({ clientId, user, search }: LiveProps): ReactNode {
  const [isPaused, setIsPaused] = useState(false)
  const { state, charges, minute, since, hasGap } = useLive(clientId, user, isPaused)
  return (
    <section className="card" aria-labelledby="live">
      <div className="head">
        <h2 id="live">Live</h2>
        <div className="row center">
          <Connection state={state} />
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
                <Name>{charge.externalUserId}</Name>
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
