import { DomainError } from '../../../proto/errors.ts'
import { parseLimit } from '../../shared/cursor.ts'
import { type AppId, isUuid } from '../../shared/ids.ts'
import type { Pool } from '../../lib/sql.ts'
import { type DateRange, type Dates, type Now, parseDates } from '../../lib/time.ts'
import * as store from './store.ts'
import { toRanges } from '../ingest/session-store.ts'

export interface LossQuery extends Dates {
  readonly cursor?: string | undefined
  /** 0 means the maximum of a page. */
  readonly limit: number
}

/**
 * `missing` lists the first ranges of lost sequence numbers, both ends included; `missingMore` is
 * true if there are more.
 */
export interface SessionLoss extends Omit<store.SessionLoss, 'missing'> {
  readonly missing: readonly { readonly first: bigint; readonly last: bigint }[]
  readonly missingMore: boolean
}

export interface AppReport {
  readonly period: DateRange
  readonly totals: store.LossSums
  readonly sessions: readonly SessionLoss[]
  readonly nextCursor: string | undefined
  /** Outcomes of the allowed calls. */
  readonly calls: store.CallSums
  readonly callSessions: readonly store.SessionCalls[]
}

export interface LossReport {
  readonly period: DateRange
  readonly totals: store.LossSums
  /** The most expensive first. */
  readonly apps: readonly store.AppLoss[]
  /** Sessions of the requested app, the newest first; empty in a report on all apps. */
  readonly sessions: readonly SessionLoss[]
  readonly unattributed: store.Unattributed
  /** Outcomes of the allowed calls: in total, by client id, and by session of the requested app. */
  readonly calls: store.CallSums
  readonly callsByClient: ReadonlyMap<string | null, store.CallSums>
  readonly callSessions: readonly store.SessionCalls[]
}

const rangesMax = 100
const appsMax = 1_000
const sessionsMax = 100
const figureDays = 7
const dayMs = 86_400_000
const defaultDays = 30

/** Reports lost, forked and late tickets: to an app's owner, to the operator, and as metrics. */
export function createLossReports({ pool, now }: { pool: Pool; now: Now }) {
  /**
   * Returns the report of one app: totals of the whole period, and a page of sessions, the newest
   * first.
   */
  async function ofApp(
    appId: AppId,
    { cursor, limit: limitRequested, ...dates }: LossQuery,
  ): Promise<AppReport> {
    const period = parsePeriod(dates, now())
    const limit = parseLimit(limitRequested)
    const after = parsePosition(cursor)
    const selection = { appId, ...period }
    const rows = await store.listLossySessions(pool, selection, {
      after,
      limit: limit + 1,
      ranges: rangesMax + 1,
    })
    const sessions = rows.slice(0, limit)
    const last = sessions.at(-1)
    return {
      period,
      totals: await store.sumLoss(pool, selection),
      sessions: sessions.map(toSession),
      nextCursor: rows.length > limit && last ? formatPosition(last) : undefined,
      calls: (await store.sumCalls(pool, selection)).all,
      callSessions: await store.listLossyCalls(pool, selection, sessionsMax),
    }
  }

  /**
   * Returns the report of all apps or, with a client id, of one app and its newest sessions. Throws
   * NOT_FOUND for an unknown app.
   */
  async function report(clientId: string | undefined, dates: Dates): Promise<LossReport> {
    const period = parsePeriod(dates, now())
    const appId = clientId === undefined ? null : await store.findApp(pool, clientId)
    if (clientId !== undefined && appId === null) throw new DomainError('NOT_FOUND', 'no such app')
    const selection = { appId, ...period }
    const page = { after: null, limit: sessionsMax, ranges: rangesMax + 1 }
    const { all: calls, byClient: callsByClient } = await store.sumCalls(pool, selection)
    return {
      period,
      totals: await store.sumLoss(pool, selection),
      apps: await store.sumLossByApp(pool, selection, appsMax),
      sessions:
        appId === null ? [] : (await store.listLossySessions(pool, selection, page)).map(toSession),
      unattributed: await store.sumUnattributed(pool),
      calls,
      callsByClient,
      callSessions: appId === null ? [] : await store.listLossyCalls(pool, selection, sessionsMax),
    }
  }

  /**
   * Returns the sums for the metrics. They cover sessions that began in the last 7 days, so that a
   * resolved loss disappears in time.
   */
  async function figures(): Promise<store.LossSums> {
    const start = new Date(now().getTime() - figureDays * dayMs)
    return store.sumLoss(pool, { appId: null, start, end: null })
  }

  return { ofApp, report, figures }
}

export type LossReports = ReturnType<typeof createLossReports>

function toSession({ missing, ...session }: store.SessionLoss): SessionLoss {
  const ranges = toRanges(missing).map(([from, to]) => ({ first: from, last: to - 1n }))
  const listed = ranges.slice(0, rangesMax)
  const count = listed.reduce((sum, { first, last }) => sum + last - first + 1n, 0n)
  return {
    ...session,
    missing: listed,
    missingMore: ranges.length > rangesMax || count < session.lost,
  }
}

/** Parses dates with `parseDates`; without either end, the period is the last 30 days. */
function parsePeriod(dates: Dates, now: Date): DateRange {
  if (dates.startDate !== undefined || dates.endDate !== undefined) return parseDates(dates)
  return { start: new Date(now.getTime() - defaultDays * dayMs), end: null }
}

const formatPosition = ({ startedMicros, userId, sessionId }: store.LossPosition): string =>
  Buffer.from(`${startedMicros} ${userId} ${sessionId}`).toString('base64url')

/** Throws REQUEST_INVALID if the cursor was not created here. */
function parsePosition(text: string | undefined): store.LossPosition | null {
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
