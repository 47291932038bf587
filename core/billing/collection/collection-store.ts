import { uuidV7 } from '../../lib/crypto.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import { inAppGroups, lockInApps } from '../../shared/database/app-groups.ts'
import { type AppId, type UserId, type UserKey, appId, userId } from '../../shared/ids.ts'
import { type UsdCents, usdCents } from '../processor/port.ts'

/** Writes collections: invoices on their way to be raised and paid. */

export type CollectionReason = 'threshold' | 'ceiling' | 'period' | 'final' | 'request'

/**
 * `charging`: a charge is not decided. `retrying`: a charge failed, and another follows. The last
 * four are final: `carried` raised no invoice, because less than the minimum was owed.
 */
export type CollectionState =
  'requested' | 'issued' | 'charging' | 'retrying' | 'paid' | 'carried' | 'uncollectible' | 'voided'

export interface CollectionKey {
  readonly appId: AppId
  readonly id: string
}

export interface NewCollection extends UserKey {
  readonly reason: CollectionReason
  readonly withUsage: boolean
  readonly dueAt: Date
}

/** Returns the number of requests that were not there already. */
export async function insertRequests(
  db: Db,
  requests: readonly NewCollection[],
  at: Date,
): Promise<number> {
  const column = <T>(value: (request: NewCollection) => T): T[] => requests.map(value)
  const { rowCount } = await db.query(sql`
    insert into collections (app_id, user_id, id, reason, state, with_usage, requested_at, due_at)
    select app_id, user_id, id, reason, 'requested', with_usage, ${at}::timestamptz, due_at
    from unnest(${column((one) => one.appId)}::uuid[], ${column((one) => one.userId)}::uuid[],
                ${column(() => uuidV7(at.getTime()))}::uuid[], ${column((one) => one.reason)}::text[],
                ${column((one) => one.withUsage)}::boolean[], ${column((one) => one.dueAt)}::timestamptz[])
      as r (app_id, user_id, id, reason, with_usage, due_at)
    on conflict do nothing`)
  return rowCount ?? 0
}

/** A request that is due. */
export interface RequestedCollection extends UserKey {
  readonly id: string
  readonly reason: CollectionReason
  readonly withUsage: boolean
}

/** When collections are due: by real time in all apps, or by the clock of one app. */
export interface DueQuery {
  readonly at: Date
  /** Null for all apps. */
  readonly app: AppId | null
  readonly limit: number
}

async function listRequestedApps(db: Db, { at, limit }: Omit<DueQuery, 'app'>): Promise<AppId[]> {
  const rows = await many<{ app_id: string }>(
    db,
    sql`
    select distinct app_id
    from (
      select app_id from collections where state = 'requested' and due_at <= ${at} order by due_at limit ${limit}) due`,
  )
  return rows.map((row) => appId(row.app_id))
}

interface RequestedRow {
  app_id: string
  user_id: string
  id: string
  reason: CollectionReason
  with_usage: boolean
}

/** Locks due requests, oldest first. Skips those that another core is issuing. */
export async function lockRequested(
  db: Db,
  { at, app, limit }: DueQuery,
): Promise<RequestedCollection[]> {
  const rows = await lockInApps(db, {
    app,
    limit,
    findApps: () => listRequestedApps(db, { at, limit }),
    lock: (each, most) =>
      many<RequestedRow>(
        db,
        sql`
    select app_id, user_id, id, reason, with_usage
    from collections
    where state = 'requested' and due_at <= ${at} and (${each}::uuid is null or app_id = ${each})
    order by due_at, id
    limit ${most}
    for update skip locked`,
      ),
  })
  return rows.map((row) => ({
    appId: appId(row.app_id),
    userId: userId(row.user_id),
    id: row.id,
    reason: row.reason,
    withUsage: row.with_usage,
  }))
}

/** Returns the apps among these whose users pay: in billing mode merchant, and the platform app. */
export async function findInvoicing(db: Db, apps: readonly AppId[]): Promise<ReadonlySet<AppId>> {
  const rows = await many<{ app_id: string }>(
    db,
    sql`
    select app_id from billing_settings where app_id = any(${apps}::uuid[]) and billing_mode = 'merchant'
    union
    select app_id from platform_app where app_id = any(${apps}::uuid[])`,
  )
  return new Set(rows.map((row) => appId(row.app_id)))
}

export interface IssuedCollection extends CollectionKey {
  /** Null if nothing was invoiced. */
  readonly invoiceId: string | null
}

/** Notes which invoices locked requests have raised. They are paid at once. */
export async function saveIssued(
  db: Db,
  issued: readonly IssuedCollection[],
  at: Date,
): Promise<void> {
  await inAppGroups(db, issued, async (group, app) => {
    const column = <T>(value: (one: IssuedCollection) => T): T[] => group.map(value)
    await db.query(sql`
    update collections c
    set state = case when i.invoice_id is null then 'carried' else 'issued' end, invoice_id = i.invoice_id,
        ended_at = case when i.invoice_id is null then ${at}::timestamptz end
    from unnest(${column((one) => one.appId)}::uuid[], ${column((one) => one.id)}::uuid[],
                ${column((one) => one.invoiceId)}::uuid[]) as i (app_id, id, invoice_id)
    where c.app_id = coalesce(${app}, i.app_id) and c.id = i.id and c.state = 'requested'`)
    return []
  })
}

/** A collection with its invoice. */
export interface PayableCollection extends UserKey {
  readonly id: string
  readonly state: CollectionState
  readonly invoiceId: string
  readonly number: bigint
  readonly total: UsdCents
  /** What a payment collects in the ledger. */
  readonly debt: UsdAttos
  readonly externalUserId: string
  readonly subscriptionId: string | null
  readonly failures: number
  readonly failedAt: Date | null
  readonly faults: number
  /** When it was due; of a claimed one, before the claim. */
  readonly dueAt: Date
}

interface PayableRow {
  app_id: string
  user_id: string
  id: string
  state: CollectionState
  invoice_id: string
  number: bigint
  total_cents: bigint
  debt_attos: string
  external_user_id: string
  subscription_id: string | null
  failures: number
  failed_at: Date | null
  faults: number
  due_at: Date
}

const payableFromRow = (row: PayableRow): PayableCollection => ({
  appId: appId(row.app_id),
  userId: userId(row.user_id),
  id: row.id,
  state: row.state,
  invoiceId: row.invoice_id,
  number: row.number,
  total: usdCents(row.total_cents),
  debt: usdAttos(BigInt(row.debt_attos)),
  externalUserId: row.external_user_id,
  subscriptionId: row.subscription_id,
  failures: row.failures,
  failedAt: row.failed_at,
  faults: row.faults,
  dueAt: row.due_at,
})

const payableColumns = `c.app_id, c.user_id, c.id, c.state, c.invoice_id, i.number, i.total_cents,
  i.total_cents * 10000000000000000::numeric - i.price_attos as debt_attos, u.external_user_id, c.subscription_id, c.failures,
  c.failed_at, c.faults`

/**
 * Claims collections whose invoices are due to be paid, oldest first, and postpones them to `until`.
 * Skips those that another core claims, and users with an undecided charge.
 */
export async function claimPayable(
  db: Db,
  { at, app, limit, until }: DueQuery & { readonly until: Date },
): Promise<PayableCollection[]> {
  const rows = await lockInApps(db, {
    app,
    limit,
    findApps: () => listPayableApps(db, { at, limit }),
    lock: (each, most) =>
      many<PayableRow>(db, {
        text: `
    with claimed as (
      update collections c
      set due_at = $2
      from (
        select app_id, id, due_at
        from collections d
        where state in ('issued', 'retrying') and due_at <= $1 and ($3::uuid is null or app_id = $3)
          and not exists (
            select from collections o where o.app_id = coalesce($3, d.app_id) and o.user_id = d.user_id and o.state = 'charging')
        order by due_at, id
        limit $4
        for update skip locked) d
      where c.app_id = coalesce($3, d.app_id) and c.id = d.id
      returning c.app_id, c.user_id, c.id, c.state, c.invoice_id, c.subscription_id, c.failures, c.failed_at, c.faults,
                d.due_at
    )
    select ${payableColumns}, c.due_at
    from claimed c
    join invoices i on i.app_id = coalesce($3, c.app_id) and i.id = c.invoice_id
    join end_users u on u.app_id = c.app_id and u.id = c.user_id`,
        values: [at, until, each, most],
      }),
  })
  return rows.map(payableFromRow)
}

async function listPayableApps(db: Db, { at, limit }: Omit<DueQuery, 'app'>): Promise<AppId[]> {
  const rows = await many<{ app_id: string }>(
    db,
    sql`
    select distinct app_id
    from (
      select app_id
      from collections d
      where state in ('issued', 'retrying') and due_at <= ${at}
        and not exists (
          select from collections o where o.app_id = d.app_id and o.user_id = d.user_id and o.state = 'charging')
      order by due_at
      limit ${limit}) due`,
  )
  return rows.map((row) => appId(row.app_id))
}

/** Makes a collection that was claimed until `until` due again, unless it has changed since. */
export async function release(
  db: Db,
  { appId: app, id, state, dueAt }: PayableCollection,
  until: Date,
): Promise<void> {
  await db.query(sql`
    update collections set due_at = ${dueAt}
    where app_id = ${app} and id = ${id} and state = ${state} and due_at = ${until}`)
}

/** Locks a collection whose invoice is issued; null for an unknown one. */
export async function lockPayable(
  db: Db,
  { appId: app, id }: CollectionKey,
): Promise<PayableCollection | null> {
  const row = await maybeOne<PayableRow>(db, {
    text: `
    select ${payableColumns}, c.due_at
    from collections c
    join invoices i on i.app_id = c.app_id and i.id = c.invoice_id
    join end_users u on u.app_id = c.app_id and u.id = c.user_id
    where c.app_id = $1 and c.id = $2
    for update of c`,
    values: [app, id],
  })
  return row && payableFromRow(row)
}

/** Whether another collection of the user has an undecided charge. */
export async function isPayerBusy(
  db: Db,
  { appId: app, userId: user, id }: CollectionKey & UserKey,
): Promise<boolean> {
  const { busy } = await one<{ busy: boolean }>(
    db,
    sql`
    select exists (
      select from collections
      where app_id = ${app} and user_id = ${user} and id <> ${id} and state = 'charging') as busy`,
  )
  return busy
}

export async function saveCharging(db: Db, { appId: app, id }: CollectionKey): Promise<void> {
  await db.query(
    sql`update collections set state = 'charging' where app_id = ${app} and id = ${id}`,
  )
}

export async function savePaid(
  db: Db,
  { appId: app, id }: CollectionKey,
  { attemptId, at }: { readonly attemptId: string; readonly at: Date },
): Promise<void> {
  await db.query(sql`
    update collections
    set state = 'paid', attempt_id = ${attemptId}, failure = null, ended_at = ${at}
    where app_id = ${app} and id = ${id}`)
}

export interface CollectionFailure {
  readonly state: 'retrying' | 'uncollectible'
  readonly failures: number
  readonly failedAt: Date
  readonly failure: string
  readonly attemptId: string
  readonly subscriptionId: string | null
  readonly dueAt: Date
  /** Real time. */
  readonly at: Date
}

/** Notes a failed charge that counts. */
export async function saveFailure(
  db: Db,
  { appId: app, id }: CollectionKey,
  to: CollectionFailure,
): Promise<void> {
  const endedAt = to.state === 'uncollectible' ? to.at : null
  await db.query(sql`
    update collections
    set state = ${to.state}, failures = ${to.failures}, failed_at = ${to.failedAt}, failure = ${to.failure}, faults = 0,
        attempt_id = ${to.attemptId}, subscription_id = ${to.subscriptionId}, due_at = ${to.dueAt}, ended_at = ${endedAt}
    where app_id = ${app} and id = ${id}`)
}

/**
 * Notes that a charge could not be made, which counts as no failure. Changes nothing if the
 * collection has left the state that the caller read, because a charge may have begun.
 */
export async function saveFault(
  db: Db,
  { appId: app, id, state }: CollectionKey & Pick<PayableCollection, 'state'>,
  {
    failure,
    dueAt,
    attemptId = null,
  }: { readonly failure: string; readonly dueAt: Date; readonly attemptId?: string | null },
): Promise<void> {
  await db.query(sql`
    update collections
    set state = case when failures > 0 then 'retrying' else 'issued' end, faults = faults + 1, failure = ${failure},
        due_at = ${dueAt}, attempt_id = coalesce(${attemptId}, attempt_id)
    where app_id = ${app} and id = ${id} and state = ${state}`)
}

/** Whether the user has a failed collection that may still be paid. */
export async function hasRetries(
  db: Db,
  { appId: app, userId: user }: { readonly appId: AppId; readonly userId: UserId },
): Promise<boolean> {
  const { waiting } = await one<{ waiting: boolean }>(
    db,
    sql`
    select exists (
      select from collections
      where app_id = ${app} and user_id = ${user} and (state = 'retrying' or state = 'charging' and failures > 0)) as waiting`,
  )
  return waiting
}

/**
 * Makes the user's failed collections due at `at`, by the clock of the app, except those that failed
 * with this card.
 */
export async function retryWith(
  db: Db,
  { appId: app, userId: user }: UserKey,
  { cardId, at }: { readonly cardId: string; readonly at: Date },
): Promise<void> {
  await db.query(sql`
    update collections c
    set due_at = ${at}
    where app_id = ${app} and user_id = ${user} and state in ('issued', 'retrying') and attempt_id is not null and due_at > ${at}
      and not exists (
        select from payment_attempts where app_id = ${app} and id = c.attempt_id and card_id = ${cardId})`)
}

/** Tries again to collect what was given up. Returns the invoices. */
export async function reopen(db: Db, user: UserKey, at: Date): Promise<string[]> {
  const rows = await many<{ invoice_id: string }>(
    db,
    sql`
    update collections
    set state = case when failures > 0 then 'retrying' else 'issued' end, due_at = ${at}, ended_at = null
    where app_id = ${user.appId} and user_id = ${user.userId}
      and (state = 'uncollectible' or state in ('issued', 'retrying') and due_at > ${at})
    returning invoice_id`,
  )
  return rows.map((row) => row.invoice_id)
}

/**
 * Ends the collection of an invoice that becomes void, in the caller's transaction. Returns false if
 * the invoice is paid or a charge is not decided, so that it must not become void.
 */
export async function voidCollection(
  db: Db,
  {
    appId: app,
    invoiceId,
    at,
  }: { readonly appId: AppId; readonly invoiceId: string; readonly at: Date },
): Promise<boolean> {
  const rows = await many<{ state: CollectionState }>(
    db,
    sql`
    select state from collections where app_id = ${app} and invoice_id = ${invoiceId} for update`,
  )
  if (rows.some(({ state }) => state === 'charging' || state === 'paid')) return false
  await db.query(sql`
    update collections
    set state = 'voided', ended_at = coalesce(ended_at, ${at})
    where app_id = ${app} and invoice_id = ${invoiceId}`)
  return true
}

/** Whether a collection of the app is due at `at`, by the clock of the app. */
export async function isDue(
  db: Db,
  { appId: app, at }: { readonly appId: AppId; readonly at: Date },
): Promise<boolean> {
  const { due } = await one<{ due: boolean }>(
    db,
    sql`
    select exists (
      select from collections
      where app_id = ${app} and state in ('requested', 'issued', 'retrying') and due_at <= ${at}) as due`,
  )
  return due
}

/** Returns since when the oldest collection is due at `at`; null if no collection is. */
export async function dueSince(db: Db, at: Date): Promise<Date | null> {
  const { since } = await one<{ since: Date | null }>(
    db,
    sql`
    select min(due_at) as since
    from collections
    where state in ('requested', 'issued', 'retrying') and due_at <= ${at}`,
  )
  return since
}

/** Whether somebody requested a collection of the user after `since`, in real time. */
export async function isRequestedSince(
  db: Db,
  { appId: app, userId: user }: UserKey,
  since: Date,
): Promise<boolean> {
  const { requested } = await one<{ requested: boolean }>(
    db,
    sql`
    select exists (
      select from collections
      where app_id = ${app} and user_id = ${user} and reason = 'request' and requested_at > ${since}) as requested`,
  )
  return requested
}
