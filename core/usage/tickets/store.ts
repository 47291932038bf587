import type { CreditDebit } from '../../balances/accounts/chain.ts'
import type { TicketCharge } from '../../metering/ingest/charges.ts'
import { type AppId, type UserId, type UserKey, appId, userId } from '../../shared/ids.ts'
import { type EthRate, type UsdAttos, type Wei, ethRate, usdAttos, wei } from '../../lib/money.ts'
import { type Db, many, maybeOne, sql } from '../../lib/sql.ts'

/** Reads a ticket with all data behind its prices. */

export interface BookedTicket {
  readonly appId: AppId
  readonly clientId: string
  readonly userId: UserId
  readonly externalUserId: string | null
  readonly eventId: string
  readonly requestId: string
  readonly sessionId: string
  readonly sequenceNumber: bigint
  readonly manifestId: string
  readonly pipeline: string
  readonly modelId: string
  /** UTC with microseconds. */
  readonly signedAt: string
  /** Milliseconds by which the app's clock, used for `signedAt`, was ahead. */
  readonly aheadMs: number
  readonly receivedAt: Date
  readonly fee: Wei
  /** Null while it waits for a rate. */
  readonly sale: BookedSale | null
}

export interface BookedSale {
  readonly rate: {
    readonly id: bigint
    readonly source: string
    readonly observedAt: Date
    readonly usdAttosPerEth: EthRate
  }
  readonly cost: UsdAttos
  readonly retail: UsdAttos
  readonly platformFee: UsdAttos
  readonly platformWei: Wei
  /** Null for tickets with prices fixed elsewhere. */
  readonly termsId: bigint | null
  readonly planName: string | null
  readonly chargeId: string
}

interface TicketRow {
  app_id: string
  client_id: string
  user_id: string
  external_user_id: string | null
  event_id: string
  request_id: string
  session_id: string
  sequence_number: bigint
  manifest_id: string
  pipeline: string
  model_id: string
  signed_at: string
  ahead_ms: bigint
  received_at: Date
  fee_wei: string
  rate_id: bigint | null
  source: string | null
  observed_at: Date | null
  usd_attos_per_eth: string | null
  cost_attos: string | null
  retail_attos: string | null
  platform_fee_attos: string | null
  platform_fee_wei: string | null
  terms_id: bigint | null
  plan_name: string | null
  charge_id: string | null
}

/**
 * Returns the ticket of an event, in one app or any; null without one. Requires `inRequest`. Hides
 * the app's id from the planner, which would otherwise use it to read all tickets of the app.
 */
export async function findTicket(
  db: Db,
  eventId: string,
  onlyApp: AppId | null,
): Promise<BookedTicket | null> {
  const row = await maybeOne<TicketRow>(
    db,
    sql`
    select t.app_id, c.client_id, t.user_id, u.external_user_id, t.event_id, t.request_id, t.session_id, t.sequence_number,
           coalesce(nullif(t.manifest_id, '') collate "C", t.session_id) as manifest_id, t.pipeline, t.model_id,
           to_char(t.signed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as signed_at, t.received_at, t.fee_wei,
           t.rate_id, r.source, r.observed_at, r.usd_attos_per_eth, t.cost_attos, t.retail_attos, t.platform_fee_attos,
           t.platform_fee_wei, t.terms_id, p.name as plan_name, t.charge_id,
           coalesce(t.clock_ms, 0) as ahead_ms
    from tickets t
    join clients c on c.app_id = t.app_id and c.kind = 'public'
    left join end_users u on u.app_id = t.app_id and u.id = t.user_id
    left join rates r on r.id = t.rate_id
    left join plan_versions v on v.id = t.terms_id
    left join plans p on p.app_id = v.app_id and p.id = v.plan_id
    where t.event_id = ${eventId} and (${onlyApp}::text is null or t.app_id::text = ${onlyApp})
    order by t.signed_at
    limit 1`,
  )
  return row && toTicket(row)
}

const toTicket = (row: TicketRow): BookedTicket => ({
  appId: appId(row.app_id),
  clientId: row.client_id,
  userId: userId(row.user_id),
  externalUserId: row.external_user_id,
  eventId: row.event_id,
  requestId: row.request_id,
  sessionId: row.session_id,
  sequenceNumber: row.sequence_number,
  manifestId: row.manifest_id,
  pipeline: row.pipeline,
  modelId: row.model_id,
  signedAt: row.signed_at,
  aheadMs: Number(row.ahead_ms),
  receivedAt: row.received_at,
  fee: wei(BigInt(row.fee_wei)),
  sale: toSale(row),
})

function toSale(row: TicketRow): BookedSale | null {
  const { rate_id: id, source, observed_at: observedAt, usd_attos_per_eth: rate } = row
  const { cost_attos: cost, charge_id: chargeId } = row
  if (id === null || source === null || observedAt === null || rate === null) return null
  if (cost === null || chargeId === null) return null
  return {
    rate: { id, source, observedAt, usdAttosPerEth: ethRate(BigInt(rate)) },
    cost: attos(cost),
    retail: attos(row.retail_attos ?? cost),
    platformFee: attos(row.platform_fee_attos ?? '0'),
    platformWei: wei(BigInt(row.platform_fee_wei ?? '0')),
    termsId: row.terms_id,
    planName: row.plan_name,
    chargeId,
  }
}

const attos = (text: string): UsdAttos => usdAttos(BigInt(text))

/** A ticket's charge in the ledger. */
export interface BookedCharge {
  readonly id: string
  readonly seq: bigint
  readonly bookedAt: Date
  /** In real time; null if the prices were fixed elsewhere. */
  readonly ratesKnownAt: Date | null
  /** Amount paid by credits. */
  readonly paid: UsdAttos
  readonly overage: UsdAttos
  readonly ticketCount: number
  readonly draws: readonly CreditDebit[]
}

/** Requires `inRequest`. */
export async function findCharge(
  db: Db,
  { appId: app, userId: user }: UserKey,
  id: string,
): Promise<BookedCharge | null> {
  const row = await maybeOne<{
    seq: bigint
    created_at: Date
    rates_known_at: Date | null
    amount_attos: string
    overage_attos: string
    ticket_count: number
    credit_ids: string[]
    credit_attos: string[]
  }>(
    db,
    sql`
    select seq, created_at, rates_known_at, amount_attos, overage_attos, ticket_count,
           coalesce(credit_ids::text[], '{}') as credit_ids, coalesce(credit_attos::text[], '{}') as credit_attos
    from ledger_entries
    where cause_id = ${id} and kind = 'charge' and app_id::text = ${app} and user_id::text = ${user}`,
  )
  return (
    row && {
      id,
      seq: row.seq,
      bookedAt: row.created_at,
      ratesKnownAt: row.rates_known_at,
      paid: usdAttos(-BigInt(row.amount_attos)),
      overage: attos(row.overage_attos),
      ticketCount: row.ticket_count,
      draws: row.credit_ids.map((creditId, i) => ({
        creditId,
        amount: attos(row.credit_attos[i] ?? '0'),
      })),
    }
  )
}

/**
 * Returns a charge's tickets in a time span, from the first `limit` of the user's tickets there.
 */
export async function ticketsOfCharge(
  db: Db,
  { appId: app, userId: user }: UserKey,
  { chargeId, from, to, limit }: { chargeId: string; from: Date; to: Date; limit: number },
): Promise<TicketCharge[]> {
  const rows = await many<{
    event_id: string
    signed_ms: number
    pipeline: string
    model_id: string
    retail: string
  }>(
    db,
    sql`
    select event_id, signed_ms, pipeline, model_id, retail
    from (
      select event_id, charge_id, floor(extract(epoch from signed_at) * 1000)::float8 as signed_ms, pipeline, model_id,
             coalesce(retail_attos, cost_attos)::text as retail
      from tickets
      where app_id = ${app} and user_id = ${user} and signed_at >= ${from} and signed_at < ${to}
      order by signed_at
      limit ${limit}) around
    where charge_id = ${chargeId}`,
  )
  return rows.map((row) => ({
    appId: app,
    userId: user,
    eventId: row.event_id,
    signedAt: new Date(row.signed_ms),
    pipeline: row.pipeline,
    modelId: row.model_id,
    cost: attos(row.retail),
  }))
}

export interface ChargedPeriod {
  readonly start: Date
  readonly end: Date
  readonly planId: string
  readonly planVersion: number
}

/**
 * Returns the period in which a ticket was sold (docs/money.md, "The version of a ticket"): of the
 * periods that the account had entered before the charge, the last that had begun at signing, else
 * the first.
 */
export async function findPeriod(
  db: Db,
  { appId: app, userId: user }: UserKey,
  { seq, signedAt }: { readonly seq: bigint; readonly signedAt: string },
): Promise<ChargedPeriod | null> {
  const row = await maybeOne<{
    starts_at: Date
    ends_at: Date
    plan_id: string
    plan_version: number
  }>(
    db,
    sql`
    select starts_at, ends_at, plan_id, plan_version
    from periods
    where app_id = ${app} and user_id = ${user} and after_seq < ${seq}
    order by starts_at <= ${signedAt}::timestamptz desc,
             case when starts_at <= ${signedAt}::timestamptz then starts_at end desc, starts_at
    limit 1`,
  )
  return (
    row && {
      start: row.starts_at,
      end: row.ends_at,
      planId: row.plan_id,
      planVersion: row.plan_version,
    }
  )
}
