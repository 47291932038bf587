import type { EnteredPeriod } from '../../balances/accounts/account.ts'
import type { Credit } from '../../balances/accounts/credits.ts'
import type { PlanVersion } from '../../balances/accounts/terms.ts'
import type {
  AccountFacts,
  HeldSubscription,
  StoredAdjustment,
  StoredBalance,
} from '../../balances/ledger/facts.ts'
import { type Db, many, sql } from '../../lib/sql.ts'
import type { BillingCycle } from '../../lib/time.ts'
import { type AppId, userId } from '../../shared/ids.ts'
import type { UserRange } from '../types.ts'
import { attos, toDate, dateOrNull } from './replay-store.ts'

/** Reads the facts from which ledgers are replayed. */

/** Returns the facts of each user of the range, by user id; `names` has their external ids. */
export async function readFacts(
  db: Db,
  range: UserRange,
): Promise<{ facts: Map<string, AccountFacts>; names: Map<string, string> }> {
  const [credits, adjustments, periods, ended, versions] = [
    Map.groupBy(await creditRows(db, range), ({ user_id }) => user_id),
    Map.groupBy(await adjustmentRows(db, range), ({ user_id }) => user_id),
    Map.groupBy(await periodRows(db, range), ({ user_id }) => user_id),
    Map.groupBy(await endedSubscriptions(db, range), ({ user_id }) => user_id),
    await planVersions(db, range.appId),
  ]
  const users = await userRows(db, range)
  const facts = new Map(
    users.map((row): [string, AccountFacts] => [
      row.id,
      {
        owner: { appId: range.appId, userId: userId(row.id) },
        credits: new Map(
          (credits.get(row.id) ?? []).map((credit) => [credit.id, creditFromRow(credit)]),
        ),
        adjustments: new Map(
          (adjustments.get(row.id) ?? []).map((adjustment) => [
            adjustment.id,
            adjustmentFromRow(adjustment),
          ]),
        ),
        periods: (periods.get(row.id) ?? []).map(periodFromRow),
        subscriptions: [
          ...(ended.get(row.id) ?? []).map(endedFromRow),
          ...subscriptionsFromRow(row),
        ],
        versions,
        balance: balanceFromRow(row),
      },
    ]),
  )
  return { facts, names: new Map(users.map((row) => [row.id, row.external_user_id])) }
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
  effective_ms: number
  expires_ms: number | null
  expired_ms: number | null
  created_ms: number
}

const creditRows = (db: Db, { appId, after, upTo }: UserRange): Promise<CreditRow[]> =>
  many<CreditRow>(
    db,
    sql`
    select user_id, id, kind, source, feature_key, amount_attos, remaining_attos, priority,
           (extract(epoch from effective_at) * 1000)::float8 as effective_ms,
           (extract(epoch from expires_at) * 1000)::float8 as expires_ms,
           (extract(epoch from expired_at) * 1000)::float8 as expired_ms,
           (extract(epoch from created_at) * 1000)::float8 as created_ms
    from grants
    where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}`,
  )

const creditFromRow = (row: CreditRow): Credit => ({
  id: row.id,
  kind: row.kind,
  source: row.source,
  featureKey: row.feature_key,
  amount: attos(row.amount_attos),
  remaining: attos(row.remaining_attos),
  priority: row.priority,
  effectiveAt: toDate(row.effective_ms),
  expiresAt: dateOrNull(row.expires_ms),
  expiredAt: dateOrNull(row.expired_ms),
  createdAt: toDate(row.created_ms),
  state: 'stored',
})

interface AdjustmentRow {
  user_id: string
  id: string
  amount_attos: string
  reason: string
  author: string
  event_id: string | null
  created_ms: number
  held_attos: string
  credit_id: string | null
  pipeline: string | null
  model_id: string | null
}

const adjustmentRows = (db: Db, { appId, after, upTo }: UserRange): Promise<AdjustmentRow[]> =>
  many<AdjustmentRow>(
    db,
    sql`
    select a.user_id, a.id, a.amount_attos, a.reason, a.author, a.event_id,
           (extract(epoch from a.created_at) * 1000)::float8 as created_ms, a.held_attos, a.credit_id, t.pipeline, t.model_id
    from adjustments a
    left join lateral (
      select pipeline, model_id
      from tickets
      where a.event_id is not null and a.amount_attos < 0 and app_id = a.app_id and user_id = a.user_id
        and event_id = a.event_id
      limit 1) t on true
    where a.app_id = ${appId} and a.user_id > ${after} and a.user_id <= ${upTo}`,
  )

const adjustmentFromRow = (row: AdjustmentRow): StoredAdjustment => ({
  amount: attos(row.amount_attos),
  reason: row.reason,
  author: row.author,
  eventId: row.event_id,
  at: toDate(row.created_ms),
  held: attos(row.held_attos),
  creditId: row.credit_id ?? undefined,
  feature:
    row.pipeline === null || row.model_id === null
      ? null
      : { pipeline: row.pipeline, modelId: row.model_id },
})

interface PeriodRow {
  user_id: string
  starts_ms: number
  ends_ms: number
  counts_from_ms: number
  entered_ms: number
  after_seq: bigint
  plan_id: string
  plan_version: number
  included_attos: string
  withheld_attos: string
  price_attos: string | null
}

const periodRows = (db: Db, { appId, after, upTo }: UserRange): Promise<PeriodRow[]> =>
  many<PeriodRow>(
    db,
    sql`
    select user_id, (extract(epoch from starts_at) * 1000)::float8 as starts_ms,
           (extract(epoch from ends_at) * 1000)::float8 as ends_ms,
           (extract(epoch from counts_from) * 1000)::float8 as counts_from_ms,
           (extract(epoch from entered_at) * 1000)::float8 as entered_ms, after_seq, plan_id, plan_version, included_attos,
           withheld_attos, price_attos
    from periods
    where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}
    order by user_id, entered_at, starts_at`,
  )

const periodFromRow = (row: PeriodRow): EnteredPeriod => ({
  start: toDate(row.starts_ms),
  end: toDate(row.ends_ms),
  countsFrom: toDate(row.counts_from_ms),
  enteredAt: toDate(row.entered_ms),
  afterSeq: row.after_seq,
  terms: {
    planId: row.plan_id,
    planVersion: row.plan_version,
    includedAttos: BigInt(row.included_attos),
    withheldAttos: BigInt(row.withheld_attos),
    priceAttos: row.price_attos === null ? null : BigInt(row.price_attos),
  },
})

interface EndedRow {
  user_id: string
  id: string
  plan_id: string
  anchor_ms: number
  created_ms: number
  ended_ms: number
}

const endedSubscriptions = (db: Db, { appId, after, upTo }: UserRange): Promise<EndedRow[]> =>
  many<EndedRow>(
    db,
    sql`
    select h.user_id, h.id, coalesce(p.id::text, '') as plan_id,
           (extract(epoch from h.anchor_at) * 1000)::float8 as anchor_ms,
           (extract(epoch from h.created_at) * 1000)::float8 as created_ms,
           (extract(epoch from h.ended_at) * 1000)::float8 as ended_ms
    from subscription_history h
    left join plans p on p.app_id = h.app_id and p.id = h.plan_id
    where h.app_id = ${appId} and h.user_id > ${after} and h.user_id <= ${upTo}
    order by h.user_id, h.created_at`,
  )

const endedFromRow = (row: EndedRow): HeldSubscription => ({
  id: row.id,
  planId: row.plan_id,
  anchorAt: toDate(row.anchor_ms),
  createdAt: toDate(row.created_ms),
  endedAt: toDate(row.ended_ms),
  next: null,
})

async function planVersions(db: Db, app: AppId): Promise<PlanVersion[]> {
  const rows = await many<{
    plan_id: string
    version: number
    included_attos: string
    billing_cycle: BillingCycle
    created_at: Date
    is_free: boolean
    price_attos: string
  }>(
    db,
    sql`
    select v.plan_id, v.version, coalesce(v.included_attos, 0) as included_attos, v.billing_cycle, v.created_at,
           v.type = 'free' or p.is_starter_default as is_free,
           chargeable_price_attos(v.price_amount, v.price_currency) as price_attos
    from plan_versions v
    join plans p on p.app_id = v.app_id and p.id = v.plan_id
    where v.app_id = ${app}
    order by v.plan_id, v.version`,
  )
  return rows.map((row) => ({
    planId: row.plan_id,
    version: row.version,
    includedAttos: BigInt(row.included_attos),
    cycle: row.billing_cycle,
    createdAt: row.created_at,
    isFree: row.is_free,
    priceAttos: BigInt(row.price_attos),
  }))
}

interface UserRow {
  id: string
  external_user_id: string
  subscription_id: string | null
  plan_id: string | null
  anchor_ms: number | null
  subscribed_ms: number | null
  next_plan_id: string | null
  next_ms: number | null
  start_ms: number | null
  end_ms: number
  counts_from_ms: number
  period_consumed_attos: string
  booked_through_ms: number
  head_hash: string | null
}

const userRows = (db: Db, { appId, after, upTo }: UserRange): Promise<UserRow[]> =>
  many<UserRow>(
    db,
    sql`
    select u.id, u.external_user_id, s.id as subscription_id, p.id as plan_id,
           (extract(epoch from s.anchor_at) * 1000)::float8 as anchor_ms,
           (extract(epoch from s.created_at) * 1000)::float8 as subscribed_ms, s.next_plan_id,
           (extract(epoch from s.next_at) * 1000)::float8 as next_ms,
           (extract(epoch from b.period_start) * 1000)::float8 as start_ms,
           (extract(epoch from b.period_end) * 1000)::float8 as end_ms,
           (extract(epoch from b.period_counts_from) * 1000)::float8 as counts_from_ms, b.period_consumed_attos,
           (extract(epoch from b.booked_through) * 1000)::float8 as booked_through_ms,
           encode(b.head_hash, 'hex') as head_hash
    from end_users u
    left join balances b on b.app_id = u.app_id and b.user_id = u.id
    left join subscriptions s on s.app_id = u.app_id and s.user_id = u.id
    left join plans p on p.app_id = s.app_id and p.id = s.plan_id
    where u.app_id = ${appId} and u.id > ${after} and u.id <= ${upTo}
    order by u.id`,
  )

/** Returns the subscription in the slot; empty if the user has no subscription. */
function subscriptionsFromRow(row: UserRow): HeldSubscription[] {
  const { subscription_id: id, plan_id: planId, anchor_ms: anchor, subscribed_ms: since } = row
  if (id === null || planId === null || anchor === null || since === null) return []
  return [
    {
      id,
      planId,
      anchorAt: toDate(anchor),
      createdAt: toDate(since),
      endedAt: null,
      next:
        row.next_plan_id === null || row.next_ms === null
          ? null
          : { planId: row.next_plan_id, at: toDate(row.next_ms) },
    },
  ]
}

const balanceFromRow = (row: UserRow): StoredBalance | null =>
  row.start_ms === null
    ? null
    : {
        periodStart: toDate(row.start_ms),
        periodEnd: toDate(row.end_ms),
        periodCountsFrom: toDate(row.counts_from_ms),
        periodConsumed: attos(row.period_consumed_attos),
        bookedThrough: toDate(row.booked_through_ms),
        head: row.head_hash,
      }
