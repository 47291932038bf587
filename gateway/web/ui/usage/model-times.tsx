import { type ReactNode, useMemo } from 'react'
import type { Usage } from '../../api/usage.ts'
import { BarChart } from '../bar-chart.tsx'
import { Instant } from '../instant.tsx'
import { Empty } from '../states.tsx'
import { TableBox } from '../table-box.tsx'
import { type FigureName, figures, formatValue, toHeight } from './figures.ts'
import { Legend } from './legend.tsx'
import { type Model, type Row, startOf, toModels } from './models.ts'
import { type Step, formatUtcDay, listStarts, stepMs, toSpan } from './range.ts'
import { describeTime, timeCaptions, timeHeads } from './time-table.tsx'

interface ModelTimesProps {
  /** Rows of times with tickets. */
  readonly rows: readonly Row[]
  /** The period of `rows`, which may be an earlier one than the range until the answer arrives. */
  readonly period: Usage['period']
  readonly step: Step
  readonly figure: FigureName
}

/** A figure of the costliest models and the sum of further ones over time, as chart and table. */
export function ModelTimes({ rows, period, step, figure }: ModelTimesProps): ReactNode {
  const starts = useMemo(() => listStarts(toSpan(period), step), [period, step])
  const models = useMemo(() => toModels(rows, figure), [rows, figure])
  const bars = useMemo(
    () => ({
      at: starts.map((at) => at / 1e3),
      layers: models.map(({ values }) =>
        starts.map((at) => toHeight(figure, values.get(at) ?? 0n)),
      ),
      describe: (index: number): string => describeBar(models, { at: starts[index], step, figure }),
    }),
    [models, starts, step, figure],
  )
  if (models.length === 0) return <Empty>No ticket was signed in this range.</Empty>
  const used = new Set(rows.map(startOf))
  return (
    <>
      <Legend layers={models} />
      {starts.length > 1 && (
        <BarChart {...bars} stepSeconds={stepMs[step] / 1e3} isMoney={figures[figure].isMoney} />
      )}
      <details>
        <summary>As a table</summary>
        <ModelTable
          models={models}
          starts={starts.filter((at) => used.has(at))}
          step={step}
          figure={figure}
        />
      </details>
    </>
  )
}

interface Bar {
  readonly at: number | undefined
  readonly step: Step
  readonly figure: FigureName
}

function describeBar(models: readonly Model[], { at, step, figure }: Bar): string {
  if (at === undefined) return ''
  const parts = models.flatMap(({ name, values }) => {
    const value = values.get(at) ?? 0n
    return value === 0n ? [] : [`${name} ${formatValue(figure, value)}`]
  })
  return `${describeTime(toText(at, step), step)}: ${parts.join(', ') || formatValue(figure, 0n)}`
}

const toText = (at: number, step: Step): string =>
  step === 'day' ? formatUtcDay(at) : new Date(at).toISOString()

interface ModelTableProps extends Omit<ModelTimesProps, 'rows' | 'period'> {
  readonly models: readonly Model[]
  /** Days or hours with tickets, in Unix milliseconds. */
  readonly starts: readonly number[]
}

const ModelTable = ({ models, starts, step, figure }: ModelTableProps): ReactNode => (
  <TableBox label={`Table of models by ${step}`}>
    <table>
      <caption>
        {figures[figure].label}. {timeCaptions[step]}
      </caption>
      <thead>
        <tr>
          <th scope="col">{timeHeads[step]}</th>
          {models.map(({ key, name }) => (
            <th key={key} scope="col" className="number">
              <bdi>{name}</bdi>
            </th>
          ))}
          <th scope="col" className="number">
            Sum
          </th>
        </tr>
      </thead>
      <tbody>
        {starts.map((at) => (
          <tr key={at}>
            <th scope="row">
              {step === 'day' ? toText(at, step) : <Instant at={toText(at, step)} />}
            </th>
            {models.map(({ key, values }) => (
              <td key={key} className="number">
                {formatValue(figure, values.get(at) ?? 0n)}
              </td>
            ))}
            <td className="number">
              {formatValue(
                figure,
                models.reduce((sum, { values }) => sum + (values.get(at) ?? 0n), 0n),
              )}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)
