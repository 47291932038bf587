import type { Credit } from '../../balances/accounts/credits.ts'
import { type EthRate, type UsdAttos, type Wei, ethRate, usdAttos, wei } from '../../lib/money.ts'
import { type Db, limitStatements, many, maybeOne, one, sql } from '../../lib/sql.ts'
import type { BillingCycle } from '../../lib/time.ts'
import { type AppId, type UserId, userId } from '../../shared/ids.ts'
import type { WhatIfRange } from './input.ts'

/** Reads the facts for a replay, in a read-only transaction. */

/** Tickets per round trip, which are in memory at once. */
const pageSize = 4_000

/** Makes the transaction a read-only snapshot. Each statement may take `limitMs`. */
export async function readOnly(db: Db, limitMs: number): Promise<void> {
  await db.query('set transaction isolation level repeatable read, read only')
  await limitStatements(db, limitMs)
  await db.query(sql`select set_config('cursor_tuple_fraction', '1', true)`)
}

/** Takes the app's advisory lock until the transaction ends. Returns false if it is held. */
export async function takeTurn(db: Db, app: AppId): Promise<boolean> {
  const { has_turn } = await one<{ has_turn: boolean }>(
    db,
    sql`select pg_try_advisory_xact_lock(hashtextextended(${`whatif ${app}`}, 0)) as has_turn`,
  )
  return has_turn
}

/** A ticket as booked. */
export interface BookedTicket {
  readonly userId: UserId
  readonly eventId: string
  readonly signedMs: number
  readonly pipeline: string
  readonly modelId: string
  readonly fee: Wei
  /** Null while the ticket waits for its price. */
  readonly price: {
    readonly rateId: bigint
    readonly cost: UsdAttos
    readonly retail: UsdAttos
    readonly platformFee: UsdAttos
  } | null
}

interface TicketRow {
  user_id: string
  event_id: string
  signed_ms: number
  pipeline: string
  model_id: string
  fee_wei: string
  rate_id: bigint | null
  cost_attos: string | null
  retail_attos: string | null
  platform_fee_attos: string | null
}

/** Yields the app's tickets signed in the range, by user and signing time, in pages. */
export async function* ticketPages(
  db: Db,
  app: AppId,
  { from, to }: WhatIfRange,
): AsyncGenerator<BookedTicket[]> {
  await db.query(sql`
    declare tickets_to_replay no scroll cursor for
    select user_id, event_id, (extract(epoch from signed_at) * 1000)::float8 as signed_ms, pipeline, model_id,
           fee_wei::text as fee_wei, rate_id, cost_attos::text as cost_attos, retail_attos::text as retail_attos,
           platform_fee_attos::text as platform_fee_attos
    from tickets
    where app_id = ${app} and signed_at >= ${from} and signed_at < ${to}
    order by user_id, signed_at, event_id`)
  for (;;) {
    const { rows } = await db.query<TicketRow>(`fetch ${pageSize} from tickets_to_replay`)
    if (rows.length > 0) yield rows.map(ticketOf)
    if (rows.length < pageSize) return
  }
}

const attos = (text: string): UsdAttos => usdAttos(BigInt(text))
const none = usdAttos(0n)

function ticketOf(row: TicketRow): BookedTicket {
  const cost = row.cost_attos === null ? null : attos(row.cost_attos)
  return {
    userId: userId(row.user_id),
    eventId: row.event_id,
    signedMs: Math.floor(row.signed_ms),
    pipeline: row.pipeline,
    modelId: row.model_id,
    fee: wei(BigInt(row.fee_wei)),
    price:
      cost === null || row.rate_id === null
        ? null
        : {
            rateId: row.rate_id,
            cost,
            retail: row.retail_attos === null ? cost : attos(row.retail_attos),
            platformFee: row.platform_fee_attos === null ? none : attos(row.platform_fee_attos),
          },
  }
}

/** Returns rates by their ids. */
export async function readRates(db: Db, ids: readonly bigint[]): Promise<Map<bigint, EthRate>> {
  const rows = await many<{ id: bigint; usd_attos_per_eth: string }>(
    db,
    sql`select id, usd_attos_per_eth from rates where id = any(${ids}::bigint[])`,
  )
  return new Map(rows.map((row) => [row.id, ethRate(BigInt(row.usd_attos_per_eth))]))
}

/** State of a user at the start of a replay. */
export interface ReplayedUser {
  readonly userId: UserId
  readonly externalUserId: string
  readonly planId: string
  readonly planName: string
  readonly anchorAt: Date
  /** The period at the start of the range, else the first period; null without periods. */
  readonly period: {
    readonly start: Date
    readonly cycle: BillingCycle
    /** Whether the period had begun at the start of the range. */
    readonly isRunning: boolean
  } | null
  /** Credits valid at some time in the range, with the amount left at its start. */
  readonly credits: readonly Credit[]
}

interface UserRow {
  id: string
  external_user_id: string
  plan_id: string
  plan_name: string
  anchor_at: Date
  period_start: Date | null
  period_cycle: BillingCycle | null
}

/** Returns users by their ids. */
export async function readUsers(
  db: Db,
  app: AppId,
  { ids, range }: { readonly ids: readonly UserId[]; readonly range: WhatIfRange },
): Promise<Map<UserId, ReplayedUser>> {
  const rows = await many<UserRow>(
    db,
    sql`
    select u.id, u.external_user_id, p.id as plan_id, p.name as plan_name,
           coalesce(s.anchor_at, o.starts_at, u.created_at) as anchor_at, o.starts_at as period_start, o.billing_cycle as period_cycle
    from end_users u
    -- Whoever has lost their subscription is on Starter from the next call on.
    left join subscriptions s on s.app_id = u.app_id and s.user_id = u.id
    join plans p on p.app_id = u.app_id and case when s.plan_id is null then p.is_starter_default else p.id = s.plan_id end
    left join lateral (
      select o.starts_at, v.billing_cycle
      from periods o
      join plan_versions v on v.app_id = o.app_id and v.plan_id = o.plan_id and v.version = o.plan_version
      where o.app_id = u.app_id and o.user_id = u.id
      order by o.starts_at <= ${range.from} desc, case when o.starts_at <= ${range.from} then o.starts_at end desc,
               o.starts_at
      limit 1) o on true
    where u.app_id = ${app} and u.id = any(${ids}::uuid[])`,
  )
  const credits = await readCredits(db, app, { ids, range })
  return new Map(
    rows.map((row) => {
      const { period_start: start, period_cycle: cycle } = row
      const user: ReplayedUser = {
        userId: userId(row.id),
        externalUserId: row.external_user_id,
        planId: row.plan_id,
        planName: row.plan_name,
        anchorAt: row.anchor_at,
        period: start && cycle && { start, cycle, isRunning: start <= range.from },
        credits: credits.get(row.id) ?? [],
      }
      return [user.userId, user]
    }),
  )
}

interface CreditRow {
  user_id: string
  id: string
  kind: Credit['kind']
  source: Credit['source']
  feature_key: string | null
  amount_attos: string
  remaining_attos: string
  priority: number
  effective_at: Date
  expires_at: Date | null
  created_at: Date
}

/**
 * Returns credits with the amount left at the start of the range: the current amount plus what
 * later entries took.
 */
async function readCredits(
  db: Db,
  app: AppId,
  { ids, range: { from, to } }: { readonly ids: readonly UserId[]; readonly range: WhatIfRange },
): Promise<Map<string, Credit[]>> {
  const rows = await many<CreditRow>(
    db,
    sql`
    with entries as (
      select user_id, kind, cause_id, amount_attos, credit_ids, credit_attos
      from ledger_entries
      where app_id = ${app} and user_id = any(${ids}::uuid[]) and created_at >= ${from}
    ), changes as (
      select c.user_id, c.credit_id, sum(c.attos) as attos
      from (
        select e.user_id, d.credit_id, d.attos
        from entries e, unnest(e.credit_ids, e.credit_attos) as d (credit_id, attos)
        union all
        select user_id, cause_id, amount_attos from entries where kind = 'expire') c
      group by c.user_id, c.credit_id
    )
    select g.user_id, g.id, g.kind, g.source, g.feature_key, g.amount_attos, g.priority, g.effective_at, g.expires_at,
           g.created_at, case when g.created_at >= ${from} then g.amount_attos
             else least(g.amount_attos, greatest(0, g.remaining_attos - coalesce(c.attos, 0))) end as remaining_attos
    from grants g
    left join changes c on c.user_id = g.user_id and c.credit_id = g.id
    where g.app_id = ${app} and g.user_id = any(${ids}::uuid[]) and g.created_at < ${to}
      and (g.expires_at is null or g.expires_at > ${from}) and (g.kind <> 'included' or g.effective_at < ${to})`,
  )
  return new Map(
    [...Map.groupBy(rows, (row) => row.user_id)].map(([user, own]) => [user, own.map(creditOf)]),
  )
}

const creditOf = (row: CreditRow): Credit => ({
  id: row.id,
  kind: row.kind,
  source: row.source,
  featureKey: row.feature_key,
  amount: attos(row.amount_attos),
  remaining: attos(row.remaining_attos),
  priority: row.priority,
  effectiveAt: row.effective_at,
  expiresAt: row.expires_at,
  expiredAt: null,
  createdAt: row.created_at,
  state: 'new',
})

/** Returns the app's plans that are not deleted, oldest first. */
export async function planNames(
  db: Db,
  app: AppId,
): Promise<readonly { readonly id: string; readonly name: string }[]> {
  return many<{ id: string; name: string }>(
    db,
    sql`select id, name from plans where app_id = ${app} and deleted_at is null order by created_at, id`,
  )
}

/** Returns one of these external user ids that is unknown in the app; null if all are known. */
export async function unknownUser(
  db: Db,
  app: AppId,
  externalIds: readonly string[],
): Promise<string | null> {
  const row = await maybeOne<{ id: string }>(
    db,
    sql`
    select w.id
    from unnest(${externalIds}::text[]) as w (id)
    where not exists (select from end_users u where u.app_id = ${app} and u.external_user_id = w.id)
    limit 1`,
  )
  return row && row.id
}
