import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'
import { type UserRef, userHoldsQuery } from '../api/users.ts'
import { Attos } from '../ui/amount.tsx'
import { formatInteger } from '../ui/long-amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { Name } from '../ui/name.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'

type UserHolds = Schemas['UserHolds']
type Call = UserHolds['calls'][number]

/** What is held of a user's money, and why: the difference of its balance and what it may spend. */
export function Holds({ user }: { user: UserRef }): ReactNode {
  const holds = useQuery(userHoldsQuery(user))
  return (
    <section className="card" aria-labelledby="holds">
      <h2 id="holds">Held now</h2>
      <p className="soft">Money of the balance that cannot be spent twice.</p>
      <Answer query={holds} rows={2}>
        {(data) =>
          data.leases.length === 0 && data.calls.length === 0 ? (
            <Empty>Nothing is held.</Empty>
          ) : (
            <>
              {data.leases.length > 0 && <Leases holds={data} />}
              {data.calls.length > 0 && <Calls holds={data} />}
            </>
          )
        }
      </Answer>
    </section>
  )
}

const Leases = ({ holds: { leases, lentUsdAttos } }: { holds: UserHolds }): ReactNode => (
  <>
    <p className="soft">
      Lent to signers: <Attos value={lentUsdAttos} />. A signer allows calls from it without asking,
      and gives the rest back.
    </p>
    <TableBox label="Table of lent money">
      <table>
        <thead>
          <tr>
            <th scope="col">Signer</th>
            <th scope="col" className="number">
              Lent
            </th>
            <th scope="col" className="number">
              Used
            </th>
            <th scope="col">The rest comes back</th>
          </tr>
        </thead>
        <tbody>
          {leases.map((lease) => (
            <tr key={lease.id}>
              <th scope="row">
                <Name>{lease.sidecarId}</Name>
              </th>
              <td className="number">
                <Attos value={lease.amountUsdAttos} />
              </td>
              <td className="number">
                <Attos value={lease.usedUsdAttos} />
              </td>
              <td>
                {lease.recalled ? (
                  'now: it was called back'
                ) : (
                  <>
                    <Instant at={lease.endsAt} />, unless calls go on
                  </>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </TableBox>
  </>
)

const Calls = ({
  holds: { calls, pendingUsdAttos, pendingCount, eventLagSeconds, holdMaxSeconds },
}: {
  holds: UserHolds
}): ReactNode => (
  <>
    <p className="soft">
      {formatInteger(pendingCount)} allowed {pendingCount === '1' ? 'call' : 'calls'} without a
      ticket: at most <Attos value={pendingUsdAttos} />. A ticket books its price and frees the
      rest. Without one, a call ends {eventLagSeconds} s after the signer’s later events, or, if the
      signer is silent, {Math.ceil(holdMaxSeconds / 60)} minutes after the last call that it
      allowed.
      {BigInt(pendingCount) > BigInt(calls.reduce((sum, call) => sum + call.calls, 0)) &&
        ' The oldest are shown.'}
    </p>
    <TableBox label="Table of calls without a ticket">
      <table>
        <thead>
          <tr>
            <th scope="col">Allowed</th>
            <th scope="col">Signer</th>
            <th scope="col">Session</th>
            <th scope="col" className="number">
              Held
            </th>
            <th scope="col" className="number">
              Calls
            </th>
            <th scope="col">Why</th>
          </tr>
        </thead>
        <tbody>
          {calls.map((call, index) => (
            <tr key={`${call.sessionId} ${call.sequence} ${index}`}>
              <td>
                <Instant at={call.authorisedAt} />
              </td>
              <td>
                <Name>{call.sidecarId}</Name>
              </td>
              <td>
                <Name>{call.sessionId}</Name>
              </td>
              <td className="number">
                <Attos value={call.boundUsdAttos} />
              </td>
              <td className="number">{call.calls}</td>
              <td>{waits[call.state]}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </TableBox>
  </>
)

const waits: Readonly<Record<Call['state'], string>> = {
  unproven: 'Its ticket is awaited.',
  proven:
    'It was signed, because a later call follows it. Its ticket is awaited; without it, the deployment decides about a charge.',
  ticketed: 'Its ticket is here and waits for the price of ETH.',
}
