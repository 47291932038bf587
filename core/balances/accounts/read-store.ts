import { uuids } from '../../lib/copy-sql.ts'
import { usdAttos } from '../../lib/money.ts'
import { type Db, many, prepared, sql } from '../../lib/sql.ts'
import { inAppGroups, lockInApps } from '../../shared/database/app-groups.ts'
import { type AppId, type UserId, type UserKey, appId, userId } from '../../shared/ids.ts'
import type { Account } from './account.ts'
import type { Collecting } from './credit-line.ts'
import {
  type Credit,
  type CreditKey,
  type CreditSource,
  burnOrder,
  creditSources,
} from './credits.ts'

/** Reads and locks accounts. `store.ts` writes them. */

interface BalanceRow {
  app_id: string
  user_id: string
  seq: bigint
  balance_attos: string
  granted_attos: string
  topup_attos: string
  consumed_attos: string
  overage_attos: string
  collected_attos: string
  ceiling_attos: string
  lacks_card: boolean
  invoiced_attos: string
  collects_by: Collecting['by'] | null
  collect_step_attos: string | null
  expired_attos: string
  period_start_ms: number
  period_end_ms: number
  period_counts_from_ms: number
  period_consumed_attos: string
  lent_attos: string
  pending_attos: string
  booked_through_ms: number
  head_hash: string | null
  lend_after_ms: number | null
  late_until_ms: number | null
}

export interface CreditRow {
  user_id: string
  id: string
  kind: Credit['kind']
  source: string
  feature_key: string | null
  amount_attos: string
  remaining_attos: string
  priority: number
  effective_ms: number
  expires_ms: number | null
  expired_ms: number | null
  created_ms: number
}

// Reads instants as milliseconds, because the driver takes four times as long to parse a timestamp,
// and a batch reads thousands.
const dateOrNull = (ms: number | null): Date | null => (ms === null ? null : new Date(ms))

export const attos = (text: string) => usdAttos(BigInt(text))

function sourceOf(text: string): CreditSource {
  const source = creditSources.find((known) => known === text)
  if (!source) throw new Error(`unknown credit source ${text}`)
  return source
}

export const creditFromRow = (row: CreditRow): Credit => toCredit(row, sourceOf(row.source))

const toCredit = (row: CreditRow, source: CreditSource): Credit => ({
  id: row.id,
  kind: row.kind,
  source,
  featureKey: row.feature_key,
  amount: attos(row.amount_attos),
  remaining: attos(row.remaining_attos),
  priority: row.priority,
  effectiveAt: new Date(row.effective_ms),
  expiresAt: dateOrNull(row.expires_ms),
  expiredAt: dateOrNull(row.expired_ms),
  createdAt: new Date(row.created_ms),
  state: 'stored',
})

/**
 * Returns credits by their users, as they were given, without their remaining amounts. Name each
 * credit once. Does not check them: `verify` reports a source that does not exist, and goes on.
 */
export async function readCredits(
  db: Db,
  keys: readonly CreditKey[],
): Promise<ReadonlyMap<UserId, Credit[]>> {
  if (keys.length === 0) return new Map()
  const rows = await many<CreditRow & { readonly source: CreditSource }>(
    db,
    sql`
    select g.user_id, g.id, g.kind, g.source, g.feature_key, g.amount_attos, 0 as remaining_attos, g.priority,
           (extract(epoch from g.effective_at) * 1000)::float8 as effective_ms,
           (extract(epoch from g.expires_at) * 1000)::float8 as expires_ms, null as expired_ms,
           (extract(epoch from g.created_at) * 1000)::float8 as created_ms
    from unnest(${keys.map((key) => key.appId)}::uuid[], ${keys.map((key) => key.userId)}::uuid[],
                ${keys.map((key) => key.creditId)}::uuid[]) as w (app_id, user_id, id)
    cross join lateral (select * from grants where app_id = w.app_id and user_id = w.user_id and id = w.id) g`,
  )
  const byUser = Map.groupBy(rows, (row) => userId(row.user_id))
  return new Map(
    [...byUser].map(([user, own]) => [user, own.map((row) => toCredit(row, row.source))]),
  )
}

const accountFromRow = (row: BalanceRow, credits: Credit[]): Account => ({
  appId: appId(row.app_id),
  userId: userId(row.user_id),
  aheadMs: 0,
  seq: row.seq,
  balance: attos(row.balance_attos),
  granted: attos(row.granted_attos),
  topup: attos(row.topup_attos),
  consumed: attos(row.consumed_attos),
  overage: attos(row.overage_attos),
  collected: attos(row.collected_attos),
  ceiling: attos(row.ceiling_attos),
  lacksCard: row.lacks_card,
  invoiced: attos(row.invoiced_attos),
  collecting:
    row.collects_by === null || row.collect_step_attos === null
      ? null
      : { by: row.collects_by, step: attos(row.collect_step_attos) },
  expired: attos(row.expired_attos),
  periodStart: new Date(row.period_start_ms),
  periodEnd: new Date(row.period_end_ms),
  periodCountsFrom: new Date(row.period_counts_from_ms),
  periodConsumed: attos(row.period_consumed_attos),
  lent: attos(row.lent_attos),
  pending: attos(row.pending_attos),
  lendAfter: dateOrNull(row.lend_after_ms),
  lateUntil: dateOrNull(row.late_until_ms),
  bookedThrough: new Date(row.booked_through_ms),
  head: row.head_hash,
  credits: credits.sort(burnOrder),
  entries: [],
  periods: [],
})

function toAccounts(balances: readonly BalanceRow[], creditRows: readonly CreditRow[]): Account[] {
  const byUser = Map.groupBy(creditRows, (row) => row.user_id)
  return balances.map((row) =>
    accountFromRow(row, (byUser.get(row.user_id) ?? []).map(creditFromRow)),
  )
}

/**
 * Reads accounts and locks them until the transaction ends, in user id order so that two callers
 * cannot deadlock. Looks up each row by itself (`lateral`), because a prepared join that was
 * planned for a small table keeps its full scan while the table grows.
 */
export async function lockAccounts(db: Db, users: readonly UserKey[]): Promise<Account[]> {
  const balances = await inAppGroups(db, users, (group, app) => lockBalances(db, group, app))
  return toAccounts([...balances], await openCredits(db, users))
}

function lockBalances(db: Db, users: readonly UserKey[], app: AppId | null): Promise<BalanceRow[]> {
  const apps = users.map((user) => user.appId)
  const ids = users.map((user) => user.userId)
  return many<BalanceRow>(
    db,
    prepared('lock-accounts')`
    select b.*
    from (
      select app_id, user_id
      from unnest(${uuids(apps)}::uuid[], ${uuids(ids)}::uuid[]) as u (app_id, user_id)
      order by user_id) w
    cross join lateral (
      select app_id, user_id, seq, balance_attos, granted_attos, topup_attos, consumed_attos, overage_attos, expired_attos,
             collected_attos, ceiling_attos, lacks_card, invoiced_attos, collects_by, collect_step_attos,
             (extract(epoch from period_start) * 1000)::float8 as period_start_ms,
             (extract(epoch from period_end) * 1000)::float8 as period_end_ms,
             (extract(epoch from period_counts_from) * 1000)::float8 as period_counts_from_ms, period_consumed_attos,
             lent_attos, pending_attos, (extract(epoch from lend_after) * 1000)::float8 as lend_after_ms,
             (extract(epoch from late_until) * 1000)::float8 as late_until_ms,
             (extract(epoch from booked_through) * 1000)::float8 as booked_through_ms,
             encode(head_hash, 'hex') as head_hash
      from balances
      where app_id = w.app_id and user_id = w.user_id and (${app}::uuid is null or app_id = ${app})
      for no key update) b`,
  )
}

interface JoinedRow extends BalanceRow, Omit<CreditRow, 'id'> {
  id: string | null
}
const hasCredit = (row: JoinedRow): row is BalanceRow & CreditRow => row.id !== null

/**
 * Reads accounts without a lock, in one statement so that the figures of an account agree. Omits
 * users without an account.
 */
export async function readAccounts(db: Db, users: readonly UserKey[]): Promise<Account[]> {
  const rows = await many<JoinedRow>(
    db,
    prepared('accounts')`
    select b.app_id, b.user_id, b.seq, b.balance_attos, b.granted_attos, b.topup_attos, b.consumed_attos,
           b.overage_attos, b.collected_attos, b.ceiling_attos, b.lacks_card, b.invoiced_attos, b.collects_by,
           b.collect_step_attos, b.expired_attos, (extract(epoch from b.period_start) * 1000)::float8 as period_start_ms,
           (extract(epoch from b.period_end) * 1000)::float8 as period_end_ms,
           (extract(epoch from b.period_counts_from) * 1000)::float8 as period_counts_from_ms, b.period_consumed_attos,
           b.lent_attos, b.pending_attos, (extract(epoch from b.lend_after) * 1000)::float8 as lend_after_ms,
           (extract(epoch from b.late_until) * 1000)::float8 as late_until_ms,
           (extract(epoch from b.booked_through) * 1000)::float8 as booked_through_ms,
           encode(b.head_hash, 'hex') as head_hash, g.id, g.kind, g.source, g.feature_key, g.amount_attos, g.remaining_attos, g.priority,
           (extract(epoch from g.effective_at) * 1000)::float8 as effective_ms,
           (extract(epoch from g.expires_at) * 1000)::float8 as expires_ms,
           (extract(epoch from g.expired_at) * 1000)::float8 as expired_ms,
           (extract(epoch from g.created_at) * 1000)::float8 as created_ms
    from unnest(${users.map((user) => user.appId)}::uuid[], ${users.map((user) => user.userId)}::uuid[])
      as w (app_id, user_id)
    join balances b on b.app_id = w.app_id and b.user_id = w.user_id
    left join grants g on g.app_id = b.app_id and g.user_id = b.user_id and g.expired_at is null`,
  )
  const heads = new Map(rows.map((row) => [row.user_id, row]))
  return toAccounts([...heads.values()], rows.filter(hasCredit))
}

const openCredits = (db: Db, users: readonly UserKey[]): Promise<readonly CreditRow[]> =>
  inAppGroups(db, users, (group, app) =>
    many<CreditRow>(
      db,
      prepared('open-credits')`
    select g.user_id, g.id, g.kind, g.source, g.feature_key, g.amount_attos, g.remaining_attos, g.priority,
           (extract(epoch from g.effective_at) * 1000)::float8 as effective_ms,
           (extract(epoch from g.expires_at) * 1000)::float8 as expires_ms,
           (extract(epoch from g.expired_at) * 1000)::float8 as expired_ms,
           (extract(epoch from g.created_at) * 1000)::float8 as created_ms
    from unnest(${uuids(group.map((user) => user.appId))}::uuid[], ${uuids(group.map((user) => user.userId))}::uuid[])
      as w (app_id, user_id)
    cross join lateral (
      select user_id, id, kind, source, feature_key, amount_attos, remaining_attos, priority, effective_at, expires_at,
             expired_at, created_at
      from grants
      where app_id = w.app_id and user_id = w.user_id and expired_at is null
        and (${app}::uuid is null or app_id = ${app})
      offset 0) g`,
    ),
  )

export interface DueUsers {
  /** Null means all apps. */
  readonly app: AppId | null
  readonly limit: number
}

/**
 * Returns users with an ended credit that has no expiry entry yet, the oldest first. Omits users
 * with held money, which may still need the credit.
 */
export async function usersToExpire(
  db: Db,
  at: Date,
  { app, limit }: DueUsers,
): Promise<UserKey[]> {
  const rows = await many<{ app_id: string; user_id: string }>(
    db,
    sql`
    select g.app_id, g.user_id
    from grants g
    join balances b on b.app_id = g.app_id and b.user_id = g.user_id and b.lent_attos = 0 and b.pending_attos = 0
    where g.expired_at is null and g.expires_at <= ${at} and (${app}::uuid is null or g.app_id = ${app})
    order by g.expires_at
    limit ${limit}`,
  )
  return rows.map((row) => ({ appId: appId(row.app_id), userId: userId(row.user_id) }))
}

/**
 * Locks users whose period is over, the longest ago first. Skips users without a subscription and
 * users that another transaction has locked (`skip locked`).
 */
export async function lockDue(db: Db, at: Date, { app, limit }: DueUsers): Promise<UserKey[]> {
  const rows = await lockInApps(db, {
    app,
    limit,
    findApps: () => listDueApps(db, at, limit),
    lock: (each, most) => lockDueUsers(db, at, { app: each, limit: most }),
  })
  return rows.map((row) => ({ appId: appId(row.app_id), userId: userId(row.user_id) }))
}

async function listDueApps(db: Db, at: Date, limit: number): Promise<AppId[]> {
  const rows = await many<{ app_id: string }>(
    db,
    sql`
    select distinct app_id
    from (select app_id from balances where period_end <= ${at} order by period_end limit ${limit}) due`,
  )
  return rows.map((row) => appId(row.app_id))
}

const lockDueUsers = (
  db: Db,
  at: Date,
  { app, limit }: DueUsers,
): Promise<{ app_id: string; user_id: string }[]> =>
  many<{ app_id: string; user_id: string }>(
    db,
    sql`
    select app_id, user_id
    from balances
    where period_end <= ${at} and (${app}::uuid is null or app_id = ${app})
      -- One whose slot was lost gets it back at the next door, and holds up nobody here.
      and exists (
        select
        from subscriptions
        where subscriptions.app_id = balances.app_id and subscriptions.user_id = balances.user_id)
    order by period_end
    limit ${limit}
    for no key update skip locked`,
  )
