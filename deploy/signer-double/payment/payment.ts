import type { Dialect } from '../dialect.ts'
import { buyTickets, computeFee, measureWork } from './fees.ts'
import type { Tickets, Work } from './fees.ts'
import type { PaymentRequest } from './request.ts'
import type { Orchestrator } from '../wire/orchestrator.ts'
import { judgePrice } from './price-ceiling.ts'
import { rational, ZERO } from '../wire/rational.ts'
import type { Rational } from '../wire/rational.ts'
import { refusal, refuseOnThrow } from '../refusal.ts'
import type { SessionState, StateBox } from './state.ts'

/** The nonce at which go-livepeer 0.9.2 requests new ticket parameters. */
const REFRESH_NONCE = 500n

/** One valid call with its tickets, before the webhook is called. */
export type Payment = Readonly<{
  request: PaymentRequest
  requestId: string
  manifestId: string
  now: bigint
  /** The previous update; equals `now` on the first call of a session. */
  previous: bigint
  work: Work
  /** The orchestrator's current price in wei per unit; the fee uses the session's first price. */
  price: Rational
  fee: Rational
  ev: Rational
  tickets: Tickets
  /** The state after this call, as sent to the webhook. */
  state: SessionState
}>

export type PaymentRules = Readonly<{
  dialect: Dialect
  ev: Rational
  box: StateBox
  /** Returns `bytes` random bytes in hex. */
  newHex: (bytes: number) => string
  /** Returns whether this call must be refused with a session refresh, regardless of its nonce. */
  refreshDemanded: () => boolean
}>

/** A session before its first payment, at this orchestrator's price. */
export function openState(orchestrator: Orchestrator, now: bigint): SessionState {
  return {
    stateId: '',
    pmSessionId: orchestrator.recipientRandHash,
    lastUpdate: now,
    orchestratorAddress: orchestrator.address,
    app: '',
    authExpiry: 0n,
    senderNonce: 0n,
    balance: ZERO,
    initialPricePerUnit: orchestrator.pricePerUnit,
    initialPixelsPerUnit: orchestrator.pixelsPerUnit,
    type: '',
    sequenceNumber: 0n,
    authId: '',
    authPolicy: '',
    authMaxPrice: undefined,
    manifestId: '',
  }
}

function carriedSession(request: PaymentRequest, rules: PaymentRules): SessionState | undefined {
  const { state, orchestrator } = request
  if (state === undefined) return undefined
  const session = refuseOnThrow(400, () => rules.box.open(state.bytes, state.sig))
  if (session.orchestratorAddress !== orchestrator.address) {
    throw refusal(400, 'the orchestrator address does not match the state')
  }
  if (rules.dialect.knowsApp && session.app !== request.app) {
    throw refusal(400, 'the app does not match the state')
  }
  if (rules.dialect.knowsApp && session.type !== request.type) {
    throw refusal(400, 'the type does not match the state')
  }
  if (request.manifestId === '') throw refusal(400, 'missing manifestID')
  return session
}

/**
 * Returns the nonce so far; new ticket parameters start a new count. Refuses with 480 when a
 * refresh is due.
 */
function nonceOf(session: SessionState, request: PaymentRequest, rules: PaymentRules): bigint {
  const { recipientRandHash, url } = request.orchestrator
  const same = session.pmSessionId === recipientRandHash
  if (rules.refreshDemanded() || (same && session.senderNonce >= REFRESH_NONCE)) {
    throw refusal(480, 'refresh session', { 'Livepeer-Orchestrator-URL': url })
  }
  return same ? session.senderNonce : 0n
}

function checkCeiling(request: PaymentRequest, price: Rational, type: string): void {
  const verdict = judgePrice(price, type, request.maxPrice)
  if (verdict === 'malformed') throw refusal(400, 'invalid maxPrice')
  if (verdict === 'exceeded') throw refusal(481, 'the orchestrator price exceeds maxPrice')
}

/**
 * Returns the payment for this request, after all checks that precede the webhook, in the signer's
 * order (docs/signer-webhook.md, "When the signer asks"). Refuses with 400, 480, 481 or 482.
 */
export function preparePayment(request: PaymentRequest, now: bigint, rules: PaymentRules): Payment {
  const { orchestrator } = request
  const carried = carriedSession(request, rules)
  const session = carried ?? openState(orchestrator, now)
  const nonce = nonceOf(session, request, rules)
  const elapsed = carried === undefined ? undefined : now - carried.lastUpdate
  const { type, app, inPixels } = request
  const work = measureWork({ type, elapsed, inPixels }, rules.dialect)
  const price = rational(orchestrator.pricePerUnit, orchestrator.pixelsPerUnit)
  if (rules.dialect.knowsApp) checkCeiling(request, price, type)
  const initialPrice = rational(session.initialPricePerUnit, session.initialPixelsPerUnit)
  const fee = computeFee(work.units, initialPrice)
  const tickets = buyTickets(session.balance, fee, rules.ev)
  const manifestId = request.manifestId === '' ? rules.newHex(4) : request.manifestId
  const state: SessionState = {
    ...session,
    stateId: carried?.stateId ?? rules.newHex(rules.dialect.idBytes),
    pmSessionId: orchestrator.recipientRandHash,
    type,
    app: carried?.app ?? app,
    manifestId,
    lastUpdate: now,
    senderNonce: nonce + tickets.count,
    balance: tickets.balance,
    sequenceNumber: carried === undefined ? 0n : carried.sequenceNumber + 1n,
  }
  const requestId = rules.newHex(rules.dialect.idBytes)
  const previous = session.lastUpdate
  const { ev } = rules
  return { request, requestId, manifestId, now, previous, work, price, fee, ev, tickets, state }
}
