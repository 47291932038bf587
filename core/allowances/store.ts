import {
  type RowBuffer,
  byteas,
  copyRows,
  createRowBuffer,
  instants,
  int8s,
  numerics,
  uuids,
} from '../lib/copy-sql.ts'
import { type UsdAttos, usdAttos } from '../lib/money.ts'
import type { Period } from '../lib/time.ts'
import { type Db, many, maybeOne, one, prepared, sql } from '../lib/sql.ts'
import type { TicketCharge } from '../metering/ingest/charges.ts'
import { type AppId, type UserId, appId, userId } from '../platform/ids.ts'
import {
  type Account,
  type Credit,
  type CreditSource,
  type Entry,
  burnOrder,
  creditSources,
} from './account.ts'
import { type CreditDebit, adjustmentFacts, creditFacts, hashEntry } from './chain.ts'

/** Writes balances, grants, periods, ledger_entries and adjustments. */

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
  booked_through_ms: number
  head_hash: string | null
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

// Reads instants as milliseconds, because the driver takes four times as long to parse a timestamp,
// and a batch reads thousands.
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
  aheadMs: 0,
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
  const apps = users.map((user) => user.appId)
  const ids = users.map((user) => user.userId)
  const balances = await many<BalanceRow>(
    db,
    prepared(
      'lock-accounts',
      sql`
    select b.*
    from (
      select app_id, user_id
      from unnest(${uuids(apps)}::uuid[], ${uuids(ids)}::uuid[]) as u (app_id, user_id)
      order by user_id) w
    cross join lateral (
      select app_id, user_id, seq, balance_attos, granted_attos, topup_attos, consumed_attos, overage_attos, expired_attos,
             (extract(epoch from period_start) * 1000)::float8 as period_start_ms,
             (extract(epoch from period_end) * 1000)::float8 as period_end_ms,
             (extract(epoch from period_counts_from) * 1000)::float8 as period_counts_from_ms, period_consumed_attos,
             lent_attos, pending_attos, (extract(epoch from lend_after) * 1000)::float8 as lend_after_ms,
             (extract(epoch from late_until) * 1000)::float8 as late_until_ms,
             (extract(epoch from booked_through) * 1000)::float8 as booked_through_ms,
             encode(head_hash, 'hex') as head_hash
      from balances
      where app_id = w.app_id and user_id = w.user_id
      for no key update) b`,
    ),
  )
  return toAccounts(balances, await openCredits(db, users))
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
    prepared(
      'accounts',
      sql`
    select b.app_id, b.user_id, b.seq, b.balance_attos, b.granted_attos, b.topup_attos, b.consumed_attos,
           b.overage_attos, b.expired_attos, (extract(epoch from b.period_start) * 1000)::float8 as period_start_ms,
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
    ),
  )
  const heads = new Map(rows.map((row) => [row.user_id, row]))
  return toAccounts([...heads.values()], rows.filter(hasCredit))
}

async function openCredits(db: Db, users: readonly UserKey[]): Promise<CreditRow[]> {
  return many<CreditRow>(
    db,
    prepared(
      'open-credits',
      sql`
    select g.user_id, g.id, g.kind, g.source, g.feature_key, g.amount_attos, g.remaining_attos, g.priority,
           (extract(epoch from g.effective_at) * 1000)::float8 as effective_ms,
           (extract(epoch from g.expires_at) * 1000)::float8 as expires_ms,
           (extract(epoch from g.expired_at) * 1000)::float8 as expired_ms,
           (extract(epoch from g.created_at) * 1000)::float8 as created_ms
    from unnest(${uuids(users.map((user) => user.appId))}::uuid[], ${uuids(users.map((user) => user.userId))}::uuid[])
      as w (app_id, user_id)
    cross join lateral (
      select user_id, id, kind, source, feature_key, amount_attos, remaining_attos, priority, effective_at, expires_at,
             expired_at, created_at
      from grants
      where app_id = w.app_id and user_id = w.user_id and expired_at is null
      offset 0) g`,
    ),
  )
}

export async function insertBalances(
  db: Db,
  users: readonly (UserKey & Period)[],
  at: Date,
): Promise<Set<UserId>> {
  const rows = await many<{ user_id: string }>(
    db,
    prepared(
      'insert-balances',
      sql`
    insert into balances (app_id, user_id, period_start, period_end, period_counts_from, updated_at)
    select app_id, user_id, period_start, period_end, period_start, ${at}::timestamptz
    from unnest(${uuids(users.map((user) => user.appId))}::uuid[], ${uuids(users.map((user) => user.userId))}::uuid[],
                ${instants(users.map((user) => user.start))}::timestamptz[],
                ${instants(users.map((user) => user.end))}::timestamptz[])
      as u (app_id, user_id, period_start, period_end)
    on conflict do nothing
    returning user_id`,
    ),
  )
  return new Set(rows.map((row) => userId(row.user_id)))
}

/**
 * Writes the changes of locked accounts. The number of statements does not depend on the number of
 * accounts.
 */
export async function saveAccounts(db: Db, accounts: readonly Account[], at: Date): Promise<void> {
  const touched = accounts.filter((account) => account.entries.length > 0)
  await insertPeriods(db, accounts)
  await insertCredits(db, accounts)
  await updateCredits(db, accounts)
  await endIncluded(db, accounts)
  if (touched.length > 0) await insertEntries(db, touched)
  await updateBalances(db, accounts, at)
}

async function insertPeriods(db: Db, accounts: readonly Account[]): Promise<void> {
  const rows = accounts.flatMap(({ appId: app, userId: user, periods }) =>
    periods.map((period) => ({ app, user, ...period, ...period.terms })),
  )
  if (rows.length === 0) return
  const column = <T>(value: (row: (typeof rows)[number]) => T): T[] => rows.map(value)
  await db.query(sql`
    insert into periods (app_id, user_id, starts_at, ends_at, counts_from, entered_at, after_seq, plan_id, plan_version,
                         included_attos, withheld_attos)
    select * from unnest(
      ${column((row) => row.app)}::uuid[], ${column((row) => row.user)}::uuid[], ${column((row) => row.start)}::timestamptz[],
      ${column((row) => row.end)}::timestamptz[], ${column((row) => row.countsFrom)}::timestamptz[],
      ${column((row) => row.enteredAt)}::timestamptz[], ${column((row) => row.afterSeq)}::bigint[],
      ${column((row) => row.planId)}::uuid[], ${column((row) => row.planVersion)}::integer[],
      ${column((row) => row.includedAttos)}::numeric[], ${column((row) => row.withheldAttos ?? 0n)}::numeric[])
    on conflict do nothing`)
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

async function updateCredits(db: Db, accounts: readonly Account[]): Promise<void> {
  const rows = creditsIn(accounts, 'changed')
  if (rows.length === 0) return
  await db.query(sql`
    update grants g
    set remaining_attos = changed.remaining_attos, expired_at = changed.expired_at
    from unnest(
      ${uuids(rows.map((row) => row.account.appId))}::uuid[], ${uuids(rows.map((row) => row.account.userId))}::uuid[],
      ${uuids(rows.map((row) => row.credit.id))}::uuid[], ${numerics(rows.map((row) => row.credit.remaining))}::numeric[],
      ${instants(rows.map((row) => row.credit.expiredAt))}::timestamptz[])
      as changed (app_id, user_id, id, remaining_attos, expired_at)
    where g.app_id = changed.app_id and g.user_id = changed.user_id and g.id = changed.id`)
}

/**
 * Writes the ends of included usage that a plan change moved. Only accounts that just entered a
 * period have such ends.
 */
async function endIncluded(db: Db, accounts: readonly Account[]): Promise<void> {
  const moved = accounts.filter(({ periods }) => periods.length > 0)
  const rows = creditsIn(moved, 'changed').filter(({ credit }) => credit.kind === 'included')
  if (rows.length === 0) return
  await db.query(sql`
    update grants g
    set expires_at = ended.expires_at
    from unnest(
      ${rows.map((row) => row.account.appId)}::uuid[], ${rows.map((row) => row.account.userId)}::uuid[],
      ${rows.map((row) => row.credit.id)}::uuid[], ${rows.map((row) => row.credit.expiresAt)}::timestamptz[])
      as ended (app_id, user_id, id, expires_at)
    where g.app_id = ended.app_id and g.user_id = ended.user_id and g.id = ended.id
      and g.expires_at > ended.expires_at`)
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
        late_until = head.late_until, booked_through = head.booked_through, head_hash = head.head_hash,
        updated_at = ${at}
    from unnest(
      ${uuids(column((a) => a.appId))}::uuid[], ${uuids(column((a) => a.userId))}::uuid[], ${int8s(column((a) => a.seq))}::bigint[],
      ${numerics(column((a) => a.balance))}::numeric[], ${numerics(column((a) => a.granted))}::numeric[],
      ${numerics(column((a) => a.topup))}::numeric[], ${numerics(column((a) => a.consumed))}::numeric[],
      ${numerics(column((a) => a.overage))}::numeric[], ${numerics(column((a) => a.expired))}::numeric[],
      ${instants(column((a) => a.periodStart))}::timestamptz[], ${instants(column((a) => a.periodEnd))}::timestamptz[],
      ${instants(column((a) => a.periodCountsFrom))}::timestamptz[], ${numerics(column((a) => a.periodConsumed))}::numeric[],
      ${numerics(column((a) => a.lent))}::numeric[], ${numerics(column((a) => a.pending))}::numeric[],
      ${instants(column((a) => a.lendAfter))}::timestamptz[], ${instants(column((a) => a.lateUntil))}::timestamptz[],
      ${instants(column((a) => a.bookedThrough))}::timestamptz[], ${byteas(column((a) => a.head))}::bytea[])
      as head (app_id, user_id, seq, balance, granted, topup, consumed, overage, expired, period_start, period_end,
               period_counts_from, period_consumed, lent, pending, lend_after, late_until, booked_through, head_hash)
    where b.app_id = head.app_id and b.user_id = head.user_id`)
}

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
  const rows = await many<{ app_id: string; user_id: string }>(
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
  return rows.map((row) => ({ appId: appId(row.app_id), userId: userId(row.user_id) }))
}

const entryBytes = 448
const entryColumns = `app_id, user_id, seq, kind, amount_attos, overage_attos, balance_after_attos, cause_id, created_at,
  ticket_count, credit_ids, credit_attos, period_attos, unpriced_change, rates_known_at, tickets_hash, hash`

/**
 * Chains the new entries of accounts and writes them by COPY, which takes half the time of an
 * insert for a batch of a thousand entries.
 */
export async function insertEntries(db: Db, accounts: readonly Account[]): Promise<void> {
  const rows = createRowBuffer(new ArrayBuffer(entryBytes * accounts.length))
  for (const account of accounts) {
    for (const entry of account.entries) {
      account.head = hashEntry(account, account.head, entry)
      writeEntry(rows, account, { entry, hash: account.head })
    }
  }
  await copyRows(db, `ledger_entries (${entryColumns})`, rows.slice(0, rows.end()))
}

function writeEntry(
  rows: RowBuffer,
  { appId: app, userId: user }: UserKey,
  { entry, hash }: { entry: Entry; hash: string },
): void {
  rows.row(17)
  rows.hex(app)
  rows.hex(user)
  rows.int8(entry.seq)
  rows.text(entry.kind)
  rows.numeric(String(entry.amount))
  rows.numeric(String(entry.overage))
  rows.numeric(String(entry.balanceAfter))
  rows.hex(entry.causeId)
  rows.instant(entry.createdAt.getTime() * 1000)
  if (entry.tickets === undefined) rows.none()
  else rows.int4(entry.tickets)
  writeDraws(rows, entry.draws)
  rows.numeric(String(entry.periodAmount))
  rows.int4(entry.unpricedChange)
  if (entry.ratesKnownAt) rows.instant(entry.ratesKnownAt.getTime() * 1000)
  else rows.none()
  if (entry.ticketsHash === null) rows.none()
  else rows.hex(entry.ticketsHash)
  rows.hex(hash)
}

function writeDraws(rows: RowBuffer, draws: readonly CreditDebit[]): void {
  if (draws.length === 0) {
    rows.none()
    rows.none()
    return
  }
  rows.array('uuid', draws, ({ creditId }) => rows.hex(creditId))
  rows.array('numeric', draws, ({ amount }) => rows.numeric(String(amount)))
}

export interface CorrectedTicket {
  readonly pipeline: string
  readonly modelId: string
  /** Retail cost; null while the ticket waits for its rate. */
  readonly cost: UsdAttos | null
  readonly chargeId: string | null
}

/**
 * Finds a user's ticket by its event id. Scans all of the user's tickets, so use it for an
 * operator's correction, not on a hot path.
 */
export async function findTicket(
  db: Db,
  { appId: app, userId }: { appId: string; userId: string },
  eventId: string,
): Promise<CorrectedTicket | null> {
  const row = await maybeOne<{
    pipeline: string
    model_id: string
    cost_attos: string | null
    charge_id: string | null
  }>(
    db,
    sql`
    select pipeline, model_id, coalesce(retail_attos, cost_attos) as cost_attos, charge_id
    from tickets
    where app_id = ${app} and user_id = ${userId} and event_id = ${eventId}
    limit 1`,
  )
  return (
    row && {
      pipeline: row.pipeline,
      modelId: row.model_id,
      cost: row.cost_attos === null ? null : usdAttos(BigInt(row.cost_attos)),
      chargeId: row.charge_id,
    }
  )
}

/** A charge with its draws: `remaining` of each credit is the part that it paid. */
export interface DrawnCharge {
  /** Null for a charge written before draws were recorded. */
  readonly credits: readonly Credit[] | null
  readonly overage: UsdAttos
  readonly tickets: readonly TicketCharge[]
}

/** Finds a charge of a locked user, with all of its tickets that are in the table. */
export async function findCharge(
  db: Db,
  { appId: app, userId: user }: UserKey,
  chargeId: string,
): Promise<DrawnCharge | null> {
  const entry = await maybeOne<{ overage_attos: string; is_known: boolean }>(
    db,
    sql`
    select overage_attos, credit_ids is not null or amount_attos = 0 as is_known
    from ledger_entries
    where app_id = ${app} and user_id = ${user} and cause_id = ${chargeId} and kind = 'charge'`,
  )
  if (!entry) return null
  const credits = await many<CreditRow>(
    db,
    sql`
    select g.user_id, g.id, g.kind, g.source, g.feature_key, g.amount_attos, -d.amount as remaining_attos, g.priority,
           (extract(epoch from g.effective_at) * 1000)::float8 as effective_ms,
           (extract(epoch from g.expires_at) * 1000)::float8 as expires_ms, null::float8 as expired_ms,
           (extract(epoch from g.created_at) * 1000)::float8 as created_ms
    from ledger_entries e
    cross join unnest(e.credit_ids, e.credit_attos) as d (id, amount)
    join grants g on g.app_id = e.app_id and g.user_id = e.user_id and g.id = d.id
    where e.app_id = ${app} and e.user_id = ${user} and e.cause_id = ${chargeId} and e.kind = 'charge'`,
  )
  const tickets = await many<{
    event_id: string
    signed_ms: number
    pipeline: string
    model_id: string
    cost_attos: string
  }>(
    db,
    sql`
    select event_id, floor(extract(epoch from signed_at) * 1000)::float8 as signed_ms, pipeline, model_id,
           coalesce(retail_attos, cost_attos) as cost_attos
    from tickets
    where app_id = ${app} and user_id = ${user} and charge_id = ${chargeId}`,
  )
  return {
    credits: entry.is_known ? credits.map(creditFromRow) : null,
    overage: attos(entry.overage_attos),
    tickets: tickets.map((row) => ({
      appId: app,
      userId: user,
      eventId: row.event_id,
      signedAt: new Date(row.signed_ms),
      pipeline: row.pipeline,
      modelId: row.model_id,
      cost: attos(row.cost_attos),
    })),
  }
}

/** Returns the sum given back for a ticket. */
export async function givenBackFor(
  db: Db,
  { appId: app, userId }: Pick<Account, 'appId' | 'userId'>,
  eventId: string,
): Promise<bigint> {
  const row = await one<{ sum: string }>(
    db,
    sql`
    select coalesce(sum(amount_attos), 0) as sum
    from adjustments
    where app_id = ${app} and user_id = ${userId} and event_id = ${eventId} and amount_attos > 0`,
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

/**
 * Inserts an adjustment of a locked account and updates the account's balance row. `saveAccounts`
 * writes its entries and credits.
 */
export async function insertAdjustment(
  db: Db,
  account: Account,
  adjustment: NewAdjustment,
): Promise<void> {
  const { appId: app, userId } = account
  const held = usdAttos(account.lent + account.pending)
  const entry = account.entries.find(({ causeId }) => causeId === adjustment.id)
  if (!entry) throw new Error('an adjustment is written after its entry is appended')
  const returned = account.credits.filter(
    ({ id, kind, state }) =>
      kind === 'adjustment' &&
      state === 'new' &&
      entry.draws.some(({ creditId }) => creditId === id),
  )
  entry.facts = [...adjustmentFacts({ ...adjustment, held }), ...returned.flatMap(creditFacts)]
  await db.query(sql`
    insert into adjustments (app_id, user_id, id, amount_attos, reason, author, event_id, created_at, held_attos)
    values (${app}, ${userId}, ${adjustment.id}, ${adjustment.amount}, ${adjustment.reason}, ${adjustment.author},
            ${adjustment.eventId}, ${adjustment.at}, ${held})`)
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

/** Returns when the user was created; null for an unknown user. */
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
  /** Remaining money that pays for anything. */
  readonly balance: UsdAttos
  /** Remaining money that is bound to one feature, by feature. */
  readonly bound: readonly { readonly featureKey: string; readonly remaining: UsdAttos }[]
  /** Consumption of the period that was running. */
  readonly consumed: UsdAttos
  /** Included usage in effect, plus every other credit granted until then. */
  readonly granted: UsdAttos
  /** Tickets that were booked by then and waited for their rate. */
  readonly unpriced: bigint
}

/**
 * Closes the past of an account up to `at`: every later booking gets a later time. Waits for a
 * booking in progress.
 */
export async function closePast(db: Db, { appId, userId, at }: UserAt): Promise<void> {
  await db.query(sql`
    update balances
    set booked_through = ${at}::timestamptz + interval '1 millisecond'
    where app_id = ${appId} and user_id = ${userId} and booked_through <= ${at}`)
}

/**
 * Returns the balance as of `at`, by booking time. The past must be closed up to `at`. Starts from
 * the current balance and undoes later entries, because entries without recorded draws are older
 * than nearly every `at`.
 */
export async function balanceAt(db: Db, { appId, userId, at }: UserAt): Promise<BalanceAt> {
  const row = await maybeOne<{
    balance: string
    bound: { featureKey: string; remaining: string }[]
    consumed: string | null
    granted: string
    unpriced: bigint
  }>(
    db,
    sql`
    with head as (
      select coalesce(max(seq), 0) as seq
      from ledger_entries
      where app_id = ${appId} and user_id = ${userId} and created_at <= ${at}
    ), later as (
      select e.kind, e.cause_id, e.amount_attos, e.period_attos, e.unpriced_change, e.credit_ids, e.credit_attos
      from ledger_entries e, head
      where e.app_id = ${appId} and e.user_id = ${userId} and e.seq > head.seq
    ), changes as (
      select d.id, sum(d.amount) as amount
      from later, unnest(later.credit_ids, later.credit_attos) as d (id, amount)
      group by d.id
      union all
      select cause_id, amount_attos
      from later
      where kind = 'expire'
    ), credits as (
      select g.kind, g.amount_attos, g.effective_at <= ${at} and (g.expires_at is null or g.expires_at > ${at}) as active,
             nullif(g.feature_key, 'network_spend') as feature,
             g.remaining_attos - coalesce((select sum(amount) from changes where id = g.id), 0) as remaining
      from grants g
      where g.app_id = ${appId} and g.user_id = ${userId} and g.created_at <= ${at}
    ), period as (
      select starts_at, ends_at, after_seq
      from periods
      where app_id = ${appId} and user_id = ${userId} and entered_at <= ${at}
      order by starts_at desc
      limit 1
    )
    select coalesce(sum(remaining) filter (where active and feature is null), 0) as balance,
           (select coalesce(jsonb_agg(jsonb_build_object('featureKey', feature, 'remaining', remaining::text)
                                      order by feature collate "C"), '[]')
            from (
              select feature, sum(remaining) as remaining
              from credits
              where active and feature is not null
              group by feature) bound) as bound,
           coalesce(sum(amount_attos) filter (where kind = 'grant' or (kind = 'included' and active)), 0) as granted,
           (select case when b.period_start = period.starts_at
                     then b.period_consumed_attos - (select coalesce(sum(period_attos), 0) from later)
                     else (
                       select coalesce(sum(e.period_attos), 0)
                       from ledger_entries e, head
                       where e.app_id = ${appId} and e.user_id = ${userId} and e.seq > period.after_seq
                         and e.seq <= head.seq)
                     end
            from balances b, period
            where b.app_id = ${appId} and b.user_id = ${userId} and period.ends_at > ${at}) as consumed,
           (select count(*)
            from tickets
            where app_id = ${appId} and user_id = ${userId} and cost_attos is null)
           - (select coalesce(sum(unpriced_change), 0) from later) as unpriced
    from credits`,
  )
  if (!row) throw new Error('a query of sums returned no row')
  return {
    balance: attos(row.balance),
    bound: row.bound.map((of) => ({ ...of, remaining: attos(of.remaining) })),
    consumed: attos(row.consumed ?? '0'),
    granted: attos(row.granted),
    unpriced: row.unpriced,
  }
}

/**
 * Recomputes a user's balance row from the ledger entries and the holds, under the same lock as the
 * ledger.
 */
export async function rebuildBalance(
  db: Db,
  { appId: app, userId: user }: { appId: AppId; userId: string },
  at: Date,
): Promise<void> {
  // A missing row continues in the period entered last, so that its included usage is not added
  // again.
  await db.query(sql`
    insert into balances (app_id, user_id, period_start, period_end, period_counts_from, updated_at)
    select u.app_id, u.id, coalesce(p.starts_at, u.created_at), coalesce(p.ends_at, u.created_at),
           coalesce(p.counts_from, u.created_at), ${at}
    from end_users u
    left join lateral (
      select starts_at, ends_at, counts_from
      from periods
      where app_id = u.app_id and user_id = u.id
      order by starts_at desc
      limit 1) p on true
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
        lent_attos = f.lent, pending_attos = f.pending, head_hash = f.head,
        booked_through = greatest(b.booked_through, f.through), updated_at = ${at}
    from (
      select coalesce(max(seq), 0) as seq, coalesce(sum(amount_attos), 0) as balance,
             coalesce(sum(amount_attos) filter (where kind = 'grant'), 0) as granted,
             coalesce(sum(amount_attos - overage_attos) filter (where kind = 'adjustment'), 0) as adjusted,
             coalesce(sum(overage_attos - amount_attos) filter (where kind = 'charge'), 0) as consumed,
             coalesce(sum(overage_attos), 0) as overage,
             coalesce(-sum(amount_attos) filter (where kind = 'expire'), 0) as expired,
             (array_agg(hash order by seq desc))[1] as head,
             max(created_at) as through,
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
  await rebuildPeriod(db, app, user)
  await rebuildCredits(db, app, user)
}

/** Recomputes the current period and its consumption. */
async function rebuildPeriod(db: Db, app: AppId, user: string): Promise<void> {
  await db.query(sql`
    update balances b
    set period_start = p.starts_at, period_end = p.ends_at, period_counts_from = p.counts_from,
        period_consumed_attos = (
          select coalesce(sum(period_attos), 0)
          from ledger_entries
          where app_id = ${app} and user_id = ${user} and seq > p.after_seq)
    from (
      select starts_at, ends_at, counts_from, after_seq
      from periods
      where app_id = ${app} and user_id = ${user}
      order by starts_at desc
      limit 1) p
    where b.app_id = ${app} and b.user_id = ${user}`)
}

/** Recomputes the remaining amounts and expiry of credits. */
async function rebuildCredits(db: Db, app: AppId, user: string): Promise<void> {
  await db.query(sql`
    with changes as (
      select c.id, c.amount, null::timestamptz as expired_at
      from ledger_entries, unnest(credit_ids, credit_attos) as c (id, amount)
      where app_id = ${app} and user_id = ${user}
      union all
      select cause_id, amount_attos, case kind when 'expire' then created_at end
      from ledger_entries
      where app_id = ${app} and user_id = ${user} and kind in ('grant', 'expire')
    ), folded as (
      select id, sum(amount) as remaining, max(expired_at) as expired_at
      from changes
      group by id
    )
    update grants g
    set remaining_attos = f.remaining, expired_at = coalesce(f.expired_at, g.expired_at)
    from folded f
    where g.app_id = ${app} and g.user_id = ${user} and g.id = f.id
      and (g.remaining_attos <> f.remaining or g.expired_at is distinct from coalesce(f.expired_at, g.expired_at))`)
}
