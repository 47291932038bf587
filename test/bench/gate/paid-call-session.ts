import { randomBytes, randomUUID } from 'node:crypto'

/** Wei per seven seconds, so that fees are fractions. */
const price = 85_714_285_714
const pricedSeconds = 7
/** Seconds billed by the first call of a session. */
const firstSeconds = 10
const orchestrator = '0x5bE44e23041E93CDF9bCd5A0968524e104e38ae1'
const zone = '000000000'

export interface Payer {
  readonly credential: string
  /** `client:user`, as in the webhook's answer. */
  readonly authId: string
}

/** A payment session as its client and the signer continue it. Changed in place. */
export interface PaymentSession {
  readonly payer: Payer
  readonly id: string
  readonly pmSession: string
  readonly manifest: string
  /** Number of the next call. */
  sequence: number
  authId: string
  /** Time of the last allowed call; `next` is the time of the open call. */
  last: SignedAt | null
  next: SignedAt
  request: RequestTemplate
}

/** Time of a signature, in milliseconds and in the signer's format. */
interface SignedAt {
  readonly ms: number
  readonly text: string
}

/** One request, with the positions of the parts that change with every call. */
interface RequestTemplate {
  readonly bytes: Buffer
  readonly nonceAt: number
  readonly balanceAt: number
  readonly timeAt: number
  readonly sequenceAt: number
  readonly sequenceDigits: number
  readonly hasAuthId: boolean
}

const hex = (bytes: number): string => randomBytes(bytes).toString('hex')
const never: SignedAt = { ms: 0, text: '' }

/** Creates a session; its next call has the number `sequence`. */
export function newSession(payer: Payer, secret: string, sequence = 0): PaymentSession {
  const session = {
    payer,
    id: hex(4),
    pmSession: `0x${hex(32)}`,
    manifest: hex(4),
    sequence,
    authId: sequence === 0 ? '' : payer.authId,
    last: sequence === 0 ? null : timeNow(),
    next: never,
  }
  return { ...session, request: newRequest(session, secret) }
}

/**
 * Returns the bytes of the next call, signed now. The buffer belongs to the session and changes
 * with its next call.
 */
export function signCall(session: PaymentSession, secret: string): Buffer {
  const digits = String(session.sequence)
  if (
    digits.length !== session.request.sequenceDigits ||
    session.request.hasAuthId !== (session.authId !== '')
  )
    session.request = newRequest(session, secret)
  const { bytes, nonceAt, balanceAt, timeAt, sequenceAt } = session.request
  session.next = timeNow()
  bytes.write(digits, sequenceAt, 'latin1')
  bytes.write(session.next.text, timeAt, 'latin1')
  bytes.write(String(100 + (session.sequence % 400)), nonceAt, 'latin1')
  bytes.write(session.next.text.slice(-10, -1), balanceAt, 'latin1')
  return bytes
}

/** An allowed call with a signed ticket. */
export interface SignedCall {
  readonly session: PaymentSession
  readonly sequence: number
  /** Time of the previous call; null for the first. */
  readonly last: SignedAt | null
  readonly next: SignedAt
  readonly seconds: number
  readonly feeWei: number
}

/** Records that the webhook has allowed the call, and advances the session. */
export function acceptCall(session: PaymentSession): SignedCall {
  const { sequence, last, next } = session
  const elapsed = last ? secondsBetween(last, next) : firstSeconds
  const feeWei = Math.round((price * Math.ceil(elapsed)) / pricedSeconds)
  session.last = next
  session.sequence++
  return { session, sequence, last, next, seconds: elapsed, feeWei }
}

let second = 0
let prefix = ''
let counter = 0

/** Returns the time as RFC 3339 with nine decimal places, later than any previous one. */
function timeNow(): SignedAt {
  const ms = Date.now()
  if (Math.floor(ms / 1000) !== second) {
    second = Math.floor(ms / 1000)
    prefix = new Date(second * 1000).toISOString().slice(0, 20)
  }
  // Go omits trailing zeros, so the last digit is never zero.
  counter = (counter + 1) % 90_000
  const places = String((ms % 1000) * 1_000_000 + counter * 10 + 1)
  return { ms, text: `${prefix}${zone.slice(places.length)}${places}Z` }
}

/**
 * As in docs/signer-webhook.md: a balance is a fraction of the tickets' odds, with this many
 * digits in numerator and denominator.
 */
const balanceDigits = 165
const denominator = `7${'3'.repeat(balanceDigits - 1)}`

function newRequest(session: Omit<PaymentSession, 'request'>, secret: string): RequestTemplate {
  const sequence = String(session.sequence)
  const body = JSON.stringify({
    headers: {
      Accept: ['application/json'],
      'Accept-Encoding': ['identity'],
      Authorization: [`Bearer ${session.payer.credential}`],
      Connection: ['close'],
      'Content-Length': ['1184'],
      'Content-Type': ['application/json'],
      'User-Agent': ['livepeer-python-gateway/0.1'],
    },
    state: {
      StateID: session.id,
      PMSessionID: session.pmSession,
      LastUpdate: `2026-09-14T10:15:30.${zone}Z`,
      OrchestratorAddress: orchestrator.toLowerCase(),
      App: 'acme/echo',
      AuthExpiry: 0,
      SenderNonce: 100,
      Balance: `4${'9'.repeat(balanceDigits - 1)}/${denominator}`,
      InitialPricePerUnit: price,
      InitialPixelsPerUnit: pricedSeconds,
      Type: 'live',
      SequenceNumber: session.sequence,
      AuthID: session.authId,
    },
  })
  const text =
    'POST /authorize HTTP/1.1\r\nHost: 127.0.0.1:8090\r\nUser-Agent: Go-http-client/1.1\r\n' +
    `Content-Length: ${Buffer.byteLength(body)}\r\nAuthorization: Bearer ${secret}\r\n` +
    `Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n${body}`
  const behind = (member: string): number => text.indexOf(member) + member.length
  return {
    bytes: Buffer.from(text),
    nonceAt: behind('"SenderNonce":'),
    balanceAt: behind('"Balance":"') + balanceDigits - 9,
    timeAt: behind('"LastUpdate":"'),
    sequenceAt: behind('"SequenceNumber":'),
    sequenceDigits: sequence.length,
    hasAuthId: session.authId !== '',
  }
}

const cost = ((): string => {
  const places = 10n ** 10n
  const scaled =
    (2n * BigInt(price) * places + BigInt(pricedSeconds)) / (2n * BigInt(pricedSeconds))
  return `${scaled / places}.${String(scaled % places).padStart(10, '0')}`
})()

/** Returns the event of a ticket as the signer writes it. */
export function eventOf({ session, sequence, last, next, seconds, feeWei }: SignedCall): string {
  const { payer, id, pmSession, manifest } = session
  const before = last ?? next
  return JSON.stringify({
    id: randomUUID(),
    type: 'create_signed_ticket',
    timestamp: String(next.ms + 8),
    gateway: '',
    data: {
      app: 'acme/echo',
      auth_id: payer.authId,
      billable_secs: seconds,
      computed_fee: String(feeWei),
      cost,
      current_time: next.text,
      current_time_unix: next.ms,
      manifest_id: manifest,
      num_tickets: 1,
      orch_address: orchestrator,
      orch_url: 'https://orch.example:8935',
      pipeline: 'live',
      pixels: 0,
      pm_session_id: pmSession,
      previous_time: before.text,
      previous_time_unix: before.ms,
      request_id: hex(4),
      sequence_number: sequence,
      session_balance: '49999999880000',
      session_id: id,
      session_status: sequence === 0 ? 'new' : 'continuing',
    },
  })
}

function secondsBetween(last: SignedAt, next: SignedAt): number {
  const nanos = ({ text }: SignedAt): number => Number(text.slice(-10, -1))
  const whole = Math.floor(next.ms / 1000) - Math.floor(last.ms / 1000)
  return whole + (nanos(next) - nanos(last)) / 1e9
}
