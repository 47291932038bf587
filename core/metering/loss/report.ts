import { DomainError } from '../../../proto/errors.ts'
import { parseLimit } from '../../platform/cursor.ts'
import type { AppId } from '../../platform/ids.ts'
import type { Pool } from '../../lib/sql.ts'
import type { Now, Dates } from '../../lib/time.ts'
import { type Period, formatPosition, parsePeriod, parsePosition } from './query.ts'
import * as store from './store.ts'
import { rangesOf } from '../ingest/session-store.ts'

export interface LossQuery extends Dates {
  readonly cursor?: string | undefined
  /** 0: as many as there may be. */
  readonly limit: number
}

/** `missing`: the first of the ranges of lost sequence numbers, both ends included; `missingMore` when there are others. */
export interface SessionLoss extends Omit<store.SessionLoss, 'missing'> {
  readonly missing: readonly { readonly first: bigint; readonly last: bigint }[]
  readonly missingMore: boolean
}

export interface AppReport {
  readonly period: Period
  readonly totals: store.LossSums
  readonly sessions: readonly SessionLoss[]
  readonly nextCursor: string | undefined
}

export interface LossReport {
  readonly period: Period
  readonly totals: store.LossSums
  /** The dearest first. */
  readonly apps: readonly store.AppLoss[]
  /** Of the app that was asked for, the newest first; empty when that were all apps. */
  readonly sessions: readonly SessionLoss[]
  readonly unattributed: store.Unattributed
}

const shownRanges = 100
const shownApps = 1_000
const shownSessions = 100
const figureDays = 7
const dayMs = 86_400_000

/** Tells what was lost, forked and late: to the owner of an app, to the operator, and as metrics. */
export function createLossReports({ pool, now }: { pool: Pool; now: Now }) {
  /** Of one app. The totals are of the whole period; sessions come newest first, a page at a time. */
  async function ofApp(
    appId: AppId,
    { cursor, limit: asked, ...dates }: LossQuery,
  ): Promise<AppReport> {
    const period = parsePeriod(dates, now())
    const limit = parseLimit(asked)
    const after = parsePosition(cursor)
    const selection = { appId, ...period }
    const rows = await store.listLossySessions(pool, selection, {
      after,
      limit: limit + 1,
      ranges: shownRanges + 1,
    })
    const shown = rows.slice(0, limit)
    const last = shown.at(-1)
    return {
      period,
      totals: await store.sumLoss(pool, selection),
      sessions: shown.map(toSession),
      nextCursor: rows.length > limit && last ? formatPosition(last) : undefined,
    }
  }

  /** Of all apps or, with a client id, of one, and then with its newest sessions. NOT_FOUND when there is no such app. */
  async function report(clientId: string | undefined, dates: Dates): Promise<LossReport> {
    const period = parsePeriod(dates, now())
    const appId = clientId === undefined ? null : await store.appOf(pool, clientId)
    if (clientId !== undefined && appId === null) throw new DomainError('NOT_FOUND', 'no such app')
    const selection = { appId, ...period }
    const page = { after: null, limit: shownSessions, ranges: shownRanges + 1 }
    return {
      period,
      totals: await store.sumLoss(pool, selection),
      apps: await store.sumLossByApp(pool, selection, shownApps),
      sessions:
        appId === null ? [] : (await store.listLossySessions(pool, selection, page)).map(toSession),
      unattributed: await store.sumUnattributed(pool),
    }
  }

  /** For the metrics: of sessions that began in the last 7 days, so that what was dealt with leaves in time. */
  async function figures() {
    const start = new Date(now().getTime() - figureDays * dayMs)
    return {
      lost: await store.sumLoss(pool, { appId: null, start, end: null }),
      unattributed: await store.sumUnattributed(pool),
    }
  }

  return { ofApp, report, figures }
}

export type LossReports = ReturnType<typeof createLossReports>

function toSession({ missing, ...session }: store.SessionLoss): SessionLoss {
  const ranges = rangesOf(missing).map(([from, to]) => ({ first: from, last: to - 1n }))
  const listed = ranges.slice(0, shownRanges)
  const count = listed.reduce((sum, { first, last }) => sum + last - first + 1n, 0n)
  return {
    ...session,
    missing: listed,
    missingMore: ranges.length > shownRanges || count < session.lost,
  }
}
