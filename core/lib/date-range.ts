import { DomainError } from '../../proto/errors.ts'
import { parseInstant, parseUtcDay } from './time.ts'

/** What a question says of its time. */
export interface Dates {
  readonly startDate?: string | undefined
  readonly endDate?: string | undefined
}

/** Half-open `[start, end)`; null is open. */
export interface DateRange {
  readonly start: Date | null
  readonly end: Date | null
}

const dayMs = 86_400_000

/**
 * Both ends are meant inclusively: a day to its end, an instant to its millisecond (decisions 21 and 36).
 * REQUEST_INVALID for what is no date, and for a start after the end.
 */
export function parseDates({ startDate, endDate }: Dates): DateRange {
  const start = startDate === undefined ? null : parseDate('startDate', startDate).start
  const end = endDate === undefined ? null : parseDate('endDate', endDate).end
  if (start && end && start >= end)
    throw new DomainError('REQUEST_INVALID', 'startDate must not be after endDate')
  return { start, end }
}

function parseDate(name: string, text: string): { start: Date; end: Date } {
  const day = parseUtcDay(text)
  if (day) return { start: day, end: new Date(day.getTime() + dayMs) }
  const instant = parseInstant(text)
  if (!instant)
    throw new DomainError(
      'REQUEST_INVALID',
      `${name} must be an ISO 8601 date or instant with a zone`,
    )
  return { start: instant, end: new Date(instant.getTime() + 1) }
}
