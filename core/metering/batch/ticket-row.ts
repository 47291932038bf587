import { type RowBuffer, createRowBuffer, uuidBytes } from '../../lib/copy-sql.ts'
import { quickInteger } from '../../lib/decimal.ts'
import { getOrInsert } from '../../lib/maps.ts'
import type { Priced, SignedTicket, Subject } from '../types.ts'

/**
 * A ticket's row as COPY takes it, in two parts: what the event says, written when it is parsed, and what the
 * database's state decides, written when it is stored.
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
  'replayed',
  'received_at',
] as const

/** Writes the first part; the second must follow it. */
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
const firstBytes = 64 * 1024

/** The event id of a row that begins at `from`. */
export function eventIdIn(rows: Buffer, from: number): string {
  const length = rows.readInt32BE(from + 2)
  return rows.toString('utf8', from + idAt, from + idAt + length)
}

export interface Outcome {
  readonly subject: Subject
  readonly price: Priced | null
  readonly replayed: boolean
}

const maxPrices = 1_000

/** Writes the second parts of a batch's rows. What many have in common is encoded once. */
export function outcomeWriter(
  out: RowBuffer,
  { chargeId, at }: { readonly chargeId: string; readonly at: Date },
) {
  const charge = uuidBytes(chargeId)
  const parts = createRowBuffer(new ArrayBuffer(firstBytes))
  const users = new Map<Subject, Buffer>()
  const prices = new Map<Priced | null, Buffer>()

  function part(write: () => void): Buffer {
    const start = parts.end()
    write()
    return parts.slice(start, parts.end())
  }

  const ofUser = (subject: Subject): Buffer =>
    part(() => {
      parts.uuid(uuidBytes(subject.appId))
      parts.uuid(uuidBytes(subject.userId))
    })

  const ofPrice = (price: Priced | null): Buffer =>
    part(() => {
      if (price === null) {
        parts.none()
        parts.none()
        parts.none()
      } else {
        parts.int8(price.rateId)
        parts.numeric(String(price.cost))
        parts.uuid(charge)
      }
    })

  return ({ subject, price, replayed }: Outcome): void => {
    if (prices.size >= maxPrices) prices.clear()
    const user = getOrInsert(users, subject, () => ofUser(subject))
    const priced = getOrInsert(prices, price, () => ofPrice(price))
    out.copy(user, 0, user.length)
    out.copy(priced, 0, priced.length)
    out.boolean(replayed)
    out.instant(at.getTime() * 1000)
  }
}
