import { DomainError } from '../../proto/errors.ts'
import { type Clocks, realTime } from '../shared/clocks/clocks.ts'
import type { AppId } from '../shared/ids.ts'
import { usdAttos, wei } from '../lib/money.ts'
import { type Dates, parseDates } from '../lib/time.ts'
import { type Read, readPrimary } from '../shared/database/replica.ts'
import type { Shared } from '../shared/shared.ts'
import { requestEvents } from './history/store.ts'
import { charged } from './pricing.ts'
import { type TimedGrouping, hasTimes, listTimes } from './range.ts'
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
  /** Only tickets of this pipeline, and of this model. */
  readonly pipeline?: string | undefined
  readonly modelId?: string | undefined
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
  async function query(appId: AppId, query: UsageQuery, onlyUser?: string): Promise<UsageReport> {
    const parsed = parse(query)
    if (parsed.grouping === 'daily_pipeline' && onlyUser === undefined) {
      throw new DomainError('REQUEST_INVALID', 'userId is required when groupBy=daily_pipeline')
    }
    return report(appId, onlyUser === undefined ? null : await findUser(appId, onlyUser), parsed)
  }

  /** Returns one user's usage. */
  const queryOwn = async (
    user: { appId: AppId } & KnownUser,
    query: UsageQuery,
  ): Promise<UsageReport> => report(user.appId, user, parse(query))

  async function report(
    appId: AppId,
    user: KnownUser | null,
    { grouping, includeRetail, ...selected }: ParsedQuery,
  ): Promise<UsageReport> {
    const { range, requestId } = selected
    const selection: Selection = { ...selected, appId, userId: user?.id ?? null }
    // Refuses a range with too many rows before it is read.
    const at = hasTimes(grouping) ? await clocks.timeOf(pool, appId, now()) : now()
    if (range.start && hasTimes(grouping)) listTimes(grouping, range, { used: [], now: at })
    const stored = await read(async (from) => ({
      sums: await store.sums(from, selection, { grouping, limit: maxRows }),
      events:
        requestId === null
          ? []
          : await store.inRequest(from, (db) => requestEvents(db, selection, maxEvents)),
    }))
    const sums = mergeUnknown(stored.sums)
    const rows = hasTimes(grouping)
      ? inTime(grouping, sums, { range, now: at })
      : grouping === 'user' && sums.length === 0 && user
        ? [{ ...zeroRow, userId: user.id, externalUserId: user.externalUserId }]
        : grouping === 'daily_pipeline'
          ? byTime(sums)
          : sums
    const terms = { cutBasisPoints: await platformCut(appId), includeRetail }
    return { grouping, events: stored.events, ...charged(rows, terms) }
  }

  return { query, queryOwn }
}

export type Usage = ReturnType<typeof createUsage>

interface ParsedQuery {
  readonly range: ReturnType<typeof parseDates>
  readonly grouping: Grouping
  readonly requestId: string | null
  readonly includeRetail: boolean
  readonly pipeline: string | undefined
  readonly modelId: string | undefined
}

function parse(query: UsageQuery): ParsedQuery {
  const { pipeline, modelId, includeRetail } = query
  const range = parseDates(query)
  const grouping = parseGrouping(query.groupBy)
  // A session's sums have all of its models.
  if ((pipeline ?? modelId) !== undefined && (grouping === 'session' || grouping === 'manifest'))
    throw new DomainError(
      'REQUEST_INVALID',
      `pipeline and modelId do not select rows of groupBy=${grouping}`,
    )
  const requestId = parseRequestId(query.gatewayRequestId)
  return { range, grouping, requestId, includeRetail, pipeline, modelId }
}

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

/** Sorts rows of a grouping by time, and adds days or hours without usage. */
function inTime(
  grouping: TimedGrouping,
  rows: readonly UsageRow[],
  { range, now }: { range: Selection['range']; now: Date },
): UsageRow[] {
  const used = new Map(rows.map((row) => [row.day ?? row.hour ?? '', row]))
  used.delete('')
  const times = listTimes(grouping, range, { used: [...used.keys()], now })
  if (grouping === 'day') return times.map((day) => used.get(day) ?? { ...zeroRow, day })
  if (grouping === 'hour') return times.map((hour) => used.get(hour) ?? { ...zeroRow, hour })
  return byTime(rows)
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
  hour: null,
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

const byTime = (rows: readonly UsageRow[]): UsageRow[] =>
  rows.toSorted(
    (a, b) =>
      Number(a.rest) - Number(b.rest) ||
      order(a.day ?? a.hour, b.day ?? b.hour) ||
      Number(a.pipeline === null) - Number(b.pipeline === null) ||
      order(a.pipeline, b.pipeline) ||
      order(a.modelId, b.modelId),
  )

const order = (a: string | null, b: string | null): number =>
  (a ?? '') < (b ?? '') ? -1 : (a ?? '') > (b ?? '') ? 1 : 0
