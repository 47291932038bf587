import { DomainError } from '../../proto/errors.ts'
import { isUuid } from '../ids.ts'
import { parseInstant, parseUtcDay } from '../lib/time.ts'
import type { LossPosition } from './loss-report-store.ts'

/** What a question about losses may say. */

export interface Period { readonly start: Date | null; readonly end: Date | null }

export interface Dates {
  readonly startDate?: string | undefined
  readonly endDate?: string | undefined
}

const dayMs = 86_400_000
const usualDays = 30

/**
 * Both ends are meant inclusively: a day to its end, an instant to its millisecond (decisions 21 and 36). Without either,
 * the last 30 days. REQUEST_INVALID for what is no date, and for a start after the end.
 */
export function parsePeriod({ startDate, endDate }: Dates, now: Date): Period {
  if (startDate === undefined && endDate === undefined) return { start: new Date(now.getTime() - usualDays * dayMs), end: null }
  const start = startDate === undefined ? null : parseDate('startDate', startDate).start
  const end = endDate === undefined ? null : parseDate('endDate', endDate).end
  if (start && end && start >= end) throw new DomainError('REQUEST_INVALID', 'startDate must not be after endDate')
  return { start, end }
}

function parseDate(name: string, text: string): { start: Date; end: Date } {
  const day = parseUtcDay(text)
  if (day) return { start: day, end: new Date(day.getTime() + dayMs) }
  const instant = parseInstant(text)
  if (!instant) throw new DomainError('REQUEST_INVALID', `${name} must be an ISO 8601 date or instant with a zone`)
  return { start: instant, end: new Date(instant.getTime() + 1) }
}

export const formatPosition = ({ startedMicros, userId, sessionId }: LossPosition): string =>
  Buffer.from(`${startedMicros} ${userId} ${sessionId}`).toString('base64url')

/** REQUEST_INVALID when it is not one of ours. */
export function parsePosition(text: string | undefined): LossPosition | null {
  if (text === undefined || text === '') return null
  const match = /^(\d{1,16}) (\S{36}) ([^\0]+)$/s.exec(Buffer.from(text, 'base64url').toString('utf8'))
  const [, micros = '0', userId = '', sessionId = ''] = match ?? []
  const position = { startedMicros: BigInt(micros), userId, sessionId }
  if (!isUuid(userId) || formatPosition(position) !== text) {
    throw new DomainError('REQUEST_INVALID', 'cursor is not one that this list returned')
  }
  return position
}
