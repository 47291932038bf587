import { type RowBuffer, createRowBuffer } from '../../lib/copy-sql.ts'
import { quickInteger } from '../../lib/decimal.ts'
import { getOrInsert } from '../../lib/maps.ts'
import type { EthRate, Wei } from '../../lib/money.ts'
import type { SignedTicket } from '../events/parse.ts'
import { type Prices, type PricedTicket, type Tariff, toPrices } from './tariff.ts'
import type { Subject } from './subjects.ts'

/**
 * Writes a ticket's row in the binary COPY format, in two parts: the event's data, when it is
 * parsed, and the values that depend on the database, when its write is planned.
 *
 * Gains: fields are written directly into reused memory, and parts shared by many tickets are
 * encoded once; the `ingest by COPY` row of `npm run bench` shows it. Plain version: `insert` with
 * the values as text. test/core/lib/copy.test.ts compares the encoding with Postgres's reading of
 * such text, and test/core/metering/ingest/ingest.test.ts reads whole rows back.
 */
export const ticketColumns = [
  'event_id',
  'signed_at',
  'session_id',
  'sequence_number',
  'request_id',
  'manifest_id',
  'app_name',
  'pipeline',
  'model_id',
  'fee_wei',
  'billable_secs',
  'pixels',
  'num_tickets',
  'orch_address',
  'orch_url',
  'emitted_at',
  'stated_usd',
  'app_id',
  'user_id',
  'rate_id',
  'cost_attos',
  'charge_id',
  'retail_attos',
  'platform_fee_attos',
  'platform_fee_wei',
  'terms_id',
  'replayed',
  'received_at',
  'clock_ms',
] as const

/** Writes the first part of a row. The second must follow. */
export function writeTicket(rows: RowBuffer, ticket: SignedTicket): void {
  rows.row(ticketColumns.length)
  rows.text(ticket.eventId)
  rows.instant(ticket.signedAtMicros)
  rows.text(ticket.sessionId)
  rows.int8(quickInteger(ticket.sequenceNumber) || BigInt(ticket.sequenceNumber))
  rows.text(ticket.requestId)
  rows.text(ticket.manifestId)
  rows.text(ticket.appName)
  rows.text(ticket.pipeline)
  rows.text(ticket.modelId)
  rows.numeric(String(ticket.fee))
  rows.numeric(ticket.billableSecs)
  rows.numeric(ticket.pixels)
  rows.int4(ticket.numTickets)
  rows.text(ticket.orchAddress)
  rows.text(ticket.orchUrl)
  if (ticket.emittedAtMs === null) rows.none()
  else rows.instant(ticket.emittedAtMs * 1000)
  if (ticket.statedUsd === null) rows.none()
  else rows.numeric(ticket.statedUsd)
}

const idAt = 2 + 4
const instantBytes = 4 + 8
const firstBytes = 64 * 1024

/** Returns the event id of the row that begins at `from`. */
export function eventIdIn(rows: Buffer, from: number): string {
  const length = rows.readInt32BE(from + 2)
  return rows.toString('utf8', from + idAt, from + idAt + length)
}

/** Copies the first part of a row with another signing time. */
export function copyDated(
  out: RowBuffer,
  rows: Buffer,
  { from, to, micros }: { readonly from: number; readonly to: number; readonly micros: number },
): void {
  const signedAt = from + idAt + rows.readInt32BE(from + 2)
  out.copy(rows, from, signedAt)
  out.instant(micros)
  out.copy(rows, signedAt + instantBytes, to)
}

/** The rate that prices a ticket. */
export interface PricingRate {
  readonly usdAttosPerEth: EthRate
  readonly observedAt: Date
}

/** Cost and prices of a ticket, and their rate. */
export interface TicketPrice extends Prices {
  readonly rateId: bigint
  readonly rate: PricingRate
}

const maxPrices = 1_000
/** Number of columns that are null without a price, excluding the terms. */
const priceColumns = 6

/**
 * Prices fees by rates and tariffs. Equal inputs return the same object, because fees repeat and
 * `rowTailWriter` encodes each price object once.
 */
export function createPrices() {
  const byTariff = new Map<Tariff, Map<bigint, Map<bigint, TicketPrice>>>()

  return (rate: PricingRate & { readonly id: bigint }, fee: Wei, tariff: Tariff): TicketPrice => {
    const byRate = getOrInsert(byTariff, tariff, () => new Map<bigint, Map<bigint, TicketPrice>>())
    const prices = getOrInsert(byRate, rate.id, () => new Map<bigint, TicketPrice>())
    if (prices.size >= maxPrices) prices.clear()
    return getOrInsert(prices, fee, () => ({
      rateId: rate.id,
      rate,
      ...toPrices(fee, rate.usdAttosPerEth, tariff),
    }))
  }
}

/** Data of a row's second part. */
export interface TicketRest {
  readonly subject: Subject
  readonly price: TicketPrice | null
  readonly sale: PricedTicket
  /** Whether its session already had this sequence number. */
  readonly replayed: boolean
  /** Milliseconds by which the app's clock was ahead. */
  readonly aheadMs: number
}

/**
 * Returns a function that writes the second parts of a batch's rows. A price shared by many tickets
 * is encoded once.
 */
export function rowTailWriter(
  out: RowBuffer,
  { chargeId, at }: { readonly chargeId: string; readonly at: Date },
) {
  const parts = createRowBuffer(new ArrayBuffer(firstBytes))
  const prices = new Map<TicketPrice | null, Buffer>()

  function part(write: () => void): Buffer {
    const start = parts.end()
    write()
    return parts.slice(start, parts.end())
  }

  const ofPrice = (price: TicketPrice | null): Buffer =>
    part(() => {
      if (price === null) {
        for (let column = 0; column < priceColumns; column++) parts.none()
      } else {
        parts.int8(price.rateId)
        parts.numeric(String(price.cost))
        parts.hex(chargeId)
        optional(price.retail, price.cost)
        optional(price.platformFee, 0n)
        optional(price.platformWei, 0n)
      }
    })

  /** Writes null for the value that nearly all tickets have. */
  function optional(amount: bigint, usual: bigint): void {
    if (amount === usual) parts.none()
    else parts.numeric(String(amount))
  }

  return ({ subject, price, sale, replayed, aheadMs }: TicketRest): void => {
    if (prices.size >= maxPrices) prices.clear()
    const priced = getOrInsert(prices, price, () => ofPrice(price))
    out.hex(subject.appId)
    out.hex(subject.userId)
    out.copy(priced, 0, priced.length)
    if (price === null || sale.termsId === null) out.none()
    else out.int8(sale.termsId)
    out.boolean(replayed)
    out.instant(at.getTime() * 1000)
    if (aheadMs === 0) out.none()
    else out.int8(BigInt(aheadMs))
  }
}
