import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'
import { appQuery, billingQuery } from '../api/queries.ts'
import { Micros } from '../ui/amount.tsx'
import { Answer } from '../ui/answer.tsx'
import { Period } from '../ui/instant.tsx'
import { Page } from '../ui/page.tsx'
import { Loading } from '../ui/states.tsx'
import { LastMinute } from '../ui/usage/last-minute.tsx'
import { useAppNow } from '../ui/usage/now.ts'
import { toRange } from '../ui/usage/range.ts'
import { RangeDates, RangePicker } from '../ui/usage/range-picker.tsx'
import { pickRange, withChart, withRange } from '../ui/usage/search.ts'
import { TimeChart } from '../ui/usage/time-chart.tsx'
import { Totals } from '../ui/usage/totals.tsx'
import { Attention } from './attention.tsx'
import { SetupHint } from './setup-hint.tsx'
import { Top } from './top.tsx'

/** What an app used and cost in a range, beside the range before, and what needs attention. */
export function Overview(): ReactNode {
  const { clientId } = useParams({ from: '/$clientId' })
  const search = useSearch({ from: '/$clientId' })
  const navigate = useNavigate({ from: '/$clientId' })
  const app = useQuery(appQuery(clientId))
  const billing = useQuery(billingQuery(clientId))
  const now = useAppNow(clientId)
  const title = app.data?.name ?? 'Overview'
  if (now === undefined)
    return (
      <Page title={title}>
        <Loading rows={6} />
      </Page>
    )
  const range = toRange(search, now)
  const kept = pickRange(search)
  return (
    <Page
      title={title}
      about={<RangeDates range={range} />}
      actions={
        <Link className="button" to="/$clientId/usage" params={{ clientId }} search={kept}>
          Usage in detail
        </Link>
      }
    >
      <Answer query={app} rows={1}>
        {() => <Attention clientId={clientId} range={range} search={kept} />}
      </Answer>
      <SetupHint clientId={clientId} />
      <RangePicker
        search={search}
        range={range}
        onChoose={(chosen) =>
          void navigate({ search: withRange(search, chosen), resetScroll: false })
        }
      />
      <Totals clientId={clientId} range={range} />
      <LastMinute clientId={clientId} />
      <TimeChart
        clientId={clientId}
        range={range}
        search={search}
        onChange={(chart) =>
          void navigate({ search: withChart(search, chart), resetScroll: false })
        }
        linkDay={(day) => (
          <Link
            to="/$clientId/usage"
            params={{ clientId }}
            search={{ from: day, to: day, by: 'user' }}
          >
            {day}
          </Link>
        )}
      />
      <Top clientId={clientId} by="pipeline_model" range={range} search={kept} />
      <Top clientId={clientId} by="user" range={range} search={kept} />
      <Answer query={billing} rows={2}>
        {(data) => <Plan billing={data} />}
      </Answer>
    </Page>
  )
}

type Billing = Schemas['BillingSummary']

/** The plan, and the period by which it is billed, whatever range is shown. */
function Plan({ billing: { plan, subscription, cycle } }: { billing: Billing }): ReactNode {
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
          <div>
            <dt>Running period</dt>
            <dd>
              <Period from={cycle.periodStart} to={cycle.periodEnd} />
            </dd>
          </div>
        </dl>
      )}
    </section>
  )
}
