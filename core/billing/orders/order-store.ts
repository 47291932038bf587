import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Db, many, maybeOne, sql } from '../../lib/sql.ts'
import type { Timing } from '../../plans/subscriptions/timing.ts'
import { lockInApps } from '../../shared/database/app-groups.ts'
import { type AppId, type UserKey, appId, userId } from '../../shared/ids.ts'
import { type UsdCents, usdCents } from '../processor/port.ts'

/** Writes plan_orders: moves to plans, from the card step until they are booked or given up. */

/**
 * `credited`: paid, but the plan could not be taken any more, so that the money became prepaid
 * credit. All states but `open` are final, except that money may still come for a failed or expired
 * order.
 */
export type OrderState = 'open' | 'booked' | 'failed' | 'expired' | 'credited'

export interface PlanOrder extends UserKey {
  /** Also the id of its checkout, if there is one. */
  readonly id: string
  readonly planId: string
  readonly timing: Timing
  /** The subscription in the slot when it was requested. */
  readonly from: { readonly subscriptionId: string; readonly planId: string }
  /** The price of the first period; 0 for a move at the end of the period. */
  readonly price: UsdAttos
  /** The part of the price that the unused rest of the running period pays, in whole cents. */
  readonly proration: UsdAttos
  /** The part of the price that earlier prorations pay, in whole cents. */
  readonly credit: UsdAttos
  /** Null if there is nothing to charge. */
  readonly amount: UsdCents | null
  readonly state: OrderState
  readonly problem: string | null
  readonly attemptId: string | null
  readonly booked: { readonly subscriptionId: string; readonly effectiveAt: Date } | null
  readonly author: string
  readonly correlationId: string | null
  readonly createdAt: Date
}

interface OrderRow {
  app_id: string
  user_id: string
  id: string
  plan_id: string
  timing: Timing
  from_id: string
  from_plan_id: string
  price_attos: string
  proration_attos: string
  credit_attos: string
  amount_cents: bigint | null
  state: OrderState
  problem: string | null
  attempt_id: string | null
  subscription_id: string | null
  effective_at: Date | null
  author: string
  correlation_id: string | null
  created_at: Date
}

const columns = `app_id, user_id, id, plan_id, timing, from_id, from_plan_id, price_attos, proration_attos, credit_attos, amount_cents, state,
  problem, attempt_id, subscription_id, effective_at, author, correlation_id, created_at`

const fromRow = (row: OrderRow): PlanOrder => ({
  appId: appId(row.app_id),
  userId: userId(row.user_id),
  id: row.id,
  planId: row.plan_id,
  timing: row.timing,
  from: { subscriptionId: row.from_id, planId: row.from_plan_id },
  price: usdAttos(BigInt(row.price_attos)),
  proration: usdAttos(BigInt(row.proration_attos)),
  credit: usdAttos(BigInt(row.credit_attos)),
  amount: row.amount_cents === null ? null : usdCents(row.amount_cents),
  state: row.state,
  problem: row.problem,
  attemptId: row.attempt_id,
  booked:
    row.subscription_id === null || row.effective_at === null
      ? null
      : { subscriptionId: row.subscription_id, effectiveAt: row.effective_at },
  author: row.author,
  correlationId: row.correlation_id,
  createdAt: row.created_at,
})

type OrderKey = Pick<PlanOrder, 'appId' | 'id'>

/** Stores an order. Returns false if its id exists, or another order of the user is open. */
export async function insertOrder(db: Db, order: PlanOrder): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    insert into plan_orders (app_id, user_id, id, plan_id, timing, from_id, from_plan_id, price_attos, proration_attos,
                             credit_attos, amount_cents, state, author, correlation_id, created_at)
    values (${order.appId}, ${order.userId}, ${order.id}, ${order.planId}, ${order.timing}, ${order.from.subscriptionId},
            ${order.from.planId}, ${order.price}, ${order.proration}, ${order.credit}, ${order.amount}, 'open', ${order.author},
            ${order.correlationId}, ${order.createdAt})
    on conflict do nothing`)
  return rowCount === 1
}

/** Returns an app's order; null for an unknown one. */
export async function findOrder(db: Db, { appId: app, id }: OrderKey): Promise<PlanOrder | null> {
  const row = await maybeOne<OrderRow>(db, {
    text: `select ${columns} from plan_orders where app_id = $1 and id = $2`,
    values: [app, id],
  })
  return row && fromRow(row)
}

/** Like `findOrder`, but locks the row until the transaction ends. */
export async function lockOrder(db: Db, { appId: app, id }: OrderKey): Promise<PlanOrder | null> {
  const row = await maybeOne<OrderRow>(db, {
    text: `select ${columns} from plan_orders where app_id = $1 and id = $2 for update`,
    values: [app, id],
  })
  return row && fromRow(row)
}

export async function findOpenOrder(
  db: Db,
  { appId: app, userId: user }: UserKey,
): Promise<PlanOrder | null> {
  const row = await maybeOne<OrderRow>(db, {
    text: `select ${columns} from plan_orders where app_id = $1 and user_id = $2 and state = 'open'`,
    values: [app, user],
  })
  return row && fromRow(row)
}

/** Ends a locked order as booked. */
export async function saveBooked(
  db: Db,
  { appId: app, id }: OrderKey,
  booked: {
    readonly subscriptionId: string
    readonly effectiveAt: Date
    readonly attemptId: string | null
    readonly at: Date
  },
): Promise<void> {
  await db.query(sql`
    update plan_orders
    set state = 'booked', subscription_id = ${booked.subscriptionId}, effective_at = ${booked.effectiveAt},
        attempt_id = ${booked.attemptId}, ended_at = ${booked.at}
    where app_id = ${app} and id = ${id}`)
}

/** Ends a locked order that is not booked. */
export async function saveEnded(
  db: Db,
  { appId: app, id }: OrderKey,
  end: {
    readonly state: 'failed' | 'expired' | 'credited'
    readonly problem: string
    readonly attemptId: string | null
    readonly at: Date
  },
): Promise<void> {
  await db.query(sql`
    update plan_orders
    set state = ${end.state}, problem = ${end.problem}, attempt_id = ${end.attemptId}, ended_at = ${end.at}
    where app_id = ${app} and id = ${id}`)
}

/**
 * Locks open orders created before `before` for which nothing is under way: neither a checkout nor
 * a charge that is undecided or paid. Skips those that another core has locked.
 */
export async function lockAbandoned(
  db: Db,
  { before, limit }: { readonly before: Date; readonly limit: number },
): Promise<PlanOrder[]> {
  const rows = await lockInApps(db, {
    app: null,
    limit,
    findApps: () => listAppsWithOpen(db, before),
    lock: (app, most) =>
      many<OrderRow>(db, {
        text: `
    select ${columns}
    from plan_orders o
    where ($3::uuid is null or app_id = $3) and state = 'open' and created_at < $1
      and not exists (
        select from checkouts c where c.app_id = coalesce($3, o.app_id) and c.id = o.id and c.ended_at is null)
      and not exists (
        select from payment_attempts a
        where a.app_id = coalesce($3, o.app_id) and a.purpose = 'plan' and a.subject_id = o.id and a.state in ('started', 'succeeded'))
    order by created_at
    limit $2
    for update skip locked`,
        values: [before, most, app],
      }),
  })
  return rows.map(fromRow)
}

async function listAppsWithOpen(db: Db, before: Date): Promise<AppId[]> {
  const rows = await many<{ app_id: string }>(
    db,
    sql`select distinct app_id from plan_orders where state = 'open' and created_at < ${before}`,
  )
  return rows.map((row) => appId(row.app_id))
}

/**
 * Returns the price of an entered period; 0 if it costs nothing, or is on an invoice that is not
 * paid or has a credit note.
 */
export async function findPaidPrice(
  db: Db,
  { appId: app, userId: user }: UserKey,
  periodStart: Date,
): Promise<UsdAttos> {
  const row = await maybeOne<{ price_attos: string }>(
    db,
    sql`
    select p.price_attos
    from periods p
    where p.app_id = ${app} and p.user_id = ${user} and p.starts_at = ${periodStart} and p.price_attos > 0
      and not exists (
        select 1
        from invoice_lines l
        where l.app_id = ${app} and l.user_id = ${user} and l.kind = 'subscription' and l.period_start = ${periodStart}
          and (
            not exists (select from payments y where y.app_id = ${app} and y.invoice_id = l.invoice_id)
            or exists (select from invoices n where n.app_id = ${app} and n.invoice_id = l.invoice_id)))`,
  )
  return usdAttos(row === null ? 0n : BigInt(row.price_attos))
}

/** Returns the processor's id of the checkout of the order that led to a subscription. */
export async function findCheckoutSession(
  db: Db,
  app: AppId,
  subscriptionId: string,
): Promise<string | null> {
  const row = await maybeOne<{ processor_id: string | null }>(
    db,
    sql`
    select c.processor_id
    from plan_orders o
    join checkouts c on c.app_id = o.app_id and c.id = o.id
    where o.app_id = ${app} and o.subscription_id = ${subscriptionId}
    limit 1`,
  )
  return row && row.processor_id
}
