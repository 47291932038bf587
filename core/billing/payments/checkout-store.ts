import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import { lockInApps } from '../../shared/database/app-groups.ts'
import { type AppId, type UserKey, appId, userId } from '../../shared/ids.ts'
import {
  type PaymentProcessor,
  type Plane,
  type ProcessorAccount,
  type UsdCents,
  usdCents,
} from '../processor/port.ts'
import { accountColumn } from './customer-store.ts'

/** Writes checkouts: visits of users to the processor's pay page. */

/**
 * `opening`: the processor has not answered yet. `open`: the user may still pay. `processing`: the
 * user finished, and the payment is not decided. The last three are final.
 */
export type CheckoutState = 'opening' | 'open' | 'processing' | 'settled' | 'failed' | 'expired'

/** What a checkout is for: prepaid money, a card on file, or a plan with its first price. */
export type CheckoutPurpose = 'top_up' | 'card' | 'plan'

export interface StoredCheckout extends UserKey {
  readonly id: string
  /** The app whose caller opened it; another than `appId` if its owner pays. */
  readonly openedBy: AppId
  readonly purpose: CheckoutPurpose
  /** Null for a card alone. */
  readonly amount: UsdCents | null
  /** The platform's share of the amount. */
  readonly fee: UsdCents
  readonly planId: string | null
  readonly at: ProcessorAccount
  /** Null in rows of releases that did not store it; then it is the processor in use. */
  readonly processor: PaymentProcessor['kind'] | null
  readonly successUrl: string
  readonly cancelUrl: string
  /** Null until the processor has answered. */
  readonly processorId: string | null
  readonly url: string | null
  readonly state: CheckoutState
  readonly problem: string | null
  readonly createdAt: Date
  readonly checkAt: Date
}

interface CheckoutRow {
  app_id: string
  user_id: string
  id: string
  opened_by: string
  purpose: CheckoutPurpose
  amount_cents: bigint | null
  fee_cents: bigint
  plan_id: string | null
  plane: Plane
  account_id: string
  processor: PaymentProcessor['kind'] | null
  success_url: string
  cancel_url: string
  processor_id: string | null
  url: string | null
  state: CheckoutState
  problem: string | null
  created_at: Date
  check_at: Date
}

const fromRow = (row: CheckoutRow): StoredCheckout => ({
  appId: appId(row.app_id),
  userId: userId(row.user_id),
  id: row.id,
  openedBy: appId(row.opened_by),
  purpose: row.purpose,
  amount: row.amount_cents === null ? null : usdCents(row.amount_cents),
  fee: usdCents(row.fee_cents),
  planId: row.plan_id,
  at: { plane: row.plane, account: row.account_id === '' ? null : row.account_id },
  processor: row.processor,
  successUrl: row.success_url,
  cancelUrl: row.cancel_url,
  processorId: row.processor_id,
  url: row.url,
  state: row.state,
  problem: row.problem,
  createdAt: row.created_at,
  checkAt: row.check_at,
})

const columns = `app_id, user_id, id, opened_by, purpose, amount_cents, fee_cents, plan_id, plane, account_id, processor,
  success_url, cancel_url, processor_id, url, state, problem, created_at, check_at`

/**
 * Stores a checkout before the processor is called. Returns the stored row, which is an earlier one
 * if the id exists.
 */
export async function insertCheckout(db: Db, checkout: StoredCheckout): Promise<StoredCheckout> {
  const { appId: app, userId: user, at } = checkout
  await db.query(sql`
    insert into checkouts (app_id, user_id, id, opened_by, purpose, amount_cents, fee_cents, plan_id, plane, account_id, processor,
                           success_url, cancel_url, state, created_at, check_at)
    values (${app}, ${user}, ${checkout.id}, ${checkout.openedBy}, ${checkout.purpose}, ${checkout.amount}, ${checkout.fee}, ${checkout.planId},
            ${at.plane}, ${accountColumn(at)}, ${checkout.processor}, ${checkout.successUrl}, ${checkout.cancelUrl}, 'opening',
            ${checkout.createdAt}, ${checkout.checkAt})
    on conflict do nothing`)
  const row = await one<CheckoutRow>(db, {
    text: `select ${columns} from checkouts where app_id = $1 and id = $2`,
    values: [app, checkout.id],
  })
  return fromRow(row)
}

/** Counts a call that opens the checkout. Returns its number. */
export async function countAttempt(
  db: Db,
  { appId: app, id }: Pick<StoredCheckout, 'appId' | 'id'>,
): Promise<number> {
  const { attempts } = await one<{ attempts: number }>(
    db,
    sql`
    update checkouts
    set attempts = attempts + 1
    where app_id = ${app} and id = ${id}
    returning attempts`,
  )
  return attempts
}

/** Records the processor's answer to a new checkout. */
export async function saveOpened(
  db: Db,
  { appId: app, id }: Pick<StoredCheckout, 'appId' | 'id'>,
  opened: { readonly processorId: string; readonly url: string; readonly checkAt: Date },
): Promise<void> {
  await db.query(sql`
    update checkouts
    set state = 'open', processor_id = ${opened.processorId}, url = ${opened.url}, check_at = ${opened.checkAt}
    where app_id = ${app} and id = ${id} and state = 'opening'`)
}

/** Returns an app's checkout, locked until the transaction ends; null for an unknown one. */
export async function lockCheckout(
  db: Db,
  { appId: app, id }: Pick<StoredCheckout, 'appId' | 'id'>,
): Promise<StoredCheckout | null> {
  const row = await maybeOne<CheckoutRow>(db, {
    text: `select ${columns} from checkouts where app_id = $1 and id = $2 for update`,
    values: [app, id],
  })
  return row && fromRow(row)
}

/**
 * Returns an app's checkout, or one of its owner's in the platform app that this app opened; null
 * for an unknown one.
 */
export async function findCheckout(
  db: Db,
  { appId: app, id }: Pick<StoredCheckout, 'appId' | 'id'>,
): Promise<StoredCheckout | null> {
  const row = await maybeOne<CheckoutRow>(db, {
    text: `select ${columns} from checkouts where id = $2 and (app_id = $1 or opened_by = $1)`,
    values: [app, id],
  })
  return row && fromRow(row)
}

/** Returns the checkout that the processor knows by this id in that account. */
export async function findByProcessorId(
  db: Db,
  processorId: string,
  at: ProcessorAccount,
): Promise<StoredCheckout | null> {
  const row = await maybeOne<CheckoutRow>(db, {
    text: `select ${columns} from checkouts where processor_id = $1 and plane = $2 and account_id = $3`,
    values: [processorId, at.plane, accountColumn(at)],
  })
  return row && fromRow(row)
}

export interface CheckoutEnd {
  readonly state: 'processing' | 'settled' | 'failed' | 'expired'
  readonly problem?: string | undefined
  readonly at: Date
  /** For `processing`: when the processor is asked again. */
  readonly checkAt?: Date
}

/** Changes the state of a locked checkout. */
export async function saveState(
  db: Db,
  { appId: app, id }: Pick<StoredCheckout, 'appId' | 'id'>,
  { state, problem, at, checkAt }: CheckoutEnd,
): Promise<void> {
  const endedAt = state === 'processing' ? null : at
  await db.query(sql`
    update checkouts
    set state = ${state}, problem = ${problem ?? null}, ended_at = ${endedAt}, check_at = coalesce(${checkAt ?? null}, check_at)
    where app_id = ${app} and id = ${id}`)
}

/**
 * Claims checkouts that are due to be checked, oldest first, and postpones their next check to
 * `until`. Skips those that another core is checking.
 */
export async function claimDue(
  db: Db,
  { at, until, limit }: { readonly at: Date; readonly until: Date; readonly limit: number },
): Promise<StoredCheckout[]> {
  const rows = await lockInApps(db, {
    app: null,
    limit,
    findApps: () => listDueApps(db, at, limit),
    lock: (app, most) =>
      many<CheckoutRow>(db, {
        text: `
    update checkouts
    set check_at = $2
    where ($4::uuid is null or app_id = $4) and (app_id, id) in (
      select app_id, id from checkouts
      where ($4::uuid is null or app_id = $4) and ended_at is null and check_at <= $1
      order by check_at limit $3
      for update skip locked)
    returning ${columns}`,
        values: [at, until, most, app],
      }),
  })
  return rows.map(fromRow)
}

async function listDueApps(db: Db, at: Date, limit: number): Promise<AppId[]> {
  const rows = await many<{ app_id: string }>(
    db,
    sql`
    select distinct app_id
    from (
      select app_id from checkouts where ended_at is null and check_at <= ${at} order by check_at limit ${limit}) due`,
  )
  return rows.map((row) => appId(row.app_id))
}
