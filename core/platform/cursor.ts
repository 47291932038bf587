import { DomainError } from '../../proto/errors.ts'
import { isUuid } from './ids.ts'
import { parseInstant } from '../lib/time.ts'

/** Where a list by (creation, id) goes on: a keyset, so that rows that come or go shift nothing. */
export interface Cursor {
  readonly createdAt: Date
  readonly id: string
}

export const formatCursor = ({ createdAt, id }: Cursor): string =>
  Buffer.from(`${createdAt.toISOString()} ${id}`).toString('base64url')

/** REQUEST_INVALID when it is not one of ours. */
export function parseCursor(text: string | undefined): Cursor | null {
  if (text === undefined || text === '') return null
  const [time = '', id = ''] = Buffer.from(text, 'base64url').toString('utf8').split(' ')
  const createdAt = parseInstant(time)
  if (!createdAt || !isUuid(id) || formatCursor({ createdAt, id }) !== text) {
    throw new DomainError('REQUEST_INVALID', 'cursor is not one that this list returned')
  }
  return { createdAt, id }
}

/** Cuts the extra row that tells whether there is more, and names the last one shown. */
export function page<T extends Cursor>(
  rows: readonly T[],
  limit: number,
): { items: T[]; nextCursor: string | undefined } {
  const items = rows.slice(0, limit)
  const last = items.at(-1)
  return { items, nextCursor: rows.length > limit && last ? formatCursor(last) : undefined }
}

export const listMax = 1_000

/** 0 or absent means the most there is. REQUEST_INVALID above it. */
export function parseLimit(limit: number): number {
  if (limit > listMax)
    throw new DomainError('REQUEST_INVALID', `limit must be from 1 to ${listMax}`)
  return limit === 0 ? listMax : limit
}
