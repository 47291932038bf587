import { DomainError } from '../../../proto/errors.ts'
import { isUuid } from '../../platform/ids.ts'
import { type DateRange, type Dates, parseDates } from '../../lib/time.ts'
import type { LossPosition } from './store.ts'

/** What a question about losses may say. */

export type Period = DateRange

const dayMs = 86_400_000
const usualDays = 30

/** By `parseDates`; without either end, the last 30 days. */
export function parsePeriod(dates: Dates, now: Date): Period {
  if (dates.startDate !== undefined || dates.endDate !== undefined) return parseDates(dates)
  return { start: new Date(now.getTime() - usualDays * dayMs), end: null }
}

export const formatPosition = ({ startedMicros, userId, sessionId }: LossPosition): string =>
  Buffer.from(`${startedMicros} ${userId} ${sessionId}`).toString('base64url')

/** REQUEST_INVALID when it is not one of ours. */
export function parsePosition(text: string | undefined): LossPosition | null {
  if (text === undefined || text === '') return null
  const match = /^(\d{1,16}) (\S{36}) ([^\0]+)$/s.exec(
    Buffer.from(text, 'base64url').toString('utf8'),
  )
  const [, micros = '0', userId = '', sessionId = ''] = match ?? []
  const position = { startedMicros: BigInt(micros), userId, sessionId }
  if (!isUuid(userId) || formatPosition(position) !== text) {
    throw new DomainError('REQUEST_INVALID', 'cursor is not one that this list returned')
  }
  return position
}
