import { DomainError } from '../../proto/errors.ts'
import { type Dates, parseDates } from '../lib/time.ts'
import type { Range } from './types.ts'

const dayMs = 86_400_000
const daysMax = 3_660

/**
 * Parses dates with `parseDates`; without either end, the range is the UTC month of `now`
 * (docs/usage.md).
 */
export function parseHistoryRange(dates: Dates, now: Date): Range {
  if (dates.startDate !== undefined || dates.endDate !== undefined) return parseDates(dates)
  const [year, month] = [now.getUTCFullYear(), now.getUTCMonth()]
  return { start: new Date(Date.UTC(year, month, 1)), end: new Date(Date.UTC(year, month + 1, 1)) }
}

const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10)
const startOf = (day: string): number => Date.parse(`${day}T00:00:00.000Z`)

/**
 * Returns every UTC day of a range, in order. An open start is the first day with usage; an open
 * end is the later of today and the last day with usage. Throws REQUEST_INVALID for too many days.
 */
export function listDays({ start, end }: Range, used: readonly string[], now: Date): string[] {
  const sorted = [...used].sort()
  const [first, last] = [sorted[0], sorted.at(-1)]
  const from = start ? startOf(dayOf(start.getTime())) : first === undefined ? null : startOf(first)
  const to = end
    ? end.getTime() - 1
    : Math.max(now.getTime(), last === undefined ? 0 : startOf(last))
  if (from === null) return []
  if ((to - from) / dayMs > daysMax) {
    throw new DomainError(
      'REQUEST_INVALID',
      `groupBy=day takes at most ${daysMax} days; request a shorter range`,
    )
  }
  const days: string[] = []
  for (let at = from; at <= to; at += dayMs) days.push(dayOf(at))
  return days
}
