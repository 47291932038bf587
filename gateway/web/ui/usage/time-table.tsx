import type { ReactNode } from 'react'
import { Instant } from '../instant.tsx'
import { TableBox } from '../table-box.tsx'
import { type Sums, exactFigure, figureNames, figures, formatFigure } from './figures.ts'
import type { Step } from './range.ts'

/** Links a day to what was used on it. */
export type LinkDay = (day: string) => ReactNode

const hourFormat = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' })

/** Returns a day, or the start of an hour in the reader's zone, for the hint on a bar. */
export const describeTime = (at: string, step: Step): string =>
  step === 'day' ? `${at} (UTC)` : `Hour from ${hourFormat.format(new Date(at))}`

/** The head of the column of times. */
export const timeHeads: Readonly<Record<Step, string>> = { day: 'Day (UTC)', hour: 'Hour from' }

export const timeCaptions: Readonly<Record<Step, string>> = {
  day: 'Days without tickets are left out.',
  hour: 'Hours without tickets are left out; the first and the last may be partial.',
}

interface TimeTableProps {
  readonly times: readonly { readonly at: string; readonly sums: Sums }[]
  readonly step: Step
  readonly linkDay: LinkDay
}

/** Every figure of each day or hour. */
export const TimeTable = ({ times, step, linkDay }: TimeTableProps): ReactNode => (
  <TableBox label={`Table of ${step}s`}>
    <table>
      <caption>{timeCaptions[step]}</caption>
      <thead>
        <tr>
          <th scope="col">{timeHeads[step]}</th>
          {figureNames.map((name) => (
            <th key={name} scope="col" className="number">
              {figures[name].label}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {times.map(({ at, sums }) => (
          <tr key={at}>
            <th scope="row">{step === 'day' ? linkDay(at) : <Instant at={at} />}</th>
            {figureNames.map((name) => (
              <td key={name} className="number" title={exactFigure(name, sums)}>
                {formatFigure(name, sums)}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)
