import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'
import { type UserRef, allowanceQuery } from '../api/users.ts'
import { Micros } from '../ui/amount.tsx'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { BalanceFigures, describeAccess } from '../ui/money/balance-figures.tsx'
import { Refused } from '../ui/money/refused.tsx'
import { Name } from '../ui/name.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'

type Allowance = Schemas['Allowance']

interface BalanceProps {
  readonly user: UserRef
  readonly isActive: boolean
}

/** What a user may still spend, and the credits that it comes from. */
export function Balance({ user, isActive }: BalanceProps): ReactNode {
  const allowance = useQuery(allowanceQuery(user))
  return (
    <Answer query={allowance} rows={5}>
      {(data) => (
        <>
          {!data.canSpend && <Refused refusal={data.spendRefusal} reader="member" />}
          <Figures allowance={data} isActive={isActive} />
          <Grants grants={data.grants} />
          {data.featureBalances.length > 0 && <Features balances={data.featureBalances} />}
        </>
      )}
    </Answer>
  )
}

interface FiguresProps {
  readonly allowance: Allowance
  readonly isActive: boolean
}

const Figures = ({ allowance, isActive }: FiguresProps): ReactNode => (
  <BalanceFigures
    balance={allowance}
    access={
      isActive ? describeAccess(allowance.canSpend) : 'calls are refused: the user is inactive'
    }
  >
    <div>
      <dt>Credit ever given</dt>
      <dd>
        <Micros value={allowance.lifetimeGrantedUsdMicros} />
      </dd>
    </div>
  </BalanceFigures>
)

const sourceNames: Readonly<Record<Schemas['Grant']['source'], string>> = {
  trial: 'Starter',
  manual: 'given',
  promo: 'promotion',
  plan_adjustment: 'plan',
}

const Grants = ({ grants }: { grants: readonly Schemas['Grant'][] }): ReactNode => (
  <section className="card" aria-labelledby="grants">
    <h2 id="grants">Credit in effect</h2>
    {grants.length === 0 ? (
      <Empty>No credit is in effect.</Empty>
    ) : (
      <TableBox label="Table of credit">
        <table>
          <thead>
            <tr>
              <th scope="col">From</th>
              <th scope="col">Created</th>
              <th scope="col">Expires</th>
              <th scope="col">Pays for</th>
              <th scope="col" className="number">
                Amount
              </th>
              <th scope="col" className="number">
                Remaining
              </th>
            </tr>
          </thead>
          <tbody>
            {grants.map((grant) => (
              <tr key={grant.id}>
                <th scope="row" title={grant.id}>
                  {sourceNames[grant.source]}
                </th>
                <td>
                  <Instant at={grant.createdAt} />
                </td>
                <td>{grant.expiresAt === null ? 'never' : <Instant at={grant.expiresAt} />}</td>
                <td>{grant.featureKey === null ? 'any call' : <Name>{grant.featureKey}</Name>}</td>
                <td className="number">
                  <Micros value={grant.amountUsdMicros} />
                </td>
                <td className="number">
                  <Micros value={grant.remainingUsdMicros} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </TableBox>
    )}
  </section>
)

/** Money for one feature only, which no other figure includes. */
const Features = ({ balances }: { balances: Allowance['featureBalances'] }): ReactNode => (
  <section className="card" aria-labelledby="features">
    <h2 id="features">In addition, for one feature only</h2>
    <dl className="facts">
      {balances.map(({ featureKey, balanceUsdMicros }) => (
        <div key={featureKey}>
          <dt>
            <Name>{featureKey}</Name>
          </dt>
          <dd>
            <Micros value={balanceUsdMicros} />
          </dd>
        </div>
      ))}
    </dl>
  </section>
)
