import type { Dialect } from '../dialect.ts'
import { toChecksumAddress } from '../wire/address.ts'
import { writeJson } from '../wire/go-json.ts'
import type { JsonOut } from '../wire/go-json.ts'
import type { EncodedEvent } from './lossy-queue.ts'
import { abs, decimalText, multiply, rational, round } from '../wire/rational.ts'
import type { Rational } from '../wire/rational.ts'
import type { Payment } from '../payment/payment.ts'
import { formatTime, toUnixMillis } from '../wire/time.ts'

const WIN_PROBABILITY = rational(1n, 10n)
const WEI_PER_ETH = 10n ** 18n

const PIPELINES: Readonly<Record<string, string>> = {
  lv2v: 'live-video-to-video',
  live: 'live',
  fixed: 'fixed',
}

export type EventSource = Readonly<{ dialect: Dialect; sender: string; newId: () => string }>

function envelope(type: string, at: bigint, event: { id: string; data: JsonOut }): EncodedEvent {
  const { id, data } = event
  const timestamp = toUnixMillis(at).toString()
  return { id, type, bytes: writeJson({ id, type, timestamp, gateway: '', data }) }
}

const checksum = (address: string): string =>
  toChecksumAddress(Buffer.from(address.slice(2), 'hex'))

function ethText(wei: Rational): string {
  const whole = round(wei)
  const fraction = (abs(whole) % WEI_PER_ETH).toString().padStart(18, '0').replace(/0+$/, '')
  return `${whole / WEI_PER_ETH}${fraction === '' ? '' : `.${fraction}`} ETH`
}

/** Queued before the webhook call, so that refused payments have this event, too. */
export function createNewPayment(payment: Payment, at: bigint, source: EventSource): EncodedEvent {
  const { orchestrator } = payment.request
  const faceValue = multiply(payment.ev, rational(WIN_PROBABILITY.d, WIN_PROBABILITY.n))
  const data = {
    capability: '',
    clientIP: '',
    faceValue: ethText(faceValue),
    manifestID: payment.manifestId,
    numTickets: payment.tickets.count.toString(),
    orchestrator: orchestrator.url,
    price: `${decimalText(payment.price, 3)} wei/pixel`,
    recipient: checksum(orchestrator.recipient),
    requestID: payment.requestId,
    sender: source.sender,
    sessionID: orchestrator.authSessionId,
    winProb: decimalText(WIN_PROBABILITY, 10),
  }
  return envelope('create_new_payment', at, { id: source.newId(), data })
}

function timesOf({ now, previous }: Payment): Readonly<Record<string, JsonOut>> {
  return {
    current_time: formatTime(now),
    current_time_unix: toUnixMillis(now),
    previous_time: formatTime(previous),
    previous_time_unix: toUnixMillis(previous),
  }
}

const sortMembers = (members: Readonly<Record<string, JsonOut>>): JsonOut =>
  Object.fromEntries(Object.entries(members).sort(([a], [b]) => (a < b ? -1 : 1)))

/**
 * The billing record, queued after a 200 and before the answer (docs/signer-events.md, "Signed
 * ticket").
 */
export function createSignedTicket(
  payment: Payment,
  at: bigint,
  source: EventSource,
): EncodedEvent {
  const { orchestrator } = payment.request
  const { work, state } = payment
  const data = sortMembers({
    ...timesOf(payment),
    ...(source.dialect.knowsApp && { app: state.app }),
    ...(source.dialect.successor && { computed_fee_usd: null, payer_address: source.sender }),
    auth_id: state.authId,
    billable_secs: work.billableSeconds,
    computed_fee: round(payment.fee).toString(),
    [source.dialect.costField]: decimalText(payment.price, 10),
    manifest_id: payment.manifestId,
    num_tickets: payment.tickets.count,
    orch_address: checksum(orchestrator.address),
    orch_url: orchestrator.url,
    pipeline: PIPELINES[state.type] ?? '',
    pixels: work.pixels,
    pm_session_id: state.pmSessionId,
    request_id: payment.requestId,
    sequence_number: state.sequenceNumber,
    session_balance: round(state.balance).toString(),
    session_id: state.stateId,
    session_status: state.sequenceNumber === 0n ? 'new' : 'continuing',
  })
  return envelope('create_signed_ticket', at, { id: source.newId(), data })
}
