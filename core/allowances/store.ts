import { type AppId, type UserId, appId, userId } from '../platform/ids.ts'
import { usdAttos } from '../lib/money.ts'
import { plainArray } from '../lib/arrays.ts'
import { type Db, many, prepared, sql } from '../lib/sql.ts'
import type { BillingCycle } from '../plans/period.ts'
import { burnOrder } from './account.ts'
import { insertEntries } from './entry-store.ts'
import { type Account, type Grant, type GrantSource, grantSources } from './types.ts'

interface UserKey {
  readonly appId: AppId
  readonly userId: UserId
}

interface BalanceRow {
  app_id: string
  user_id: string
  seq: bigint
  balance_attos: string
  granted_attos: string
  topup_attos: string
  consumed_attos: string
  overage_attos: string
  expired_attos: string
  period_start_ms: number
  period_end_ms: number
  period_counts_from_ms: number
  period_consumed_attos: string
}

interface GrantRow {
  user_id: string
  id: string
  kind: Grant['kind']
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

// Times are read as milliseconds: the driver takes four times as long for a timestamp's text, and a batch reads thousands.
const dateOrNull = (ms: number | null): Date | null => (ms === null ? null : new Date(ms))

const attos = (text: string) => usdAttos(BigInt(text))

function sourceOf(text: string): GrantSource {
  const source = grantSources.find((known) => known === text)
  if (!source) throw new Error(`unknown grant source ${text}`)
  return source
}

const grantFromRow = (row: GrantRow): Grant => ({
  id: row.id,
  kind: row.kind,
  source: sourceOf(row.source),
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

const accountFromRow = (row: BalanceRow, grants: Grant[]): Account => ({
  appId: appId(row.app_id),
  userId: userId(row.user_id),
  seq: row.seq,
  balance: attos(row.balance_attos),
  granted: attos(row.granted_attos),
  topup: attos(row.topup_attos),
  consumed: attos(row.consumed_attos),
  overage: attos(row.overage_attos),
  expired: attos(row.expired_attos),
  periodStart: new Date(row.period_start_ms),
  periodEnd: new Date(row.period_end_ms),
  periodCountsFrom: new Date(row.period_counts_from_ms),
  periodConsumed: attos(row.period_consumed_attos),
  grants: grants.sort(burnOrder),
  entries: [],
})

function toAccounts(balances: readonly BalanceRow[], grantRows: readonly GrantRow[]): Account[] {
  const byUser = Map.groupBy(grantRows, (row) => row.user_id)
  return balances.map((row) =>
    accountFromRow(row, (byUser.get(row.user_id) ?? []).map(grantFromRow)),
  )
}

/** Reads accounts and locks them until the transaction ends, always in the order of user ids: no deadlock. */
export async function lockAccounts(db: Db, users: readonly UserKey[]): Promise<Account[]> {
  const apps = users.map((user) => user.appId)
  const ids = users.map((user) => user.userId)
  const balances = await many<BalanceRow>(
    db,
    sql`
    select b.app_id, b.user_id, b.seq, b.balance_attos, b.granted_attos, b.topup_attos, b.consumed_attos,
           b.overage_attos, b.expired_attos, (extract(epoch from b.period_start) * 1000)::float8 as period_start_ms,
           (extract(epoch from b.period_end) * 1000)::float8 as period_end_ms,
           (extract(epoch from b.period_counts_from) * 1000)::float8 as period_counts_from_ms, b.period_consumed_attos
    from balances b
    join unnest(${plainArray(apps)}::uuid[], ${plainArray(ids)}::uuid[]) as wanted (app_id, user_id)
      on b.app_id = wanted.app_id and b.user_id = wanted.user_id
    order by b.user_id
    for no key update of b`,
  )
  return toAccounts(balances, await openGrants(db, users))
}

interface JoinedRow extends BalanceRow, Omit<GrantRow, 'id'> {
  id: string | null
}
const hasGrant = (row: JoinedRow): row is BalanceRow & GrantRow => row.id !== null

/** Reads accounts without a lock, in one statement so that the figures of each belong together; none for a user without. */
export async function readAccounts(db: Db, users: readonly UserKey[]): Promise<Account[]> {
  const rows = await many<JoinedRow>(
    db,
    prepared(
      'accounts',
      sql`
    select b.app_id, b.user_id, b.seq, b.balance_attos, b.granted_attos, b.topup_attos, b.consumed_attos,
           b.overage_attos, b.expired_attos, (extract(epoch from b.period_start) * 1000)::float8 as period_start_ms,
           (extract(epoch from b.period_end) * 1000)::float8 as period_end_ms,
           (extract(epoch from b.period_counts_from) * 1000)::float8 as period_counts_from_ms, b.period_consumed_attos,
           g.id, g.kind, g.source, g.feature_key, g.amount_attos, g.remaining_attos, g.priority,
           (extract(epoch from g.effective_at) * 1000)::float8 as effective_ms,
           (extract(epoch from g.expires_at) * 1000)::float8 as expires_ms,
           (extract(epoch from g.expired_at) * 1000)::float8 as expired_ms,
           (extract(epoch from g.created_at) * 1000)::float8 as created_ms
    from unnest(${users.map((user) => user.appId)}::uuid[], ${users.map((user) => user.userId)}::uuid[])
      as wanted (app_id, user_id)
    join balances b on b.app_id = wanted.app_id and b.user_id = wanted.user_id
    left join grants g on g.app_id = b.app_id and g.user_id = b.user_id and g.expired_at is null`,
    ),
  )
  const heads = new Map(rows.map((row) => [row.user_id, row]))
  return toAccounts([...heads.values()], rows.filter(hasGrant))
}

async function openGrants(db: Db, users: readonly UserKey[]): Promise<GrantRow[]> {
  return many<GrantRow>(
    db,
    sql`
    select g.user_id, g.id, g.kind, g.source, g.feature_key, g.amount_attos, g.remaining_attos, g.priority,
           (extract(epoch from g.effective_at) * 1000)::float8 as effective_ms,
           (extract(epoch from g.expires_at) * 1000)::float8 as expires_ms,
           (extract(epoch from g.expired_at) * 1000)::float8 as expired_ms,
           (extract(epoch from g.created_at) * 1000)::float8 as created_ms
    from unnest(${plainArray(users.map((user) => user.appId))}::uuid[], ${plainArray(users.map((user) => user.userId))}::uuid[])
      as wanted (app_id, user_id)
    join grants g on g.app_id = wanted.app_id and g.user_id = wanted.user_id
    where g.expired_at is null`,
  )
}

export async function insertBalance(
  db: Db,
  user: UserKey & { start: Date; end: Date; at: Date },
): Promise<void> {
  await db.query(sql`
    insert into balances (app_id, user_id, period_start, period_end, period_counts_from, updated_at)
    values (${user.appId}, ${user.userId}, ${user.start}, ${user.end}, ${user.start}, ${user.at})
    on conflict do nothing`)
}

/** Writes what changed in locked accounts: a fixed number of statements, however many accounts. */
export async function saveAccounts(db: Db, accounts: readonly Account[], at: Date): Promise<void> {
  const touched = accounts.filter((account) => account.entries.length > 0)
  await insertGrants(db, accounts)
  await updateGrants(db, accounts)
  if (touched.length > 0) await insertEntries(db, touched)
  await updateBalances(db, accounts, at)
}

const withGrants = (accounts: readonly Account[], state: Grant['state']) =>
  accounts.flatMap((account) =>
    account.grants.filter((grant) => grant.state === state).map((grant) => ({ account, grant })),
  )

async function insertGrants(db: Db, accounts: readonly Account[]): Promise<void> {
  const rows = withGrants(accounts, 'new')
  if (rows.length === 0) return
  const column = <T>(value: (row: { account: Account; grant: Grant }) => T): T[] => rows.map(value)
  await db.query(sql`
    insert into grants (app_id, user_id, id, kind, source, feature_key, amount_attos, remaining_attos, priority,
                        effective_at, expires_at, created_at)
    select * from unnest(
      ${column((row) => row.account.appId)}::uuid[], ${column((row) => row.account.userId)}::uuid[],
      ${column((row) => row.grant.id)}::uuid[], ${column((row) => row.grant.kind)}::text[],
      ${column((row) => row.grant.source)}::text[], ${column((row) => row.grant.featureKey)}::text[],
      ${column((row) => row.grant.amount)}::numeric[], ${column((row) => row.grant.remaining)}::numeric[],
      ${column((row) => row.grant.priority)}::smallint[], ${column((row) => row.grant.effectiveAt)}::timestamptz[],
      ${column((row) => row.grant.expiresAt)}::timestamptz[], ${column((row) => row.grant.createdAt)}::timestamptz[])`)
}

const iso = (instant: Date | null): string | null => instant && instant.toISOString()

async function updateGrants(db: Db, accounts: readonly Account[]): Promise<void> {
  const rows = withGrants(accounts, 'changed')
  if (rows.length === 0) return
  await db.query(sql`
    update grants g
    set remaining_attos = changed.remaining_attos, expired_at = changed.expired_at
    from unnest(
      ${plainArray(rows.map((row) => row.account.appId))}::uuid[], ${plainArray(rows.map((row) => row.account.userId))}::uuid[],
      ${plainArray(rows.map((row) => row.grant.id))}::uuid[], ${plainArray(rows.map((row) => row.grant.remaining))}::numeric[],
      ${plainArray(rows.map((row) => iso(row.grant.expiredAt)))}::timestamptz[])
      as changed (app_id, user_id, id, remaining_attos, expired_at)
    where g.app_id = changed.app_id and g.user_id = changed.user_id and g.id = changed.id`)
}

async function updateBalances(db: Db, accounts: readonly Account[], at: Date): Promise<void> {
  const column = <T>(value: (account: Account) => T): T[] => accounts.map(value)
  await db.query(sql`
    update balances b
    set seq = head.seq, balance_attos = head.balance, granted_attos = head.granted, topup_attos = head.topup,
        consumed_attos = head.consumed, overage_attos = head.overage, expired_attos = head.expired,
        period_start = head.period_start, period_end = head.period_end,
        period_counts_from = head.period_counts_from, period_consumed_attos = head.period_consumed,
        updated_at = ${at}
    from unnest(
      ${plainArray(column((a) => a.appId))}::uuid[], ${plainArray(column((a) => a.userId))}::uuid[], ${plainArray(column((a) => a.seq))}::bigint[],
      ${plainArray(column((a) => a.balance))}::numeric[], ${plainArray(column((a) => a.granted))}::numeric[],
      ${plainArray(column((a) => a.topup))}::numeric[], ${plainArray(column((a) => a.consumed))}::numeric[],
      ${plainArray(column((a) => a.overage))}::numeric[], ${plainArray(column((a) => a.expired))}::numeric[],
      ${plainArray(column((a) => iso(a.periodStart)))}::timestamptz[], ${plainArray(column((a) => iso(a.periodEnd)))}::timestamptz[],
      ${plainArray(column((a) => iso(a.periodCountsFrom)))}::timestamptz[], ${plainArray(column((a) => a.periodConsumed))}::numeric[])
      as head (app_id, user_id, seq, balance, granted, topup, consumed, overage, expired, period_start, period_end,
               period_counts_from, period_consumed)
    where b.app_id = head.app_id and b.user_id = head.user_id`)
}

export interface Terms {
  readonly userId: UserId
  readonly anchorAt: Date
  readonly cycle: BillingCycle
  readonly includedAttos: bigint
}

/** What each user's subscription includes now: the newest version of its plan. */
export async function currentTerms(db: Db, users: readonly UserKey[]): Promise<Terms[]> {
  const rows = await many<{
    user_id: string
    anchor_at: Date
    billing_cycle: BillingCycle
    included_attos: string
  }>(
    db,
    sql`
    select s.user_id, s.anchor_at, p.billing_cycle, v.included_attos
    from unnest(${users.map((user) => user.appId)}::uuid[], ${users.map((user) => user.userId)}::uuid[])
      as wanted (app_id, user_id)
    join subscriptions s on s.app_id = wanted.app_id and s.user_id = wanted.user_id
    join plans p on p.app_id = s.app_id and p.id = s.plan_id
    join lateral (
      select included_attos from plan_versions
      where app_id = p.app_id and plan_id = p.id
      order by version desc
      limit 1) v on true`,
  )
  return rows.map((row) => ({
    userId: userId(row.user_id),
    anchorAt: row.anchor_at,
    cycle: row.billing_cycle,
    includedAttos: BigInt(row.included_attos),
  }))
}

/** Users with a grant whose time has passed and is not booked yet, oldest first. */
export async function usersToExpire(db: Db, at: Date, limit: number): Promise<UserKey[]> {
  const rows = await many<{ app_id: string; user_id: string }>(
    db,
    sql`
    select app_id, user_id
    from grants
    where expired_at is null and expires_at <= ${at}
    order by expires_at
    limit ${limit}`,
  )
  return rows.map((row) => ({ appId: appId(row.app_id), userId: userId(row.user_id) }))
}
