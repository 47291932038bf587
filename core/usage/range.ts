import { DomainError } from '../../proto/errors.ts'
import { type Dates, parseDates } from '../lib/time.ts'
import type { Grouping, Range } from './types.ts'

const hourMs = 3_600_000
const dayMs = 86_400_000

interface Times {
  readonly unit: 'day' | 'hour'
  /** The most days or hours of a range. */
  readonly max: number
}

const timesOf = {
  day: { unit: 'day', max: 3_660 },
  daily_top_models: { unit: 'day', max: 366 },
  hour: { unit: 'hour', max: 31 * 24 },
  hourly_top_models: { unit: 'hour', max: 31 * 24 },
} as const satisfies Partial<Record<Grouping, Times>>
export type TimedGrouping = keyof typeof timesOf

/** Whether each row of the grouping has a day or hour of the range, which bounds their number. */
export const hasTimes = (grouping: Grouping): grouping is TimedGrouping => grouping in timesOf

/** The most days or hours that a range of the grouping may have. */
export const maxTimes = (grouping: TimedGrouping): number => timesOf[grouping].max

const units = {
  day: { ms: dayMs, format: (ms: number): string => new Date(ms).toISOString().slice(0, 10) },
  hour: { ms: hourMs, format: (ms: number): string => new Date(ms).toISOString() },
}

/**
 * Parses dates with `parseDates`; without either end, the range is the UTC month of `now`
 * (docs/usage.md).
 */
export function parseHistoryRange(dates: Dates, now: Date): Range {
  if (dates.startDate !== undefined || dates.endDate !== undefined) return parseDates(dates)
  const [year, month] = [now.getUTCFullYear(), now.getUTCMonth()]
  return { start: new Date(Date.UTC(year, month, 1)), end: new Date(Date.UTC(year, month + 1, 1)) }
}

/**
 * Returns every UTC day or hour of a range, in order. An open start is the first of `used`; an open
 * end is the later of now and the last of `used`. Throws REQUEST_INVALID for too many.
 */
export function listTimes(
  grouping: TimedGrouping,
  { start, end }: Range,
  { used, now }: { used: readonly string[]; now: Date },
): string[] {
  const times = timesOf[grouping]
  const { ms, format } = units[times.unit]
  const starts = used.map((text) => Date.parse(text)).sort((a, b) => a - b)
  const first = start?.getTime() ?? starts[0]
  const last = end ? end.getTime() - 1 : Math.max(now.getTime(), starts.at(-1) ?? 0)
  if (first === undefined) return []
  const from = Math.floor(first / ms) * ms
  const count = Math.max(0, Math.floor((last - from) / ms) + 1)
  if (count > times.max) {
    throw new DomainError(
      'REQUEST_INVALID',
      `groupBy=${grouping} takes at most ${times.max} ${times.unit}s; request a shorter range`,
    )
  }
  return Array.from({ length: count }, (_, index) => format(from + index * ms))
}
