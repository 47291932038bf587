import { useQuery } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'
import { appQuery, billingQuery } from '../api/queries.ts'
import { Micros } from '../ui/amount.tsx'
import { formatCount } from '../ui/amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { Period } from '../ui/instant.tsx'
import { Page } from '../ui/page.tsx'
import { DailyTickets } from './daily-tickets.tsx'

/** What an app used and cost in the current period. */
export function Overview(): ReactNode {
  const { clientId } = useParams({ from: '/$clientId' })
  const app = useQuery(appQuery(clientId))
  const billing = useQuery(billingQuery(clientId))
  const cycle = billing.data?.cycle
  return (
    <Page
      title={app.data?.name ?? 'Overview'}
      about={cycle && <Period from={cycle.periodStart} to={cycle.periodEnd} />}
    >
      <Answer query={app} rows={1}>
        {(data) => <MissingSecret app={data} />}
      </Answer>
      <Answer query={billing} rows={6}>
        {(data) => (
          <>
            <Unpriced count={data.cycle.usage.unpricedCount} />
            <Figures billing={data} />
            <DailyTickets timeline={data.cycle.timeline} />
            <Plan billing={data} />
          </>
        )}
      </Answer>
    </Page>
  )
}

type Billing = Schemas['BillingSummary']

const MissingSecret = ({ app }: { app: Schemas['App'] }): ReactNode =>
  app.m2mOidcClient?.hasSecret || !app.canEdit ? null : (
    <p className="notice">
      This app has no client secret, so no backend can call the API for it. Create one with{' '}
      <code>POST /api/v1/apps/{app.clientId}/credentials</code>.
    </p>
  )

const Unpriced = ({ count }: { count: number }): ReactNode =>
  count === 0 ? null : (
    <p className="notice">
      {formatCount(count)} tickets wait for the price of ETH. No amount in dollars includes them
      yet.
    </p>
  )

function Figures({ billing }: { billing: Billing }): ReactNode {
  const { usage } = billing.cycle
  return (
    <dl className="stats">
      <div>
        <dt>Tickets</dt>
        <dd>{formatCount(usage.requestCount)}</dd>
      </div>
      <div>
        <dt>Network cost</dt>
        <dd>
          <Micros value={usage.networkFeeUsdMicros} />
          <small>{usage.totalFeeEth} ETH</small>
        </dd>
      </div>
      <div>
        <dt>Charged to the owner</dt>
        <dd>
          <Micros value={usage.ownerChargeUsdMicros} />
          <small>
            {billing.platformCutPercent === null
              ? 'network cost, no platform cut'
              : `with a platform cut of ${billing.platformCutPercent} %`}
          </small>
        </dd>
      </div>
      <div>
        <dt>Pixels</dt>
        <dd>{BigInt(usage.totalUnits).toLocaleString('en-US')}</dd>
      </div>
    </dl>
  )
}

function Plan({ billing: { plan, subscription } }: { billing: Billing }): ReactNode {
  return (
    <section className="card" aria-labelledby="plan">
      <h2 id="plan">Plan</h2>
      {plan === null ? (
        <p className="soft">No plan is configured.</p>
      ) : (
        <dl className="facts">
          <div>
            <dt>Name</dt>
            <dd>{plan.name}</dd>
          </div>
          <div>
            <dt>Price</dt>
            <dd>
              {plan.priceAmount} {plan.priceCurrency}, {plan.billingCycle}
            </dd>
          </div>
          <div>
            <dt>Included usage</dt>
            <dd>
              {plan.includedUsdMicros === null ? 'none' : <Micros value={plan.includedUsdMicros} />}
            </dd>
          </div>
          <div>
            <dt>Subscription</dt>
            <dd>{subscription?.status ?? 'none'}</dd>
          </div>
        </dl>
      )}
    </section>
  )
}
