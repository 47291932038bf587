import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'
import { ownBalanceQuery, ownPlanQuery } from '../api/me.ts'
import { Micros } from '../ui/amount.tsx'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { BalanceFigures, describeAccess } from '../ui/money/balance-figures.tsx'
import { Refused } from '../ui/money/refused.tsx'
import { Name } from '../ui/name.tsx'
import { Empty } from '../ui/states.tsx'

/** What is left to spend, and the plan with what it includes. */
export function Left({ clientId }: { clientId: string }): ReactNode {
  const balance = useQuery(ownBalanceQuery(clientId))
  const plan = useQuery(ownPlanQuery(clientId))
  return (
    <>
      <Answer query={balance} rows={3}>
        {(data) => <Balance balance={data} />}
      </Answer>
      <section className="card" aria-labelledby="plan">
        <h2 id="plan">My plan</h2>
        <Answer query={plan} rows={3}>
          {(data) => <Plan read={data} />}
        </Answer>
      </section>
    </>
  )
}

type Balance = Schemas['Balance']

function Balance({ balance }: { balance: Balance }): ReactNode {
  const { canSpend = true, spendRefusal, featureBalances } = balance
  return (
    <>
      {!canSpend && <Refused refusal={spendRefusal} reader="user" />}
      <BalanceFigures balance={balance} access={describeAccess(canSpend)}>
        {featureBalances.map((feature) => (
          <div key={feature.featureKey}>
            <dt>
              For <Name>{feature.featureKey}</Name> only
            </dt>
            <dd>
              <Micros value={feature.balanceUsdMicros} />
              <small>in addition</small>
            </dd>
          </div>
        ))}
      </BalanceFigures>
    </>
  )
}

const paidBy = { free: 'nothing: it is free', subscription: 'a price per period', usage: 'usage' }

function Plan({ read }: { read: Schemas['UserSubscriptionRead'] }): ReactNode {
  const { subscription, livePlan, pendingPlan, pendingCancel } = read
  if (subscription === null) return <Empty>You are on no plan.</Empty>
  return (
    <>
      {pendingPlan?.effectiveAt && (
        <p className="notice">
          You move to <Name>{pendingPlan.name}</Name> on <Instant at={pendingPlan.effectiveAt} />.
        </p>
      )}
      {pendingCancel !== null && (
        <p className="notice">
          This plan ends on <Instant at={pendingCancel.effectiveAt} />; then you are on Starter.
        </p>
      )}
      <dl className="facts">
        <div>
          <dt>Name</dt>
          <dd>
            <Name>{subscription.planName}</Name>
          </dd>
        </div>
        <div>
          <dt>Costs</dt>
          <dd>{paidBy[subscription.planType]}</dd>
        </div>
        <div>
          <dt>Included usage</dt>
          <dd>
            {livePlan?.includedUsage ? <Micros value={livePlan.includedUsage.usdMicros} /> : 'none'}
          </dd>
        </div>
        <div>
          <dt>Renews</dt>
          <dd>
            <Instant at={subscription.currentPeriodEnd} />
          </dd>
        </div>
      </dl>
    </>
  )
}
