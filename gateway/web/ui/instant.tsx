import type { ReactNode } from 'react'
import { useExact } from './exact/exact.ts'

const dateAndTime = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' })
const dateOnly = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeZone: 'UTC' })

const timeOnly = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium' })

/** An instant in the reader's time zone. UTC shows on hover. */
export function Instant({
  at,
  isTimeOnly = false,
}: {
  at: string
  /** Shows the time to the second, without the date. */
  isTimeOnly?: boolean
}): ReactNode {
  const isExact = useExact()
  const utc = `${at.replace('T', ' ').replace(/(\.\d+)?Z$/, '')} UTC`
  return (
    <time dateTime={at} title={utc}>
      {isExact ? utc : (isTimeOnly ? timeOnly : dateAndTime).format(new Date(at))}
    </time>
  )
}

/** The days of a period, in UTC, as periods are counted. */
export const Period = ({ from, to }: { from: string; to: string }): ReactNode => (
  <span title={`${from} – ${to}`}>{dateOnly.formatRange(new Date(from), new Date(to))} (UTC)</span>
)
