import type { Credit, EnteredPeriod } from '../../allowances/account.ts'
import type { CreditDebit } from '../../allowances/chain.ts'
import type {
  AccountFacts,
  HeldSubscription,
  StoredAdjustment,
  StoredBalance,
  StoredEntry,
} from '../../allowances/replay.ts'
import type { PlanVersion } from '../../allowances/terms.ts'
import { type EthRate, type UsdAttos, type Wei, ethRate, usdAttos, wei } from '../../lib/money.ts'
import { type Db, many, sql } from '../../lib/sql.ts'
import type { BillingCycle } from '../../lib/time.ts'
import type { AppId } from '../../platform/ids.ts'
import type { UserRange } from '../types.ts'

/** Reads the facts of the ledger in booking order, through cursors, one page in memory. */

const pageSize = 4_000

const attos = (text: string): UsdAttos => usdAttos(BigInt(text))
const dateOf = (ms: number): Date => new Date(ms)
const dateOrNull = (ms: number | null): Date | null => (ms === null ? null : new Date(ms))

/** Yields the rows of a cursor that the transaction has declared. */
async function* pagesOf<Row extends object>(
  db: Db,
  name: 'entries' | 'charged',
): AsyncGenerator<Row> {
  try {
    for (;;) {
      // `fetch` takes no parameters. The name is one of two constants.
      const { rows } = await db.query<Row>(`fetch ${pageSize} from ${name}`)
      yield* rows
      if (rows.length < pageSize) return
    }
  } finally {
    await db.query(`close ${name}`)
  }
}

export interface EntryOfUser {
  readonly userId: string
  readonly entry: StoredEntry
}

interface EntryRow {
  user_id: string
  seq: bigint
  kind: StoredEntry['kind']
  amount_attos: string
  overage_attos: string
  balance_after_attos: string
  cause_id: string
  created_ms: number
  ticket_count: number | null
  credit_ids: string[] | null
  credit_attos: string[] | null
  period_attos: string
  unpriced_change: number
  rates_known_ms: number | null
  tickets_hash: string | null
  hash: string
}

/** Yields all entries of users, by user and number. */
export async function* entriesOf(
  db: Db,
  { appId, after, upTo }: UserRange,
): AsyncGenerator<EntryOfUser> {
  await db.query(sql`
    declare entries no scroll cursor for
    select user_id, seq, kind, amount_attos, overage_attos, balance_after_attos, cause_id,
           (extract(epoch from created_at) * 1000)::float8 as created_ms, ticket_count, credit_ids::text[] as credit_ids,
           credit_attos::text[] as credit_attos, period_attos, unpriced_change,
           (extract(epoch from rates_known_at) * 1000)::float8 as rates_known_ms,
           encode(tickets_hash, 'hex') as tickets_hash, encode(hash, 'hex') as hash
    from ledger_entries
    where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}
    order by user_id, seq`)
  for await (const row of pagesOf<EntryRow>(db, 'entries'))
    yield { userId: row.user_id, entry: entryFromRow(row) }
}

const entryFromRow = (row: EntryRow): StoredEntry => ({
  seq: row.seq,
  kind: row.kind,
  amount: attos(row.amount_attos),
  overage: attos(row.overage_attos),
  balanceAfter: attos(row.balance_after_attos),
  causeId: row.cause_id,
  createdAt: dateOf(row.created_ms),
  tickets: row.ticket_count,
  draws: drawsOf(row),
  periodAmount: attos(row.period_attos),
  unpricedChange: row.unpriced_change,
  ratesKnownAt: dateOrNull(row.rates_known_ms),
  ticketsHash: row.tickets_hash,
  hash: row.hash,
})

/** Returns null when the draws are unknown: no credit ids and no hash. */
function drawsOf({ credit_ids: ids, credit_attos: amounts, hash }: EntryRow): CreditDebit[] | null {
  if (ids === null) return hash === null ? null : []
  return ids.map((creditId, i) => ({ creditId, amount: attos(amounts?.[i] ?? '0') }))
}

export interface ChargedTicket {
  readonly userId: string
  readonly seq: bigint
  readonly eventId: string
  /** By the clock of the app. */
  readonly signedAtMicros: number
  /** Milliseconds by which the app's clock was ahead. */
  readonly aheadMs: number
  readonly receivedAtMs: number
  readonly pipeline: string
  readonly modelId: string
  readonly fee: Wei
  readonly cost: UsdAttos
  readonly retail: UsdAttos
  readonly platformFee: UsdAttos
  readonly platformWei: Wei
  readonly termsId: bigint | null
  /** Whether it has a plan version, a retail price or a platform fee. */
  readonly isSold: boolean
  readonly rateId: bigint
  readonly key: Buffer | null
  readonly digest: Buffer | null
}

interface TicketRow {
  user_id: string
  seq: bigint
  event_id: string
  micros: bigint
  ahead_ms: bigint
  received_ms: number
  pipeline: string
  model_id: string
  fee_wei: string
  cost_attos: string
  retail_attos: string | null
  platform_fee_attos: string | null
  platform_fee_wei: string | null
  terms_id: bigint | null
  rate_id: bigint
  key: Buffer | null
  digest: Buffer | null
}

/** Yields all charged tickets of users, in booking order. */
export async function* chargedTickets(
  db: Db,
  { appId, after, upTo }: UserRange,
): AsyncGenerator<ChargedTicket> {
  await db.query(sql`
    declare charged no scroll cursor for
    select t.user_id, l.seq, t.event_id, (extract(epoch from t.signed_at) * 1000000)::bigint as micros, t.pipeline,
           t.model_id, t.fee_wei, t.cost_attos, t.retail_attos, t.platform_fee_attos, t.platform_fee_wei, t.terms_id,
           t.rate_id, uuid_send(e.key) as key, uuid_send(e.digest) as digest, coalesce(t.clock_ms, 0) as ahead_ms,
           (extract(epoch from t.received_at) * 1000)::float8 as received_ms
    from tickets t
    join ledger_entries l
      on l.app_id = t.app_id and l.user_id = t.user_id and l.cause_id = t.charge_id and l.kind = 'charge'
    left join envelopes e on e.key = case
      when t.event_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then t.event_id::uuid
      else left(encode(sha256(convert_to(t.event_id, 'UTF8')), 'hex'), 32)::uuid end
    where t.app_id = ${appId} and t.user_id > ${after} and t.user_id <= ${upTo}
    order by t.user_id, l.seq`)
  for await (const row of pagesOf<TicketRow>(db, 'charged')) yield ticketFromRow(row)
}

const ticketFromRow = (row: TicketRow): ChargedTicket => ({
  userId: row.user_id,
  seq: row.seq,
  eventId: row.event_id,
  signedAtMicros: Number(row.micros),
  aheadMs: Number(row.ahead_ms),
  receivedAtMs: row.received_ms,
  pipeline: row.pipeline,
  modelId: row.model_id,
  fee: wei(BigInt(row.fee_wei)),
  cost: attos(row.cost_attos),
  retail: attos(row.retail_attos ?? row.cost_attos),
  platformFee: attos(row.platform_fee_attos ?? '0'),
  platformWei: wei(BigInt(row.platform_fee_wei ?? '0')),
  termsId: row.terms_id,
  isSold: row.terms_id !== null || row.retail_attos !== null || row.platform_fee_attos !== null,
  rateId: row.rate_id,
  key: row.key,
  digest: row.digest,
})

/** A rate, and the next one by observation time. */
export interface RateInOrder {
  readonly usdAttosPerEth: EthRate
  readonly observedAt: Date
  readonly source: string
  readonly next: { readonly observedMicros: number; readonly recordedAt: Date } | null
}

export async function ratesById(db: Db, ids: readonly bigint[]): Promise<Map<bigint, RateInOrder>> {
  const rows = await many<{
    id: bigint
    usd_attos_per_eth: string
    observed_ms: number
    source: string
    next_micros: bigint | null
    recorded_ms: number | null
  }>(
    db,
    sql`
    select r.id, r.usd_attos_per_eth, floor(extract(epoch from r.observed_at) * 1000)::float8 as observed_ms, r.source,
           (extract(epoch from n.observed_at) * 1000000)::bigint as next_micros,
           (extract(epoch from n.created_at) * 1000)::float8 as recorded_ms
    from rates r
    left join lateral (
      select observed_at, created_at
      from rates
      where (observed_at, id) > (r.observed_at, r.id)
      order by observed_at, id
      limit 1) n on true
    where r.id = any(${ids}::bigint[])`,
  )
  return new Map(
    rows.map((row) => [
      row.id,
      {
        usdAttosPerEth: ethRate(BigInt(row.usd_attos_per_eth)),
        observedAt: dateOf(row.observed_ms),
        source: row.source,
        next:
          row.next_micros === null || row.recorded_ms === null
            ? null
            : { observedMicros: Number(row.next_micros), recordedAt: dateOf(row.recorded_ms) },
      },
    ]),
  )
}

/** Charges with some tickets only in archives, as "user charge". */
export async function archivedCharges(
  db: Db,
  { appId, after, upTo }: UserRange,
): Promise<Set<string>> {
  const rows = await many<{ user_id: string; charge_id: string }>(
    db,
    sql`
    select distinct user_id, charge_id
    from archived_charges
    where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo} and tickets > 0`,
  )
  return new Set(rows.map((row) => `${row.user_id} ${row.charge_id}`))
}

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
        owner: { appId: range.appId, userId: row.id },
        credits: new Map((credits.get(row.id) ?? []).map((of) => [of.id, creditFromRow(of)])),
        adjustments: new Map(
          (adjustments.get(row.id) ?? []).map((of) => [of.id, adjustmentFromRow(of)]),
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
  effectiveAt: dateOf(row.effective_ms),
  expiresAt: dateOrNull(row.expires_ms),
  expiredAt: dateOrNull(row.expired_ms),
  createdAt: dateOf(row.created_ms),
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
  held_attos: string | null
  pipeline: string | null
  model_id: string | null
}

const adjustmentRows = (db: Db, { appId, after, upTo }: UserRange): Promise<AdjustmentRow[]> =>
  many<AdjustmentRow>(
    db,
    sql`
    select a.user_id, a.id, a.amount_attos, a.reason, a.author, a.event_id,
           (extract(epoch from a.created_at) * 1000)::float8 as created_ms, a.held_attos, t.pipeline, t.model_id
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
  at: dateOf(row.created_ms),
  held: row.held_attos === null ? null : attos(row.held_attos),
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
  withheld_attos: string | null
}

const periodRows = (db: Db, { appId, after, upTo }: UserRange): Promise<PeriodRow[]> =>
  many<PeriodRow>(
    db,
    sql`
    select user_id, (extract(epoch from starts_at) * 1000)::float8 as starts_ms,
           (extract(epoch from ends_at) * 1000)::float8 as ends_ms,
           (extract(epoch from counts_from) * 1000)::float8 as counts_from_ms,
           (extract(epoch from entered_at) * 1000)::float8 as entered_ms, after_seq, plan_id, plan_version, included_attos,
           withheld_attos
    from periods
    where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}
    order by user_id, entered_at, starts_at`,
  )

const periodFromRow = (row: PeriodRow): EnteredPeriod => ({
  start: dateOf(row.starts_ms),
  end: dateOf(row.ends_ms),
  countsFrom: dateOf(row.counts_from_ms),
  enteredAt: dateOf(row.entered_ms),
  afterSeq: row.after_seq,
  terms: {
    planId: row.plan_id,
    planVersion: row.plan_version,
    includedAttos: BigInt(row.included_attos),
    withheldAttos: row.withheld_attos === null ? null : BigInt(row.withheld_attos),
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
  anchorAt: dateOf(row.anchor_ms),
  createdAt: dateOf(row.created_ms),
  endedAt: dateOf(row.ended_ms),
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
  }>(
    db,
    sql`
    select v.plan_id, v.version, coalesce(v.included_attos, 0) as included_attos, v.billing_cycle, v.created_at,
           v.type = 'free' or p.is_starter_default as is_free
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
      anchorAt: dateOf(anchor),
      createdAt: dateOf(since),
      endedAt: null,
      next:
        row.next_plan_id === null || row.next_ms === null
          ? null
          : { planId: row.next_plan_id, at: dateOf(row.next_ms) },
    },
  ]
}

const balanceFromRow = (row: UserRow): StoredBalance | null =>
  row.start_ms === null
    ? null
    : {
        periodStart: dateOf(row.start_ms),
        periodEnd: dateOf(row.end_ms),
        periodCountsFrom: dateOf(row.counts_from_ms),
        periodConsumed: attos(row.period_consumed_attos),
        bookedThrough: dateOf(row.booked_through_ms),
        head: row.head_hash,
      }
