import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { type ReactNode, useMemo } from 'react'
import type { Schemas } from '../api/client.ts'
import { type AppInUse, ownCallsQuery, ownUsageQuery } from '../api/me.ts'
import { ExactDollars, Micros } from '../ui/amount.tsx'
import { formatCount, formatMicros } from '../ui/amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { BarChart } from '../ui/bar-chart.tsx'
import { Instant } from '../ui/instant.tsx'
import { MonthChoice, formatUtcMonth } from '../ui/month-choice.tsx'
import { More } from '../ui/more.tsx'
import { Name } from '../ui/name.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'

const from = '/me/$ownAppId'

interface MonthProps {
  readonly clientId: string
  readonly month: string
}

/** What the person spent in a UTC month: by day, by model, and call by call. */
export function Spent({ app: { clientId, clockAheadSeconds } }: { app: AppInUse }): ReactNode {
  // Calls of a test app are dated by its clock.
  const present = formatUtcMonth(Date.now() + clockAheadSeconds * 1_000)
  const { month = present } = useSearch({ from })
  const navigate = useNavigate({ from })
  return (
    <>
      <section className="card" aria-labelledby="spent">
        <h2 id="spent">Spent</h2>
        <MonthChoice
          month={month}
          latest={present}
          onChange={(wanted) => void navigate({ search: { month: wanted } })}
        />
        <Days clientId={clientId} month={month} />
      </section>
      <Models clientId={clientId} month={month} />
      <Calls clientId={clientId} month={month} />
    </>
  )
}

type Usage = Schemas['Usage']
const billed = (sums: { readonly endUserBillableUsdMicros?: string }): string =>
  sums.endUserBillableUsdMicros ?? '0'

function Days({ clientId, month }: MonthProps): ReactNode {
  const usage = useQuery(ownUsageQuery(clientId, { month, groupBy: 'day' }))
  return (
    <Answer query={usage} rows={6}>
      {({ totals, byDay = [] }) => (
        <>
          <dl className="stats" aria-label="Sums of the month">
            <div>
              <dt>Charged to me</dt>
              <dd>
                <Micros value={billed(totals)} />
              </dd>
            </div>
            <div>
              <dt>Calls</dt>
              <dd>
                {formatCount(totals.requestCount)}
                {totals.unpricedCount > 0 && (
                  <small>{formatCount(totals.unpricedCount)} wait for a price</small>
                )}
              </dd>
            </div>
          </dl>
          <DayChart days={byDay} />
        </>
      )}
    </Answer>
  )
}

function DayChart({ days }: { days: NonNullable<Usage['byDay']> }): ReactNode {
  const bars = useMemo(
    () => ({
      at: days.map(({ date }) => Date.parse(date) / 1e3),
      layers: [days.map((day) => Number(billed(day)) / 1e6)],
      describe: (index: number): string => {
        const day = days[index]
        return day ? `${day.date} (UTC): ${formatMicros(billed(day))}` : ''
      },
    }),
    [days],
  )
  const used = days.filter(({ requestCount }) => requestCount > 0)
  if (used.length === 0) return <Empty>You made no call in this month.</Empty>
  return (
    <>
      <BarChart {...bars} isMoney />
      <details>
        <summary>As a table</summary>
        <TableBox label="Table of days">
          <table>
            <thead>
              <tr>
                <th scope="col">Day (UTC)</th>
                <th scope="col" className="number">
                  Calls
                </th>
                <th scope="col" className="number">
                  Charged to me
                </th>
              </tr>
            </thead>
            <tbody>
              {used.map((day) => (
                <tr key={day.date}>
                  <th scope="row">{day.date}</th>
                  <td className="number">{formatCount(day.requestCount)}</td>
                  <td className="number">
                    <Micros value={billed(day)} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </TableBox>
      </details>
    </>
  )
}

function Models({ clientId, month }: MonthProps): ReactNode {
  const usage = useQuery(ownUsageQuery(clientId, { month, groupBy: 'pipeline_model' }))
  return (
    <section className="card" aria-labelledby="models">
      <h2 id="models">On what</h2>
      <Answer query={usage}>
        {({ byPipelineModel = [] }) =>
          byPipelineModel.length === 0 ? (
            <Empty>You used no model in this month.</Empty>
          ) : (
            <ModelTable rows={byPipelineModel.toSorted(byCost)} />
          )
        }
      </Answer>
    </section>
  )
}

type ModelRow = NonNullable<Usage['byPipelineModel']>[number]

const byCost = (one: ModelRow, other: ModelRow): number => {
  const difference = BigInt(billed(other)) - BigInt(billed(one))
  return difference > 0n ? 1 : difference < 0n ? -1 : 0
}

const ModelTable = ({ rows }: { rows: readonly ModelRow[] }): ReactNode => (
  <TableBox label="Table of models">
    <table>
      <thead>
        <tr>
          <th scope="col">Pipeline and model</th>
          <th scope="col" className="number">
            Calls
          </th>
          <th scope="col" className="number">
            Charged to me
          </th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={JSON.stringify([row.pipeline, row.modelId])}>
            <th scope="row">
              <Name>{row.pipeline}</Name>
              <small>
                <Name>{row.modelId}</Name>
              </small>
            </th>
            <td className="number">{formatCount(row.requestCount)}</td>
            <td className="number">
              <Micros value={billed(row)} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)

function Calls({ clientId, month }: MonthProps): ReactNode {
  const calls = useInfiniteQuery(ownCallsQuery(clientId, month))
  return (
    <section className="card" aria-labelledby="calls">
      <h2 id="calls">My calls</h2>
      <Answer query={calls}>
        {({ pages }) => {
          const all = pages.flatMap((page) => page.calls)
          return all.length > 0 ? (
            <CallTable calls={all} />
          ) : (
            <Empty>You made no call in this month.</Empty>
          )
        }}
      </Answer>
      <More query={calls} label="Show older" />
    </section>
  )
}

const CallTable = ({ calls }: { calls: readonly Schemas['UsageRequest'][] }): ReactNode => (
  <TableBox label="Table of my calls">
    <table>
      <thead>
        <tr>
          <th scope="col">When</th>
          <th scope="col">Pipeline and model</th>
          <th scope="col" className="number">
            Price
          </th>
        </tr>
      </thead>
      <tbody>
        {calls.map((call) => (
          <tr key={call.eventId}>
            <th scope="row">
              <Instant at={call.time} />
            </th>
            <td>
              <Name>{call.pipeline}</Name>
              <small>
                <Name>{call.modelId}</Name>
              </small>
            </td>
            <td className="number">
              {call.endUserBillableUsdExact === null ? (
                <span className="soft">waits for a rate</span>
              ) : (
                <ExactDollars value={call.endUserBillableUsdExact} />
              )}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)
