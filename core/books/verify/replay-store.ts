import type { CreditDebit } from '../../balances/accounts/chain.ts'
import type { StoredEntry } from '../../balances/ledger/facts.ts'
import { type EthRate, type UsdAttos, type Wei, ethRate, usdAttos, wei } from '../../lib/money.ts'
import { type Db, many, sql } from '../../lib/sql.ts'
import { appId, userId } from '../../shared/ids.ts'
import type { UserRange } from '../types.ts'

/** Reads entries and tickets in booking order, through cursors, one page in memory. */

const pageSize = 4_000

export const attos = (text: string): UsdAttos => usdAttos(BigInt(text))
export const toDate = (ms: number): Date => new Date(ms)
export const dateOrNull = (ms: number | null): Date | null => (ms === null ? null : new Date(ms))

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
  collected_attos: string
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
  owner_user_id: string | null
  owner_attos: string | null
  charged_app_id: string | null
}

/** Yields all entries of users, by user and number. */
export async function* readEntries(
  db: Db,
  { appId, after, upTo }: UserRange,
): AsyncGenerator<EntryOfUser> {
  await db.query(sql`
    declare entries no scroll cursor for
    select user_id, seq, kind, amount_attos, overage_attos, collected_attos, balance_after_attos, cause_id,
           (extract(epoch from created_at) * 1000)::float8 as created_ms, ticket_count, credit_ids::text[] as credit_ids,
           credit_attos::text[] as credit_attos, period_attos, unpriced_change,
           (extract(epoch from rates_known_at) * 1000)::float8 as rates_known_ms,
           encode(tickets_hash, 'hex') as tickets_hash, encode(hash, 'hex') as hash, owner_user_id, owner_attos, charged_app_id
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
  collected: attos(row.collected_attos),
  balanceAfter: attos(row.balance_after_attos),
  causeId: row.cause_id,
  createdAt: toDate(row.created_ms),
  tickets: row.ticket_count,
  draws: drawsOf(row),
  periodAmount: attos(row.period_attos),
  unpricedChange: row.unpriced_change,
  ratesKnownAt: dateOrNull(row.rates_known_ms),
  ticketsHash: row.tickets_hash,
  owner:
    row.owner_user_id === null || row.owner_attos === null
      ? null
      : { userId: userId(row.owner_user_id), amount: attos(row.owner_attos) },
  chargedApp: row.charged_app_id === null ? null : appId(row.charged_app_id),
  hash: row.hash,
})

const drawsOf = ({ credit_ids: ids, credit_attos: amounts }: EntryRow): CreditDebit[] =>
  (ids ?? []).map((creditId, i) => ({ creditId, amount: attos(amounts?.[i] ?? '0') }))

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
        observedAt: toDate(row.observed_ms),
        source: row.source,
        next:
          row.next_micros === null || row.recorded_ms === null
            ? null
            : { observedMicros: Number(row.next_micros), recordedAt: toDate(row.recorded_ms) },
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
