import type { Log } from '../../core/lib/log.ts'
import { type Now, toClock } from '../../core/lib/time.ts'
import type { Escrow } from '../wallets/escrow.ts'
import type { Session } from '../signer-state/session.ts'
import type { BoundIdentity } from '../identity/bound-identity.ts'
import type { Identities, Resolution } from '../identity/identities.ts'
import type { RefusalDetail, Source } from '../identity/verifiers/verifier.ts'
import type { SidecarMetrics } from '../metrics.ts'
import { findRefusal, hasMoney } from '../wallets/accounts.ts'
import { type MoneySource, type Payment, createFunding } from '../wallets/funding.ts'
import { type Call, createPayments, isPaid } from '../wallets/payments.ts'
import { type PriceCeilings, findMaxPrice, renderAnswer } from './answer.ts'
import { type Refusal, isForMoney, refusals } from '../decision/refusals.ts'
import type { AuthorizeBody } from '../decision/request.ts'

/** A call of a known user. */
export interface CallAtHand extends Call {
  readonly identity: BoundIdentity
}

/** An answer ready to be sent; `code` is `ok` or the code of the refusal. */
export interface Decision {
  readonly status: number
  readonly code: string
  readonly body: string
  /** Source of the identity. */
  readonly source: Source
  readonly money: MoneySource
  /** The `auth_id` of the decision; "" when it is unknown. */
  readonly authId: string
  /** The call, once its user is known. */
  readonly call: CallAtHand | null
  /** Further details of a refused credential. */
  readonly detail?: RefusalDetail
}

export interface AuthorizerDeps {
  readonly identities: Pick<Identities, 'resolve'>
  readonly escrow: Escrow
  readonly signingTtlSeconds: number
  readonly maxPrice: PriceCeilings
  readonly metrics: Pick<SidecarMetrics, 'countFailure' | 'countRefusedMoney'>
  readonly log: Log
  readonly now: Now
}

/**
 * Decides whether the end user of a request may spend (docs/signer-webhook.md). Answers from
 * memory where possible. Never throws: a fault that prevents a decision is body status 503. A
 * request without `state` is decided by its credential and by whether any money is left.
 */
export function createAuthorizer(
  deps: AuthorizerDeps,
): (body: AuthorizeBody) => Decision | Promise<Decision> {
  const { identities, escrow, metrics } = deps
  const { accounts, leases, reports, memory, bounds, clocks } = escrow
  const payments = createPayments({ ...escrow, signingTtlSeconds: deps.signingTtlSeconds })
  const funding = createFunding({ ...escrow, payments })
  const clock = toClock(deps.now)
  const warn = createFaultLog(deps)

  // Return a promise only when core must be called, so that a warm decision is synchronous.
  return (body) => {
    if (body.credential.kind === 'ambiguous') return refuse(refusals.ambiguousCredential, 'none')
    const at = clock()
    const resolution = identities.resolve(body, at)
    if (!(resolution instanceof Promise)) return decide(resolution, body, at)
    return resolution.then(
      (verified) => decide(verified, body, clock()),
      (error: unknown) => refuse(reportFault(error, refusals.authorizationUnavailable), 'core'),
    )
  }

  function decide(
    resolution: Resolution,
    { session, apps }: AuthorizeBody,
    at: number,
  ): Decision | Promise<Decision> {
    if ('refusal' in resolution) {
      const { refusal, source, detail } = resolution
      return detail ? { ...refuse(refusal, source), detail } : refuse(refusal, source)
    }
    const { identity, account, source } = resolution
    const call = { identity, account, session, at }
    const refusal =
      apps === null || apps.has(identity.clientId) ? stateRefusal(call) : refusals.foreignSigner
    if (refusal) return refuse(refusal, source, call)
    const payment = payAtOnce(call)
    return payment ? conclude(call, payment, source) : payLater(call, source)
  }

  function stateRefusal({ identity, session }: CallAtHand): Refusal | null {
    // Another process may spend under this sidecar's id, so leases here do not count.
    if (reports.isRefused()) return refusals.authorizationUnavailable
    if (!session) return null
    if (session.authId !== '' && session.authId !== identity.authId) return refusals.otherIdentity
    if (!session.isReadable) return refusals.invalidState
    return reports.isFull() ? refusals.billingUnavailable : null
  }

  /** Pays or refuses from local state; returns null if core must be called. */
  function payAtOnce(call: CallAtHand): Payment | null {
    const { account, identity, session } = call
    const at = clocks.mono(call.at)
    if (!accounts.isCurrent(account, at)) return null
    const refusal = findRefusal(account, identity.issuedAt)
    if (refusal) return { refusal }
    if (!session) return hasMoney(account) ? { money: 'none', expiry: 0 } : null
    const bound = bounds.boundOf(account, session)
    if (bound === 'untyped') return { refusal: refusals.untypedCall }
    if (typeof bound !== 'number' || !isPaid(call)) return null
    const { lease } = account
    if (lease && leases.covers(account, { bound, at }))
      return { money: 'lease', expiry: payments.payFromLease(call, lease, { bound, at }) }
    // A client without money retries every few seconds: refuse it without calling core.
    return account.spentUntil > at && bound >= account.spentBound
      ? { refusal: account.spentRefusal }
      : null
  }

  async function payLater(call: CallAtHand, source: Source): Promise<Decision> {
    try {
      return conclude(call, await funding.pay(call), source)
    } catch (error) {
      return refuse(reportFault(error, refusals.billingUnavailable), source, call)
    }
  }

  function conclude(call: CallAtHand, payment: Payment, source: Source): Decision {
    const { identity, account, session } = call
    if ('refusal' in payment) {
      if (session && isForMoney(payment.refusal)) reportRefused(call, session)
      return refuse(payment.refusal, source, call)
    }
    const { money, expiry, ceilings = account.ceilings } = payment
    const maxPrice = session && findMaxPrice(session, deps.maxPrice, ceilings)
    const body = renderAnswer(identity, expiry, maxPrice)
    return { status: 200, code: 'ok', body, source, money, authId: identity.authId, call }
  }

  // The signer issued the state of this call, which proves that it signed the previous one. Reports
  // that once for each number.
  function reportRefused({ account }: CallAtHand, session: Session): void {
    const bound = bounds.boundOf(account, session)
    if (typeof bound === 'number' && bound < Infinity) metrics.countRefusedMoney(bound)
    const calls = memory.find(account, session.id)
    if (session.sequence === 0 || (calls && calls.refused >= session.sequence)) return
    if (calls) calls.refused = session.sequence
    reports.addRefused(account, session)
  }

  function reportFault(error: unknown, refusal: Refusal): Refusal {
    metrics.countFailure('core')
    warn(error, refusal.code)
    return refusal
  }
}

/** The answer that refuses a call; `call` is null if its user is unknown. */
export function refuse(refusal: Refusal, source: Source, call: CallAtHand | null = null): Decision {
  return { ...refusal, source, money: 'none', authId: call?.identity.authId ?? '', call }
}

const faultLogPauseMs = 1_000

/** Logs at most one fault a second, with the number of faults suppressed before it. */
function createFaultLog({ log, now }: Pick<AuthorizerDeps, 'log' | 'now'>) {
  let quietUntil = 0
  let suppressed = 0

  return (error: unknown, message: string): void => {
    const at = now().getTime()
    if (at < quietUntil) {
      suppressed++
      return
    }
    log.warn({ err: error, suppressed }, message)
    quietUntil = at + faultLogPauseMs
    suppressed = 0
  }
}
