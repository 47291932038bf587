import {
  type RowBuffer,
  copyRows,
  createRowBuffer,
  uuidBytes,
  plainArray,
} from '../lib/copy-sql.ts'
import { type UsdAttos, usdAttos } from '../lib/money.ts'
import type { BillingCycle, Period } from '../lib/time.ts'
import { type Db, many, maybeOne, one, prepared, sql } from '../lib/sql.ts'
import { type AppId, type UserId, appId, userId } from '../platform/ids.ts'
import {
  type Account,
  type Credit,
  type CreditSource,
  type Entry,
  burnOrder,
  creditSources,
} from './account.ts'

/** Writes balances, grants, ledger_entries and adjustments. */

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
  lent_attos: string
  pending_attos: string
  lend_after_ms: number | null
  late_until_ms: number | null
}

interface CreditRow {
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

// Reads instants as milliseconds: the driver takes four times as long to parse a timestamp, and a batch reads thousands.
const dateOrNull = (ms: number | null): Date | null => (ms === null ? null : new Date(ms))

const attos = (text: string) => usdAttos(BigInt(text))

function sourceOf(text: string): CreditSource {
  const source = creditSources.find((known) => known === text)
  if (!source) throw new Error(`unknown credit source ${text}`)
  return source
}

const creditFromRow = (row: CreditRow): Credit => ({
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

const accountFromRow = (row: BalanceRow, credits: Credit[]): Account => ({
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
  lent: attos(row.lent_attos),
  pending: attos(row.pending_attos),
  lendAfter: dateOrNull(row.lend_after_ms),
  lateUntil: dateOrNull(row.late_until_ms),
  credits: credits.sort(burnOrder),
  entries: [],
})

function toAccounts(balances: readonly BalanceRow[], creditRows: readonly CreditRow[]): Account[] {
  const byUser = Map.groupBy(creditRows, (row) => row.user_id)
  return balances.map((row) =>
    accountFromRow(row, (byUser.get(row.user_id) ?? []).map(creditFromRow)),
  )
}

/** Reads accounts and locks them until the transaction ends, in the order of user ids so that two callers cannot deadlock. */
export async function lockAccounts(db: Db, users: readonly UserKey[]): Promise<Account[]> {
  const apps = users.map((user) => user.appId)
  const ids = users.map((user) => user.userId)
  const balances = await many<BalanceRow>(
    db,
    sql`
    select b.app_id, b.user_id, b.seq, b.balance_attos, b.granted_attos, b.topup_attos, b.consumed_attos,
           b.overage_attos, b.expired_attos, (extract(epoch from b.period_start) * 1000)::float8 as period_start_ms,
           (extract(epoch from b.period_end) * 1000)::float8 as period_end_ms,
           (extract(epoch from b.period_counts_from) * 1000)::float8 as period_counts_from_ms, b.period_consumed_attos,
           b.lent_attos, b.pending_attos, (extract(epoch from b.lend_after) * 1000)::float8 as lend_after_ms,
           (extract(epoch from b.late_until) * 1000)::float8 as late_until_ms
    from balances b
    join unnest(${plainArray(apps)}::uuid[], ${plainArray(ids)}::uuid[]) as w (app_id, user_id)
      on b.app_id = w.app_id and b.user_id = w.user_id
    order by b.user_id
    for no key update of b`,
  )
  return toAccounts(balances, await openCredits(db, users))
}

interface JoinedRow extends BalanceRow, Omit<CreditRow, 'id'> {
  id: string | null
}
const hasCredit = (row: JoinedRow): row is BalanceRow & CreditRow => row.id !== null

/** Reads accounts without a lock, in one statement so that the figures of each agree. Leaves out users without an account. */
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
           b.lent_attos, b.pending_attos, (extract(epoch from b.lend_after) * 1000)::float8 as lend_after_ms,
           (extract(epoch from b.late_until) * 1000)::float8 as late_until_ms,
           g.id, g.kind, g.source, g.feature_key, g.amount_attos, g.remaining_attos, g.priority,
           (extract(epoch from g.effective_at) * 1000)::float8 as effective_ms,
           (extract(epoch from g.expires_at) * 1000)::float8 as expires_ms,
           (extract(epoch from g.expired_at) * 1000)::float8 as expired_ms,
           (extract(epoch from g.created_at) * 1000)::float8 as created_ms
    from unnest(${users.map((user) => user.appId)}::uuid[], ${users.map((user) => user.userId)}::uuid[])
      as w (app_id, user_id)
    join balances b on b.app_id = w.app_id and b.user_id = w.user_id
    left join grants g on g.app_id = b.app_id and g.user_id = b.user_id and g.expired_at is null`,
    ),
  )
  const heads = new Map(rows.map((row) => [row.user_id, row]))
  return toAccounts([...heads.values()], rows.filter(hasCredit))
}

async function openCredits(db: Db, users: readonly UserKey[]): Promise<CreditRow[]> {
  return many<CreditRow>(
    db,
    sql`
    select g.user_id, g.id, g.kind, g.source, g.feature_key, g.amount_attos, g.remaining_attos, g.priority,
           (extract(epoch from g.effective_at) * 1000)::float8 as effective_ms,
           (extract(epoch from g.expires_at) * 1000)::float8 as expires_ms,
           (extract(epoch from g.expired_at) * 1000)::float8 as expired_ms,
           (extract(epoch from g.created_at) * 1000)::float8 as created_ms
    from unnest(${plainArray(users.map((user) => user.appId))}::uuid[], ${plainArray(users.map((user) => user.userId))}::uuid[])
      as w (app_id, user_id)
    join grants g on g.app_id = w.app_id and g.user_id = w.user_id
    where g.expired_at is null`,
  )
}

export async function insertBalances(
  db: Db,
  users: readonly (UserKey & Period)[],
  at: Date,
): Promise<void> {
  await db.query(
    prepared(
      'insert-balances',
      sql`
    insert into balances (app_id, user_id, period_start, period_end, period_counts_from, updated_at)
    select app_id, user_id, period_start, period_end, period_start, ${at}::timestamptz
    from unnest(${plainArray(users.map((user) => user.appId))}::uuid[], ${plainArray(users.map((user) => user.userId))}::uuid[],
                ${plainArray(users.map((user) => iso(user.start)))}::timestamptz[],
                ${plainArray(users.map((user) => iso(user.end)))}::timestamptz[])
      as u (app_id, user_id, period_start, period_end)
    on conflict do nothing`,
    ),
  )
}

/** Writes the changes of locked accounts, in a number of statements that does not depend on the number of accounts. */
export async function saveAccounts(db: Db, accounts: readonly Account[], at: Date): Promise<void> {
  const touched = accounts.filter((account) => account.entries.length > 0)
  await insertCredits(db, accounts)
  await updateCredits(db, accounts)
  if (touched.length > 0) await insertEntries(db, touched)
  await updateBalances(db, accounts, at)
}

const creditsIn = (accounts: readonly Account[], state: Credit['state']) =>
  accounts.flatMap((account) =>
    account.credits
      .filter((credit) => credit.state === state)
      .map((credit) => ({ account, credit })),
  )

async function insertCredits(db: Db, accounts: readonly Account[]): Promise<void> {
  const rows = creditsIn(accounts, 'new')
  if (rows.length === 0) return
  const column = <T>(value: (row: { account: Account; credit: Credit }) => T): T[] =>
    rows.map(value)
  await db.query(sql`
    insert into grants (app_id, user_id, id, kind, source, feature_key, amount_attos, remaining_attos, priority,
                        effective_at, expires_at, created_at)
    select * from unnest(
      ${column((row) => row.account.appId)}::uuid[], ${column((row) => row.account.userId)}::uuid[],
      ${column((row) => row.credit.id)}::uuid[], ${column((row) => row.credit.kind)}::text[],
      ${column((row) => row.credit.source)}::text[], ${column((row) => row.credit.featureKey)}::text[],
      ${column((row) => row.credit.amount)}::numeric[], ${column((row) => row.credit.remaining)}::numeric[],
      ${column((row) => row.credit.priority)}::smallint[], ${column((row) => row.credit.effectiveAt)}::timestamptz[],
      ${column((row) => row.credit.expiresAt)}::timestamptz[], ${column((row) => row.credit.createdAt)}::timestamptz[])`)
}

const iso = (instant: Date | null): string | null => instant && instant.toISOString()

async function updateCredits(db: Db, accounts: readonly Account[]): Promise<void> {
  const rows = creditsIn(accounts, 'changed')
  if (rows.length === 0) return
  await db.query(sql`
    update grants g
    set remaining_attos = changed.remaining_attos, expired_at = changed.expired_at
    from unnest(
      ${plainArray(rows.map((row) => row.account.appId))}::uuid[], ${plainArray(rows.map((row) => row.account.userId))}::uuid[],
      ${plainArray(rows.map((row) => row.credit.id))}::uuid[], ${plainArray(rows.map((row) => row.credit.remaining))}::numeric[],
      ${plainArray(rows.map((row) => iso(row.credit.expiredAt)))}::timestamptz[])
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
        lent_attos = head.lent, pending_attos = head.pending, lend_after = head.lend_after,
        late_until = head.late_until, updated_at = ${at}
    from unnest(
      ${plainArray(column((a) => a.appId))}::uuid[], ${plainArray(column((a) => a.userId))}::uuid[], ${plainArray(column((a) => a.seq))}::bigint[],
      ${plainArray(column((a) => a.balance))}::numeric[], ${plainArray(column((a) => a.granted))}::numeric[],
      ${plainArray(column((a) => a.topup))}::numeric[], ${plainArray(column((a) => a.consumed))}::numeric[],
      ${plainArray(column((a) => a.overage))}::numeric[], ${plainArray(column((a) => a.expired))}::numeric[],
      ${plainArray(column((a) => iso(a.periodStart)))}::timestamptz[], ${plainArray(column((a) => iso(a.periodEnd)))}::timestamptz[],
      ${plainArray(column((a) => iso(a.periodCountsFrom)))}::timestamptz[], ${plainArray(column((a) => a.periodConsumed))}::numeric[],
      ${plainArray(column((a) => a.lent))}::numeric[], ${plainArray(column((a) => a.pending))}::numeric[],
      ${plainArray(column((a) => iso(a.lendAfter)))}::timestamptz[], ${plainArray(column((a) => iso(a.lateUntil)))}::timestamptz[])
      as head (app_id, user_id, seq, balance, granted, topup, consumed, overage, expired, period_start, period_end,
               period_counts_from, period_consumed, lent, pending, lend_after, late_until)
    where b.app_id = head.app_id and b.user_id = head.user_id`)
}

export interface Terms {
  readonly userId: UserId
  readonly anchorAt: Date
  readonly cycle: BillingCycle
  readonly includedAttos: bigint
}

/** The terms of each user's subscription: the newest version of its plan. */
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
      as w (app_id, user_id)
    join subscriptions s on s.app_id = w.app_id and s.user_id = w.user_id
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

/**
 * Users with a credit that has ended and has no expiry entry yet, the oldest first; without those with held money, which
 * may still need it.
 */
export async function usersToExpire(db: Db, at: Date, limit: number): Promise<UserKey[]> {
  const rows = await many<{ app_id: string; user_id: string }>(
    db,
    sql`
    select g.app_id, g.user_id
    from grants g
    join balances b on b.app_id = g.app_id and b.user_id = g.user_id and b.lent_attos = 0 and b.pending_attos = 0
    where g.expired_at is null and g.expires_at <= ${at}
    order by g.expires_at
    limit ${limit}`,
  )
  return rows.map((row) => ({ appId: appId(row.app_id), userId: userId(row.user_id) }))
}

const entryBytes = 256
const entryColumns = `app_id, user_id, seq, kind, amount_attos, overage_attos, balance_after_attos, cause_id, created_at,
  ticket_count`

/** Writes the new entries of accounts by COPY, which takes half the time of an insert for the thousand entries of a batch. */
export async function insertEntries(db: Db, accounts: readonly Account[]): Promise<void> {
  const rows = createRowBuffer(new ArrayBuffer(entryBytes * accounts.length))
  for (const account of accounts) {
    const [app, user] = [uuidBytes(account.appId), uuidBytes(account.userId)]
    for (const entry of account.entries) writeEntry(rows, { app, user, entry })
  }
  await copyRows(db, `ledger_entries (${entryColumns})`, rows.slice(0, rows.end()))
}

function writeEntry(
  rows: RowBuffer,
  { app, user, entry }: { app: Buffer; user: Buffer; entry: Entry },
): void {
  rows.row(10)
  rows.uuid(app)
  rows.uuid(user)
  rows.int8(entry.seq)
  rows.text(entry.kind)
  rows.numeric(String(entry.amount))
  rows.numeric(String(entry.overage))
  rows.numeric(String(entry.balanceAfter))
  rows.uuid(uuidBytes(entry.causeId))
  rows.instant(entry.createdAt.getTime() * 1000)
  if (entry.tickets === undefined) rows.none()
  else rows.int4(entry.tickets)
}

/** The app of a public client id, whatever its status: a correction may be due after the app has ended. */
export async function findApp(db: Db, clientId: string): Promise<AppId | null> {
  const row = await maybeOne<{ app_id: string }>(
    db,
    sql`
    select app_id
    from clients
    where client_id = ${clientId} and kind = 'public'`,
  )
  return row && appId(row.app_id)
}

export interface CorrectedTicket {
  readonly pipeline: string
  readonly modelId: string
  /** Null while it waits for its rate. */
  readonly cost: UsdAttos | null
}

/** A user's ticket by its event id. Scans all of the user's tickets: made for an operator's correction, not for a hot path. */
export async function findTicket(
  db: Db,
  { appId: app, userId }: { appId: string; userId: string },
  eventId: string,
): Promise<CorrectedTicket | null> {
  const row = await maybeOne<{ pipeline: string; model_id: string; cost_attos: string | null }>(
    db,
    sql`
    select pipeline, model_id, cost_attos
    from tickets
    where app_id = ${app} and user_id = ${userId} and event_id = ${eventId}
    limit 1`,
  )
  return (
    row && {
      pipeline: row.pipeline,
      modelId: row.model_id,
      cost: row.cost_attos === null ? null : usdAttos(BigInt(row.cost_attos)),
    }
  )
}

/** The sum of the adjustments that name a ticket. */
export async function adjustedFor(
  db: Db,
  { appId: app, userId }: Pick<Account, 'appId' | 'userId'>,
  eventId: string,
): Promise<bigint> {
  const row = await one<{ sum: string }>(
    db,
    sql`
    select coalesce(sum(amount_attos), 0) as sum
    from adjustments
    where app_id = ${app} and user_id = ${userId} and event_id = ${eventId}`,
  )
  return BigInt(row.sum)
}

export interface NewAdjustment {
  readonly id: string
  readonly amount: UsdAttos
  readonly reason: string
  readonly author: string
  readonly eventId: string | null
  readonly at: Date
}

/** Writes an adjustment of a locked account and the account's balance row. `saveAccounts` writes its entries and credits. */
export async function insertAdjustment(
  db: Db,
  account: Account,
  adjustment: NewAdjustment,
): Promise<void> {
  const { appId: app, userId } = account
  await db.query(sql`
    insert into adjustments (app_id, user_id, id, amount_attos, reason, author, event_id, created_at)
    values (${app}, ${userId}, ${adjustment.id}, ${adjustment.amount}, ${adjustment.reason}, ${adjustment.author},
            ${adjustment.eventId}, ${adjustment.at})`)
  await db.query(sql`
    update balances
    set adjusted_attos = adjusted_attos + ${adjustment.amount}, seq = ${account.seq}, balance_attos = ${account.balance},
        granted_attos = ${account.granted}, topup_attos = ${account.topup}, consumed_attos = ${account.consumed},
        overage_attos = ${account.overage}, expired_attos = ${account.expired}
    where app_id = ${app} and user_id = ${userId}`)
}

export interface UserAt {
  readonly appId: AppId
  readonly userId: UserId
  readonly at: Date
}

/** When the user was created; null for an unknown user. */
export async function userSince(db: Db, { appId, userId }: UserAt): Promise<Date | null> {
  const row = await maybeOne<{ created_at: Date }>(
    db,
    sql`
    select created_at
    from end_users
    where app_id = ${appId} and id = ${userId}`,
  )
  return row?.created_at ?? null
}

export interface BalanceAt {
  readonly balance: UsdAttos
  /** Charged since `period.start`. */
  readonly consumed: UsdAttos
  /** Included usage in effect, and every credit that was ever granted. */
  readonly granted: UsdAttos
  /** Tickets that had arrived by then and still wait for their rate. */
  readonly unpriced: bigint
}

/**
 * The balance at an instant: the sum of the entries up to then, without the credits that had ended by then. A credit
 * counts as gone from its end on, even where its expiry entry came later or is still missing.
 */
export async function balanceAt(
  db: Db,
  { appId, userId, at }: UserAt,
  period: Period,
): Promise<BalanceAt> {
  const row = await maybeOne<{
    balance: string
    consumed: string
    granted: string
    unpriced: bigint
  }>(
    db,
    sql`
    with entries as (
      select coalesce(sum(amount_attos) filter (where kind <> 'expire'), 0) as amount,
             coalesce(sum(overage_attos - amount_attos) filter (where kind = 'charge' and created_at >= ${period.start}), 0) as consumed
      from ledger_entries
      where app_id = ${appId} and user_id = ${userId} and created_at <= ${at}
    ), ended as (
      select coalesce(sum(coalesce(-e.amount_attos, g.remaining_attos)), 0) as amount
      from grants g
      left join ledger_entries e on e.app_id = g.app_id and e.user_id = g.user_id and e.cause_id = g.id and e.kind = 'expire'
      where g.app_id = ${appId} and g.user_id = ${userId} and g.created_at <= ${at} and g.expires_at <= ${at}
    ), credits as (
      select coalesce(sum(amount_attos) filter (
               where kind = 'grant' or (kind = 'included' and effective_at <= ${at} and expires_at > ${at})), 0) as granted,
             coalesce(sum(amount_attos) filter (where effective_at > ${at}), 0) as not_yet
      from grants
      where app_id = ${appId} and user_id = ${userId} and created_at <= ${at}
    )
    select entries.amount - ended.amount - credits.not_yet as balance, entries.consumed, credits.granted,
           (select count(*)
            from tickets
            where app_id = ${appId} and user_id = ${userId} and cost_attos is null and received_at <= ${at}) as unpriced
    from entries, ended, credits`,
  )
  if (!row) throw new Error('sums without a row')
  return {
    balance: usdAttos(BigInt(row.balance)),
    consumed: usdAttos(BigInt(row.consumed)),
    granted: usdAttos(BigInt(row.granted)),
    unpriced: row.unpriced,
  }
}

/** Recomputes a user's balance row from the ledger entries and from what is held. Locks it as the ledger does. */
export async function rebuildBalance(
  db: Db,
  { appId: app, userId: user }: { appId: AppId; userId: string },
  at: Date,
): Promise<void> {
  // A missing row continues in the period of the newest included usage, which must not be added a second time.
  await db.query(sql`
    insert into balances (app_id, user_id, period_start, period_end, period_counts_from, updated_at)
    select u.app_id, u.id, greatest(g.effective_at, u.created_at), coalesce(g.expires_at, u.created_at),
           coalesce(g.effective_at, u.created_at), ${at}
    from end_users u
    left join lateral (
      select effective_at, expires_at
      from grants
      where app_id = u.app_id and user_id = u.id and kind = 'included'
      order by expires_at desc
      limit 1) g on true
    where u.app_id = ${app} and u.id = ${user}
    on conflict do nothing`)
  await db.query(sql`
    select 1
    from balances
    where app_id = ${app} and user_id = ${user}
    for no key update`)
  await db.query(sql`
    update balances b
    set seq = f.seq, balance_attos = f.balance, granted_attos = f.granted, topup_attos = f.topup,
        adjusted_attos = f.adjusted, consumed_attos = f.consumed, overage_attos = f.overage, expired_attos = f.expired,
        lent_attos = f.lent, pending_attos = f.pending, updated_at = ${at}
    from (
      select coalesce(max(seq), 0) as seq, coalesce(sum(amount_attos), 0) as balance,
             coalesce(sum(amount_attos) filter (where kind = 'grant'), 0) as granted,
             coalesce(sum(amount_attos - overage_attos) filter (where kind = 'adjustment'), 0) as adjusted,
             coalesce(sum(overage_attos - amount_attos) filter (where kind = 'charge'), 0) as consumed,
             coalesce(sum(overage_attos), 0) as overage,
             coalesce(-sum(amount_attos) filter (where kind = 'expire'), 0) as expired,
             (select coalesce(sum(amount_attos), 0)
              from grants
              where app_id = ${app} and user_id = ${user} and kind = 'grant') as topup,
             (select coalesce(sum(amount_attos - used_attos), 0)
              from leases
              where app_id = ${app} and user_id = ${user}) as lent,
             (select coalesce(sum(bound_attos), 0)
              from authorisations
              where app_id = ${app} and user_id = ${user} and state = 'pending') as pending
      from ledger_entries
      where app_id = ${app} and user_id = ${user}) f
    where b.app_id = ${app} and b.user_id = ${user}`)
}
