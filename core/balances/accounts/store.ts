import {
  type RowBuffer,
  byteas,
  copyRows,
  createRowBuffer,
  instants,
  int8s,
  numerics,
  uuids,
} from '../../lib/copy-sql.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import type { Period } from '../../lib/time.ts'
import { type Db, many, prepared, sql } from '../../lib/sql.ts'
import { type AppId, type UserId, userId, type UserKey } from '../../shared/ids.ts'
import type { Account, Entry } from './account.ts'
import { type CreditDebit, adjustmentFacts, creditFacts, hashEntry } from './chain.ts'
import type { Credit } from './credits.ts'

/** Writes balances, grants, periods, ledger_entries and adjustments. */

export async function insertBalances(
  db: Db,
  users: readonly (UserKey & Period)[],
  at: Date,
): Promise<Set<UserId>> {
  const rows = await many<{ user_id: string }>(
    db,
    prepared('insert-balances')`
    insert into balances (app_id, user_id, period_start, period_end, period_counts_from, updated_at)
    select app_id, user_id, period_start, period_end, period_start, ${at}::timestamptz
    from unnest(${uuids(users.map((user) => user.appId))}::uuid[], ${uuids(users.map((user) => user.userId))}::uuid[],
                ${instants(users.map((user) => user.start))}::timestamptz[],
                ${instants(users.map((user) => user.end))}::timestamptz[])
      as u (app_id, user_id, period_start, period_end)
    on conflict do nothing
    returning user_id`,
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
                         included_attos, withheld_attos, price_attos)
    select * from unnest(
      ${column((row) => row.app)}::uuid[], ${column((row) => row.user)}::uuid[], ${column((row) => row.start)}::timestamptz[],
      ${column((row) => row.end)}::timestamptz[], ${column((row) => row.countsFrom)}::timestamptz[],
      ${column((row) => row.enteredAt)}::timestamptz[], ${column((row) => row.afterSeq)}::bigint[],
      ${column((row) => row.planId)}::uuid[], ${column((row) => row.planVersion)}::integer[],
      ${column((row) => row.includedAttos)}::numeric[], ${column((row) => row.withheldAttos)}::numeric[],
      ${column((row) => row.priceAttos)}::numeric[])
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
        collected_attos = head.collected, ceiling_attos = head.ceiling, lacks_card = head.lacks_card,
        invoiced_attos = head.invoiced, collects_by = head.collects_by, collect_step_attos = head.collect_step,
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
      ${numerics(column((a) => a.collected))}::numeric[], ${numerics(column((a) => a.ceiling))}::numeric[],
      ${column((a) => a.lacksCard)}::boolean[], ${numerics(column((a) => a.invoiced))}::numeric[],
      ${column((a) => a.collecting?.by ?? null)}::text[], ${column((a) => a.collecting?.step ?? null)}::numeric[],
      ${instants(column((a) => a.periodStart))}::timestamptz[], ${instants(column((a) => a.periodEnd))}::timestamptz[],
      ${instants(column((a) => a.periodCountsFrom))}::timestamptz[], ${numerics(column((a) => a.periodConsumed))}::numeric[],
      ${numerics(column((a) => a.lent))}::numeric[], ${numerics(column((a) => a.pending))}::numeric[],
      ${instants(column((a) => a.lendAfter))}::timestamptz[], ${instants(column((a) => a.lateUntil))}::timestamptz[],
      ${instants(column((a) => a.bookedThrough))}::timestamptz[], ${byteas(column((a) => a.head))}::bytea[])
      as head (app_id, user_id, seq, balance, granted, topup, consumed, overage, expired, collected, ceiling, lacks_card,
               invoiced, collects_by, collect_step, period_start, period_end,
               period_counts_from, period_consumed, lent, pending, lend_after, late_until, booked_through, head_hash)
    where b.app_id = head.app_id and b.user_id = head.user_id`)
}

const entryBytes = 528
const entryColumns = `app_id, user_id, seq, kind, amount_attos, overage_attos, balance_after_attos, cause_id, created_at,
  ticket_count, credit_ids, credit_attos, period_attos, unpriced_change, rates_known_at, tickets_hash, hash, collected_attos,
  owner_user_id, owner_attos, charged_app_id`

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
  rows.row(21)
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
  rows.numeric(String(entry.collected))
  if (entry.owner === null) {
    rows.none()
    rows.none()
  } else {
    rows.hex(entry.owner.userId)
    rows.numeric(String(entry.owner.amount))
  }
  if (entry.chargedApp === null) rows.none()
  else rows.hex(entry.chargedApp)
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

export interface NewAdjustment {
  readonly id: string
  readonly amount: UsdAttos
  readonly reason: string
  readonly author: string
  readonly eventId: string | null
  /** The only credit that a debit draws from. Default is all. */
  readonly creditId?: string | undefined
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
    insert into adjustments (app_id, user_id, id, amount_attos, reason, author, event_id, created_at, held_attos, credit_id)
    values (${app}, ${userId}, ${adjustment.id}, ${adjustment.amount}, ${adjustment.reason}, ${adjustment.author},
            ${adjustment.eventId}, ${adjustment.at}, ${held}, ${adjustment.creditId ?? null})`)
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
        collected_attos = f.collected, invoiced_attos = f.invoiced, lent_attos = f.lent, pending_attos = f.pending, head_hash = f.head,
        booked_through = greatest(b.booked_through, f.through), updated_at = ${at}
    from (
      select coalesce(max(seq), 0) as seq, coalesce(sum(amount_attos), 0) as balance,
             coalesce(sum(amount_attos) filter (where kind = 'grant'), 0) as granted,
             coalesce(sum(amount_attos - overage_attos) filter (where kind = 'adjustment'), 0) as adjusted,
             coalesce(sum(overage_attos - amount_attos) filter (where kind = 'charge'), 0) as consumed,
             coalesce(sum(overage_attos), 0) as overage,
             coalesce(sum(collected_attos), 0) as collected,
             coalesce(-sum(amount_attos) filter (where kind = 'expire'), 0) as expired,
             (array_agg(hash order by seq desc))[1] as head,
             max(created_at) as through,
             (select coalesce(sum(amount_attos), 0)
              from grants
              where app_id = ${app} and user_id = ${user} and kind = 'grant') as topup,
             (select coalesce(sum(total_cents * 10000000000000000::numeric - price_attos), 0)
              from invoices i
              where app_id = ${app} and user_id = ${user} and kind = 'invoice'
                and not exists (select from payments where app_id = ${app} and invoice_id = i.id)
                and not exists (
                  select from invoices where app_id = ${app} and invoice_id = i.id and reason = 'void')) as invoiced,
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
