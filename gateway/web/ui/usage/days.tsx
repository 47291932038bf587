import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useMemo } from 'react'
import { type Usage, usageQuery } from '../../api/usage.ts'
import { Answer } from '../answer.tsx'
import { BarChart } from '../bar-chart.tsx'
import { Empty } from '../states.tsx'
import { TableBox } from '../table-box.tsx'
import {
  type FigureName,
  exactFigure,
  figureNames,
  figures,
  formatFigure,
  parseFigure,
} from './figures.ts'
import { type Range, countDays, toDates } from './range.ts'

interface DaysProps {
  readonly clientId: string
  readonly range: Range
  readonly user?: string | undefined
  readonly figure: FigureName
  readonly onFigure: (figure: FigureName) => void
  /** Links a day to what was used on it. */
  readonly linkDay: (day: string) => ReactNode
}

/** One figure of each UTC day as bars, and every figure as a table. */
export function Days({ clientId, range, user, figure, onFigure, linkDay }: DaysProps): ReactNode {
  const selection = { dates: toDates(range.current), groupBy: 'day', user } as const
  const usage = useQuery(usageQuery(clientId, selection))
  return (
    <section className="card" aria-labelledby="daily" aria-busy={usage.isPlaceholderData}>
      <div className="head">
        <h2 id="daily">{figures[figure].label} by day</h2>
        <label>
          Figure
          <select
            value={figure}
            onChange={(event) => onFigure(parseFigure(event.target.value) ?? figure)}
          >
            {figureNames.map((name) => (
              <option key={name} value={name}>
                {figures[name].label}
              </option>
            ))}
          </select>
        </label>
      </div>
      <Answer query={usage} rows={6}>
        {({ byDay = [] }) => (
          <DayFigures
            days={byDay}
            figure={figure}
            hasBars={countDays(range.current) > 1}
            linkDay={linkDay}
          />
        )}
      </Answer>
    </section>
  )
}

type Day = NonNullable<Usage['byDay']>[number]

interface DayFiguresProps {
  readonly days: readonly Day[]
  readonly figure: FigureName
  readonly hasBars: boolean
  readonly linkDay: (day: string) => ReactNode
}

function DayFigures({ days, figure, hasBars, linkDay }: DayFiguresProps): ReactNode {
  const bars = useMemo(
    () => ({
      at: days.map(({ date }) => Date.parse(date) / 1e3),
      values: days.map((day) => toHeight(figure, day)),
      describe: (index: number): string => {
        const day = days[index]
        return day ? `${day.date} (UTC): ${formatFigure(figure, day)}` : ''
      },
    }),
    [days, figure],
  )
  const used = days.filter(({ requestCount }) => requestCount > 0)
  if (used.length === 0) return <Empty>No ticket was signed in this range.</Empty>
  return (
    <>
      {hasBars ? (
        <BarChart {...bars} isMoney={figures[figure].isMoney} />
      ) : (
        <p className="soft">
          Sums by time are sums of UTC days, so a range within one day has no chart.
        </p>
      )}
      <details>
        <summary>As a table</summary>
        <DayTable days={used} linkDay={linkDay} />
      </details>
    </>
  )
}

/** The height of a bar: tickets, or dollars. */
const toHeight = (name: FigureName, day: Day): number =>
  Number(figures[name].read(day)) / (figures[name].isMoney ? 1e6 : 1)

const DayTable = ({ days, linkDay }: Pick<DayFiguresProps, 'days' | 'linkDay'>): ReactNode => (
  <TableBox label="Table of days">
    <table>
      <caption>Days without tickets are left out.</caption>
      <thead>
        <tr>
          <th scope="col">Day (UTC)</th>
          {figureNames.map((name) => (
            <th key={name} scope="col" className="number">
              {figures[name].label}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {days.map((day) => (
          <tr key={day.date}>
            <th scope="row">{linkDay(day.date)}</th>
            {figureNames.map((name) => (
              <td key={name} className="number" title={exactFigure(name, day)}>
                {formatFigure(name, day)}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)
