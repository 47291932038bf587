import { DomainError } from '../../proto/errors.ts'
import { type AppId, type UserId, isUuid, subjectProblem, userId as asUserId } from '../ids.ts'
import { microsThatAddUp, usdAttos, usdMicros, wei } from '../lib/money.ts'
import type { Pool } from '../lib/sql.ts'
import { parseInstant, parseUtcDay } from '../lib/time.ts'
import * as store from './store.ts'
import { type Grouping, type Range, type Shown, type Sums, type UsageReport, type UserSums, groupings } from './types.ts'

interface KnownUser { readonly id: UserId; readonly externalUserId: string }

export interface UsageDeps {
  readonly pool: Pool
  readonly users: {
    findById(app: AppId, id: UserId): Promise<KnownUser | null>
    /** Throws NOT_FOUND. */
    get(app: AppId, externalUserId: string): Promise<KnownUser>
  }
}

export interface UsageQuery {
  readonly startDate: string | undefined
  readonly endDate: string | undefined
  readonly groupBy: string | undefined
}

const maxRows = 10_000

/** Sums over metered tickets. Rows that are shown beside a total add up to it, to the micro. */
export function createUsage({ pool, users }: UsageDeps) {
  /** REQUEST_INVALID for a date, range or grouping that is not understood; NOT_FOUND for an unknown user. */
  async function query(appId: AppId, query: UsageQuery, of?: string): Promise<UsageReport> {
    const range = parseRange(query)
    const grouping = parseGrouping(query.groupBy)
    const user = of === undefined ? null : await findUser(appId, of)
    return report({ appId, userId: user?.id ?? null, range }, grouping, user)
  }

  /** Usage of one user. */
  async function queryOwn(user: { appId: AppId } & KnownUser, query: UsageQuery): Promise<UsageReport> {
    const range = parseRange(query)
    return report({ appId: user.appId, userId: user.id, range }, parseGrouping(query.groupBy), user)
  }

  async function findUser(appId: AppId, of: string): Promise<KnownUser> {
    const lower = of.toLowerCase()
    const byId = isUuid(lower) ? await users.findById(appId, asUserId(lower)) : null
    if (byId) return byId
    if (subjectProblem(of) !== null) throw new DomainError('NOT_FOUND', 'no such user')
    return users.get(appId, of)
  }

  async function report(selection: store.Selection, grouping: Grouping, user: KnownUser | null): Promise<UsageReport> {
    if (grouping === 'user') {
      const rows = await store.sumByUser(pool, selection, maxRows)
      const byUser = shown(rows.length === 0 && user ? [zeroRow(user)] : rows)
      return { totals: total(byUser), byUser, byPipelineModel: [] }
    }
    if (grouping === 'pipeline_model') {
      const byPipelineModel = shown(await store.sumByPipelineModel(pool, selection, maxRows))
      return { totals: total(byPipelineModel), byUser: [], byPipelineModel }
    }
    return { totals: total(shown([await store.sumAll(pool, selection)])), byUser: [], byPipelineModel: [] }
  }

  /** Tickets of a user that wait for a rate. */
  const countUnpriced = (app: AppId, user: UserId): Promise<bigint> => store.countUnpriced(pool, app, user)

  return { query, queryOwn, countUnpriced }
}

export type Usage = ReturnType<typeof createUsage>

const zeroRow = (user: KnownUser): UserSums => ({
  userId: user.id, externalUserId: user.externalUserId, requests: 0n, unpriced: 0n, fee: wei(0n), cost: usdAttos(0n),
})

function shown<Row extends Sums>(rows: readonly Row[]): Shown<Row>[] {
  const micros = microsThatAddUp(rows.map((row) => row.cost))
  return rows.map((row, i) => ({ ...row, micros: micros[i] ?? usdMicros(0n) }))
}

function total(rows: readonly Shown<Sums>[]): Shown<Sums> {
  const sum = (value: (row: Shown<Sums>) => bigint): bigint => rows.reduce((all, row) => all + value(row), 0n)
  return {
    requests: sum((row) => row.requests), unpriced: sum((row) => row.unpriced), fee: wei(sum((row) => row.fee)),
    cost: usdAttos(sum((row) => row.cost)), micros: usdMicros(sum((row) => row.micros)),
  }
}

function parseGrouping(text: string | undefined): Grouping {
  const found = groupings.find((grouping) => grouping === (text ?? 'none'))
  if (found === undefined) throw new DomainError('REQUEST_INVALID', `groupBy must be one of ${groupings.join(', ')}`)
  return found
}

/** Both ends are meant inclusively: a day to its end, an instant to its millisecond (decisions 21 and 36). */
function parseRange({ startDate, endDate }: UsageQuery): Range {
  const start = startDate === undefined ? null : parseDate('startDate', startDate).start
  const end = endDate === undefined ? null : parseDate('endDate', endDate).end
  if (start && end && start >= end) throw new DomainError('REQUEST_INVALID', 'startDate must not be after endDate')
  return { start, end }
}

const dayMs = 86_400_000

function parseDate(name: string, text: string): { start: Date; end: Date } {
  const day = parseUtcDay(text)
  if (day) return { start: day, end: new Date(day.getTime() + dayMs) }
  const instant = parseInstant(text)
  if (!instant) throw new DomainError('REQUEST_INVALID', `${name} must be an ISO 8601 date or instant with a zone`)
  return { start: instant, end: new Date(instant.getTime() + 1) }
}
