import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useMemo } from 'react'
import { type Usage, type UsageFilter, usageQuery } from '../../api/usage.ts'
import { Answer } from '../answer.tsx'
import { BarChart } from '../bar-chart.tsx'
import { Empty } from '../states.tsx'
import {
  type FigureName,
  figureNames,
  figures,
  formatFigure,
  parseFigure,
  toHeight,
} from './figures.ts'
import { ModelTimes } from './model-times.tsx'
import { type Range, type Step, countDays, stepMs, toDates, toStep } from './range.ts'
import type { ChartSearch } from './search.ts'
import { type LinkDay, TimeTable, describeTime } from './time-table.tsx'

interface TimeChartProps {
  readonly clientId: string
  readonly range: Range
  readonly filter?: UsageFilter
  readonly search: ChartSearch
  readonly onChange: (chart: ChartSearch) => void
  readonly linkDay: LinkDay
}

/** The API divides at most this number of days by model. */
const splitDaysMax = 366

/** One figure over UTC days or hours as bars, of all models or by model, each with its table. */
export function TimeChart({
  clientId,
  range: { current },
  filter = {},
  search,
  onChange,
  linkDay,
}: TimeChartProps): ReactNode {
  const { figure = 'tickets' } = search
  const step = toStep(current)
  const canSplit = countDays(current) <= splitDaysMax
  const isSplit = canSplit && search.split === 'model'
  const groupBy = isSplit ? topOf[step] : step
  const usage = useQuery(usageQuery(clientId, { ...filter, dates: toDates(current), groupBy }))
  return (
    <section className="card" aria-labelledby="times" aria-busy={usage.isPlaceholderData}>
      <div className="head">
        <h2 id="times">
          {figures[figure].label} by {step}
          {isSplit && ' and model'}
        </h2>
        <Choices {...{ search, onChange, canSplit }} />
      </div>
      <Answer query={usage} rows={6}>
        {({ period, byDay, byHour, byDailyTopModels, byHourlyTopModels }) =>
          isSplit ? (
            <ModelTimes
              rows={byHourlyTopModels ?? byDailyTopModels ?? []}
              {...{ period, step, figure }}
            />
          ) : (
            <Times rows={byHour ?? byDay ?? []} {...{ step, figure, linkDay }} />
          )
        }
      </Answer>
    </section>
  )
}

const topOf = { day: 'daily_top_models', hour: 'hourly_top_models' } as const

interface ChoicesProps extends Pick<TimeChartProps, 'search' | 'onChange'> {
  readonly canSplit: boolean
}

function Choices({ search: { figure, split }, onChange, canSplit }: ChoicesProps): ReactNode {
  const chart = { ...(figure && { figure }), ...(split && { split }) }
  return (
    <div className="row">
      <label>
        Figure
        <select
          value={figure ?? 'tickets'}
          onChange={(event) => {
            const chosen = parseFigure(event.target.value)
            if (chosen) onChange({ ...chart, figure: chosen })
          }}
        >
          {figureNames.map((name) => (
            <option key={name} value={name}>
              {figures[name].label}
            </option>
          ))}
        </select>
      </label>
      <label>
        Bars
        <select
          value={canSplit && split ? 'model' : 'all'}
          onChange={(event) =>
            onChange({
              ...(figure && { figure }),
              ...(event.target.value === 'model' && { split: 'model' }),
            })
          }
        >
          <option value="all">All models together</option>
          <option value="model" disabled={!canSplit}>
            The five costliest models
          </option>
        </select>
      </label>
    </div>
  )
}

type Day = NonNullable<Usage['byDay']>[number]
type Hour = NonNullable<Usage['byHour']>[number]

interface TimesProps {
  readonly rows: readonly (Day | Hour)[]
  readonly step: Step
  readonly figure: FigureName
  readonly linkDay: LinkDay
}

function Times({ rows, step, figure, linkDay }: TimesProps): ReactNode {
  const times = useMemo(
    () => rows.map((row) => ({ at: 'hour' in row ? row.hour : row.date, sums: row })),
    [rows],
  )
  const bars = useMemo(
    () => ({
      at: times.map(({ at }) => Date.parse(at) / 1e3),
      layers: [times.map(({ sums }) => toHeight(figure, figures[figure].read(sums)))],
      describe: (index: number): string => {
        const time = times[index]
        return time ? `${describeTime(time.at, step)}: ${formatFigure(figure, time.sums)}` : ''
      },
    }),
    [times, step, figure],
  )
  const used = times.filter(({ sums }) => sums.requestCount > 0)
  if (used.length === 0) return <Empty>No ticket was signed in this range.</Empty>
  return (
    <>
      {times.length > 1 && (
        <BarChart {...bars} stepSeconds={stepMs[step] / 1e3} isMoney={figures[figure].isMoney} />
      )}
      <details>
        <summary>As a table</summary>
        <TimeTable times={used} step={step} linkDay={linkDay} />
      </details>
    </>
  )
}
