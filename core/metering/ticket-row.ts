import type { RowBuffer } from '../lib/copy-sql.ts'
import type { SignedTicket } from './types.ts'

/**
 * A ticket's row as COPY takes it, in two parts: what the event says, written when it is parsed, and what the
 * database's state decides, written when it is stored.
 */
export const ticketColumns = [
  'event_id', 'signed_at', 'session_id', 'sequence_number', 'request_id', 'manifest_id', 'app_name', 'pipeline',
  'model_id', 'fee_wei', 'billable_secs', 'pixels', 'num_tickets', 'orch_address', 'orch_url', 'emitted_at',
  'stated_usd',
  'app_id', 'user_id', 'rate_id', 'cost_attos', 'charge_id', 'replayed', 'received_at',
] as const

/** Writes the first part; `writeOutcome` must follow it. */
export function writeTicket(rows: RowBuffer, ticket: SignedTicket): void {
  rows.row(ticketColumns.length)
  rows.text(ticket.eventId)
  rows.instant(ticket.signedAtMicros)
  rows.text(ticket.sessionId)
  rows.int8(BigInt(ticket.sequenceNumber))
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

/** The event id of a row that begins at `from`. */
export function eventIdIn(rows: Buffer, from: number): string {
  const length = rows.readInt32BE(from + 2)
  return rows.toString('utf8', from + idAt, from + idAt + length)
}

export interface OutcomeOf {
  readonly appId: Uint8Array
  readonly userId: Uint8Array
  readonly price: { readonly rateId: bigint; readonly costAttos: string; readonly chargeId: Uint8Array } | null
  readonly replayed: boolean
  readonly receivedAtMs: number
}

/** Writes the second part. */
export function writeOutcome(rows: RowBuffer, { appId, userId, price, replayed, receivedAtMs }: OutcomeOf): void {
  rows.uuid(appId)
  rows.uuid(userId)
  if (price === null) {
    rows.none()
    rows.none()
    rows.none()
  } else {
    rows.int8(price.rateId)
    rows.numeric(price.costAttos)
    rows.uuid(price.chargeId)
  }
  rows.boolean(replayed)
  rows.instant(receivedAtMs * 1000)
}
