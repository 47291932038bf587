import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'
import { ownBalanceQuery, ownPlanQuery } from '../api/me.ts'
import { Micros } from '../ui/amount.tsx'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
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

const refusals: Readonly<Record<NonNullable<Balance['spendRefusal']>, string>> = {
  insufficient_balance: 'Nothing is left.',
  no_payment_method: 'Nothing is left, and no card is on file to spend on credit.',
  debt_ceiling_reached: 'Your unpaid usage has reached its ceiling.',
  owner_debt_ceiling_reached: 'The app’s owner, who pays, has too little left.',
}

function Balance({ balance }: { balance: Balance }): ReactNode {
  const { remainingUsdMicros, balanceUsdMicros, consumedUsdMicros } = balance
  const { canSpend = true, spendRefusal, featureBalances } = balance
  return (
    <>
      {!canSpend && (
        <p className="problem">
          <span>
            <strong>Your calls are refused.</strong>{' '}
            {spendRefusal && (
              <>
                {refusals[spendRefusal]}{' '}
                <a href={`/errors/${spendRefusal}`}>
                  About <code>{spendRefusal}</code>
                </a>
              </>
            )}
          </span>
        </p>
      )}
      <dl className="stats" aria-label="Left">
        <div>
          <dt>May still spend</dt>
          <dd>
            <Micros value={remainingUsdMicros} />
            <small>{canSpend ? 'calls are allowed' : 'calls are refused'}</small>
          </dd>
        </div>
        <div>
          <dt>Balance</dt>
          <dd>
            <Micros value={balanceUsdMicros} />
            <small>with money held for running calls</small>
          </dd>
        </div>
        <div>
          <dt>Consumed in this period</dt>
          <dd>
            <Micros value={consumedUsdMicros} />
          </dd>
        </div>
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
      </dl>
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
