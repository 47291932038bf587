import { DomainError } from '../../proto/errors.ts'
import { isUuid } from './ids.ts'
import { parseInstant } from '../lib/time.ts'

/**
 * The last row of a page in a list ordered by (creation, id). Added or removed rows do not shift
 * such a keyset.
 */
export interface Cursor {
  readonly createdAt: Date
  readonly id: string
}

export const formatCursor = ({ createdAt, id }: Cursor): string =>
  Buffer.from(`${createdAt.toISOString()} ${id}`).toString('base64url')

/** Parses a cursor. Throws REQUEST_INVALID for text that `formatCursor` did not return. */
export function parseCursor(text: string | undefined): Cursor | null {
  if (text === undefined || text === '') return null
  const [time = '', id = ''] = Buffer.from(text, 'base64url').toString('utf8').split(' ')
  const createdAt = parseInstant(time)
  if (!createdAt || !isUuid(id) || formatCursor({ createdAt, id }) !== text) {
    throw new DomainError('REQUEST_INVALID', 'cursor is not one that this list returned')
  }
  return { createdAt, id }
}

/**
 * Removes the extra row, which shows that there are more, and returns the cursor of the page's last
 * row.
 */
export function page<T extends Cursor>(
  rows: readonly T[],
  limit: number,
): { items: T[]; nextCursor: string | undefined } {
  const items = rows.slice(0, limit)
  const last = items.at(-1)
  return { items, nextCursor: rows.length > limit && last ? formatCursor(last) : undefined }
}

export const listMax = 1_000

/** Parses a page size; 0 means `max`. Throws REQUEST_INVALID if it is larger than `max`. */
export function parseLimit(limit: number, max = listMax): number {
  if (limit > max) throw new DomainError('REQUEST_INVALID', `limit must be from 1 to ${max}`)
  return limit === 0 ? max : limit
}
