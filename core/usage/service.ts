import { DomainError } from '../../proto/errors.ts'
import { type Clocks, realTime } from '../shared/clocks/clocks.ts'
import type { AppId } from '../shared/ids.ts'
import { usdAttos, wei } from '../lib/money.ts'
import { type Dates, parseDates } from '../lib/time.ts'
import { type Read, readPrimary } from '../shared/database/replica.ts'
import type { Shared } from '../shared/shared.ts'
import { requestEvents } from './history/store.ts'
import { charged } from './pricing.ts'
import { listDays } from './range.ts'
import * as store from './store.ts'
import {
  type Grouping,
  type Selection,
  type UsageReport,
  type UsageRow,
  addSums,
  groupings,
} from './types.ts'
import { type KnownUser, type UsageUsers, createUserFinder } from './users.ts'

export interface UsageDeps extends Pick<Shared, 'pool' | 'now'> {
  readonly users: UsageUsers
  /** Default reads from `pool`. */
  readonly read?: Read
  readonly clocks?: Clocks
  /** The platform's cut of an app's fees in hundredths of a percent; null without one. */
  readonly platformCut?: (app: AppId) => Promise<bigint | null>
}

export interface UsageQuery extends Dates {
  readonly groupBy: string | undefined
  readonly gatewayRequestId: string | undefined
  readonly includeRetail: boolean
}

const maxRows = 10_000
const maxEvents = 1_000
const noCut = async (): Promise<null> => null

/** Sums metered tickets. The rows of a report add up to its totals, to the micro. */
export function createUsage({
  pool,
  read = readPrimary(pool).read,
  users,
  clocks = realTime,
  now,
  platformCut = noCut,
}: UsageDeps) {
  const findUser = createUserFinder(users)

  /**
   * Throws REQUEST_INVALID for an invalid date, range or grouping; NOT_FOUND for an unknown user.
   */
  async function query(appId: AppId, query: UsageQuery, of?: string): Promise<UsageReport> {
    const parsed = parse(query)
    if (parsed.grouping === 'daily_pipeline' && of === undefined) {
      throw new DomainError('REQUEST_INVALID', 'userId is required when groupBy=daily_pipeline')
    }
    return report(appId, of === undefined ? null : await findUser(appId, of), parsed)
  }

  /** Returns one user's usage. */
  const queryOwn = async (
    user: { appId: AppId } & KnownUser,
    query: UsageQuery,
  ): Promise<UsageReport> => report(user.appId, user, parse(query))

  async function report(
    appId: AppId,
    user: KnownUser | null,
    { range, grouping, requestId, includeRetail }: ParsedQuery,
  ): Promise<UsageReport> {
    const selection: Selection = { appId, userId: user?.id ?? null, range, requestId }
    const stored = await read(async (from) => ({
      sums: await store.sums(from, selection, { grouping, limit: maxRows }),
      events:
        requestId === null
          ? []
          : await store.inRequest(from, (db) => requestEvents(db, selection, maxEvents)),
    }))
    const sums = mergeUnknown(stored.sums)
    const rows =
      grouping === 'day'
        ? withEveryDay(sums, selection, await clocks.timeOf(pool, appId, now()))
        : grouping === 'user' && sums.length === 0 && user
          ? [{ ...zeroRow, userId: user.id, externalUserId: user.externalUserId }]
          : sums
    const terms = { cutBasisPoints: await platformCut(appId), includeRetail }
    return {
      grouping,
      events: stored.events,
      ...charged(grouping === 'daily_pipeline' ? byDate(rows) : rows, terms),
    }
  }

  return { query, queryOwn }
}

export type Usage = ReturnType<typeof createUsage>

interface ParsedQuery {
  readonly range: ReturnType<typeof parseDates>
  readonly grouping: Grouping
  readonly requestId: string | null
  readonly includeRetail: boolean
}

const parse = (query: UsageQuery): ParsedQuery => ({
  range: parseDates(query),
  grouping: parseGrouping(query.groupBy),
  requestId: parseRequestId(query.gatewayRequestId),
  includeRetail: query.includeRetail,
})

function parseGrouping(text: string | undefined): Grouping {
  const grouping = groupings.find((known) => known === (text ?? 'none'))
  if (grouping === undefined)
    throw new DomainError('REQUEST_INVALID', `groupBy must be one of ${groupings.join(', ')}`)
  return grouping
}

function parseRequestId(text: string | undefined): string | null {
  if (text === '') throw new DomainError('REQUEST_INVALID', 'gatewayRequestId must not be empty')
  return text ?? null
}

function withEveryDay(rows: readonly UsageRow[], { range }: Selection, now: Date): UsageRow[] {
  const byDay = new Map(rows.map((row) => [row.day, row]))
  const used = rows.flatMap(({ day }) => (day === null ? [] : [day]))
  return listDays(range, used, now).map((day) => byDay.get(day) ?? { ...zeroRow, day })
}

const zeroRow: UsageRow = {
  rest: false,
  userId: null,
  externalUserId: null,
  pipeline: null,
  modelId: null,
  manifestId: null,
  sessionId: null,
  day: null,
  requests: 0n,
  unpriced: 0n,
  fee: wei(0n),
  cost: usdAttos(0n),
  retail: usdAttos(0n),
  platformFee: usdAttos(0n),
  platformWei: wei(0n),
  billableSecs: '0',
  firstAt: null,
  lastAt: null,
}

const isUnknown = (row: UsageRow): boolean =>
  !row.rest && row.sessionId === null && row.userId !== null && row.externalUserId === null

/** Merges the usage of deleted users into one row without a user (docs/usage.md). */
function mergeUnknown(rows: readonly UsageRow[]): UsageRow[] {
  const unknown = rows.filter(isUnknown)
  if (unknown.length === 0) return [...rows]
  const merged = unknown.reduce((all, row): UsageRow => ({ ...all, ...addSums(all, row) }), zeroRow)
  return [...rows.filter((row) => !isUnknown(row)), merged].sort(
    (a, b) => Number(a.rest) - Number(b.rest),
  )
}

const byDate = (rows: readonly UsageRow[]): UsageRow[] =>
  rows.toSorted(
    (a, b) =>
      Number(a.rest) - Number(b.rest) ||
      order(a.day, b.day) ||
      order(a.pipeline, b.pipeline) ||
      order(a.modelId, b.modelId),
  )

const order = (a: string | null, b: string | null): number =>
  (a ?? '') < (b ?? '') ? -1 : (a ?? '') > (b ?? '') ? 1 : 0
