import { hash } from 'node:crypto'
import { DomainError } from '../../../proto/errors.ts'
import { type Clocks, realTime } from '../../shared/clocks/clocks.ts'
import type { AppId } from '../../shared/ids.ts'
import type { Dates } from '../../lib/time.ts'
import { type Cursors, createCursors } from '../cursor.ts'
import { type Read, readPrimary } from '../../shared/database/replica.ts'
import type { Shared } from '../../shared/shared.ts'
import { type Page, type Place, listRequests, listSessions } from './store.ts'
import { parseHistoryRange } from '../range.ts'
import type { RequestItem, SessionEntry, SessionItem } from '../types.ts'
import type { Sealing } from '../../shared/sealing/sealing.ts'
import { type KnownUser, type UsageUsers, createUserFinder } from '../users.ts'

export interface HistoryDeps extends Pick<Shared, 'pool' | 'now'> {
  readonly users: UsageUsers
  /** Default reads from `pool`. */
  readonly read?: Read
  readonly sealing: Sealing
  readonly clocks?: Clocks
}

export interface HistoryQuery extends Dates {
  readonly manifestId: string | undefined
  /** 0 means the default. */
  readonly limit: number
  readonly cursor: string | undefined
}

export interface Listed<Item> {
  readonly items: readonly Item[]
  readonly nextCursor: string | undefined
}

const limitDefault = 25
const limitMax = 50
const idleMs = 5 * 60_000

/** Lists tickets and sessions, the newest first, in pages that neither skip nor repeat a row. */
export function createHistory(deps: HistoryDeps) {
  const { pool, users, sealing, clocks = realTime, now } = deps
  const { read = readPrimary(pool).read } = deps
  const findUser = createUserFinder(users)
  const cursors = createCursors(sealing)

  /**
   * Throws REQUEST_INVALID for dates, limit or cursor; NOT_FOUND for an unknown user. `of` narrows
   * to one user.
   */
  async function requests(
    appId: AppId,
    query: HistoryQuery,
    onlyUser?: string,
  ): Promise<Listed<RequestItem>> {
    return requestsOf(appId, query, onlyUser === undefined ? null : () => findUser(appId, onlyUser))
  }

  const ownRequests = (
    user: { appId: AppId } & KnownUser,
    query: HistoryQuery,
  ): Promise<Listed<RequestItem>> => requestsOf(user.appId, query, async () => user)

  async function requestsOf(
    appId: AppId,
    query: HistoryQuery,
    user: Lookup,
  ): Promise<Listed<RequestItem>> {
    const { page, context } = await pageOf(appId, query, { list: 'requests', user })
    const rows = await read((from) => listRequests(from, { ...page, limit: page.limit + 1 }))
    return cut(rows, page.limit, (last) =>
      cursors.format([last.signedAt, last.eventId, last.userId], context),
    )
  }

  async function sessions(
    appId: AppId,
    query: HistoryQuery,
    onlyUser?: string,
  ): Promise<Listed<SessionEntry>> {
    return sessionsOf(appId, query, onlyUser === undefined ? null : () => findUser(appId, onlyUser))
  }

  const ownSessions = (
    user: { appId: AppId } & KnownUser,
    query: HistoryQuery,
  ): Promise<Listed<SessionEntry>> => sessionsOf(user.appId, query, async () => user)

  async function sessionsOf(
    appId: AppId,
    query: HistoryQuery,
    user: Lookup,
  ): Promise<Listed<SessionEntry>> {
    const { page, context, at } = await pageOf(appId, query, { list: 'sessions', user })
    const rows = await read((from) => listSessions(from, { ...page, limit: page.limit + 1 }))
    return cut(
      rows.map((item) => ({ ...item, endedAt: endOf(item, at) })),
      page.limit,
      (last) => cursors.format([last.startedAt, last.sessionId, last.userId], context),
    )
  }

  async function pageOf(
    appId: AppId,
    query: HistoryQuery,
    { list, user }: { list: string; user: Lookup },
  ): Promise<{ page: Page; context: string; at: Date }> {
    const limit = parseLimit(query.limit)
    const at = await clocks.timeOf(pool, appId, now())
    parseHistoryRange(query, at)
    const owner = user && (await user())
    // Binds the cursor to the list that returned it.
    const { manifestId, startDate, endDate } = query
    const context = hash(
      'sha256',
      JSON.stringify([list, appId, owner?.id, manifestId, startDate, endDate]),
    )
    const before = placeOf(cursors.parse(query.cursor, context))
    // A list that began in the current month stays in that month, even after the next has begun.
    const range = parseHistoryRange(query, before ? new Date(before.at) : at)
    return {
      at,
      page: {
        appId,
        userId: owner?.id ?? null,
        manifestId: manifestId ?? null,
        range,
        before,
        limit,
      },
      context,
    }
  }

  return { requests, ownRequests, sessions, ownSessions }
}

export type History = ReturnType<typeof createHistory>

/** Returns a session's end: its last ticket, after five idle minutes by the app's clock. */
const endOf = ({ lastAt }: SessionItem, at: Date): Date | null =>
  at.getTime() - lastAt.getTime() >= idleMs ? lastAt : null

type Lookup = (() => Promise<KnownUser>) | null

function parseLimit(limit: number): number {
  if (limit < 0 || limit > limitMax)
    throw new DomainError('REQUEST_INVALID', `limit must be from 1 to ${limitMax}`)
  return limit === 0 ? limitDefault : limit
}

function placeOf(parts: ReturnType<Cursors['parse']>): Place | null {
  if (parts === null) return null
  const [at = '', id = '', userId = ''] = parts
  return { at, id, userId }
}

function cut<Item>(
  rows: readonly Item[],
  limit: number,
  cursorOf: (last: Item) => string,
): Listed<Item> {
  const items = rows.slice(0, limit)
  const last = items.at(-1)
  return {
    items,
    nextCursor: rows.length > limit && last !== undefined ? cursorOf(last) : undefined,
  }
}
