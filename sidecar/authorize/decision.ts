import type { Log } from '../../core/lib/log.ts'
import { type Now, clockOf } from '../../core/lib/time.ts'
import { type AccessBook, type Account, unknownBalance } from '../accounts/access.ts'
import {
  type LastCall,
  type Session,
  type SessionCalls,
  costOf,
  costPerSecond,
} from '../accounts/session.ts'
import type { BoundIdentity } from '../identity/bound-identity.ts'
import type { Identities, Resolution } from '../identity/identities.ts'
import type { Source } from '../identity/verifiers/verifier.ts'
import type { SidecarMetrics } from '../metrics.ts'
import { type Refusal, refusals } from './refusals.ts'
import type { AuthorizeBody } from './request.ts'

/** An answer ready to be sent; `code` is `ok` or the code of the refusal. */
export interface Decision {
  readonly status: number
  readonly code: string
  readonly body: string
  /** Length of the body in UTF-8. */
  readonly bytes: number
  readonly source: Source
  /** The `auth_id` that was decided about; "" when it is not known. */
  readonly authId: string
}

export interface AuthorizerDeps {
  readonly identities: Identities
  readonly access: AccessBook
  readonly sessionCalls: SessionCalls
  readonly signingTtlSeconds: number
  /** The `maxPrice` member of the answer by session type, with its leading comma. */
  readonly maxPrice: ReadonlyMap<string, string>
  readonly metrics: Pick<SidecarMetrics, 'countFailure'>
  readonly log: Log
  readonly now: Now
}

/**
 * Decides whether the end user of a request may spend (docs/signer-protocol.md). Answers from
 * memory where it can. Never throws: a fault that prevents a decision is body status 503. A request
 * without `state` is decided by its credential alone, with expiry 0.
 */
export function createAuthorizer(
  deps: AuthorizerDeps,
): (body: AuthorizeBody) => Decision | Promise<Decision> {
  const { identities, access, sessionCalls, metrics } = deps
  const clock = clockOf(deps.now)
  const warn = createFaultLog(deps)

  // Returns a promise only where core must answer: a warm decision is synchronous.
  return (body) => {
    if (body.credential.kind === 'ambiguous') return refuse(refusals.ambiguousCredential, 'none')
    const at = clock()
    const resolution = identities.resolve(body, at)
    if (!(resolution instanceof Promise)) return decide(resolution, body.session, at)
    return resolution.then(
      (known) => decide(known, body.session, clock()),
      (error: unknown) => refuse(reportFault(error, refusals.authorizationUnavailable), 'core'),
    )
  }

  function decide(
    resolution: Resolution,
    session: Session | null,
    at: number,
  ): Decision | Promise<Decision> {
    if ('refusal' in resolution) return refuse(resolution.refusal, resolution.source)
    const { identity, account, source } = resolution
    const authId = session ? session.authId : ''
    if (authId !== '' && authId !== identity.authId)
      return refuse(refusals.otherIdentity, source, identity)
    const last = session ? sessionCalls.find(account, session) : undefined
    const ms = session ? sessionCalls.billedMs(session, last) : 0
    if (last && last.advance > 0) refundAdvance(account, last)
    const call = { identity, session, last, ms, at }
    const isEnough = account.refusal !== null || covers(account, session, ms)
    return access.isCurrent(account, at) && isEnough
      ? settle(call, account, source)
      : settleWithCore(call)
  }

  // The session calls again: the time that really passed is billed in place of the advance.
  function refundAdvance(account: Account, last: LastCall): void {
    access.refundAdvance(account, last.advance, last.advanceAt)
    last.advance = 0
  }

  async function settleWithCore(call: Call): Promise<Decision> {
    try {
      return settle(call, await access.fetch(call.identity), 'core')
    } catch (error) {
      return refuse(reportFault(error, refusals.billingUnavailable), 'core', call.identity)
    }
  }

  function settle(call: Call, account: Account, source: Source): Decision {
    const { identity, session } = call
    if (identity.issuedAt !== null && identity.issuedAt < account.validAfter)
      return refuse(refusals.invalidToken, source, identity)
    if (account.refusal) return refuse(account.refusal, source, identity)
    // Of many calls that waited for one answer of core, the first may have used it up.
    if (source === 'core' && access.isSpent(account))
      return refuse(refusals.insufficientBalance, source, identity)
    charge(account, call)
    const expiry = String(session ? chargeAdvance(account, session, call) : 0)
    const ceiling = deps.maxPrice.get(session?.type ?? '') ?? ''
    const body = `${identity.head}${expiry}${identity.tail}${ceiling}}`
    const bytes = identity.bytes + expiry.length + ceiling.length + 1
    return { status: 200, code: 'ok', body, bytes, source, authId: identity.authId }
  }

  /**
   * Charges in advance for the time in which the signer need not call again. Returns the second
   * until which that is; 0 when it must call every time.
   */
  function chargeAdvance(account: Account, session: Session, { identity, last, at }: Call): number {
    const lastCall = sessionCalls.remember(account, session, last)
    const perSecond =
      session.isValid && account.rate !== null ? costPerSecond(session, account.rate) : null
    if (perSecond === null) return 0
    const second = Math.floor(at / 1000)
    const lifetime = (identity.expiresAt ?? Infinity) - second
    const seconds = signingSeconds(account.left / (perSecond * 2), lifetime)
    if (seconds === 0) return 0
    const cost = Math.ceil(perSecond * seconds)
    access.spendAdvance(account, cost, at)
    if (lastCall) {
      lastCall.advance = cost
      lastCall.advanceAt = at
    }
    return second + seconds
  }

  /** Whole seconds that half of what is left pays for, within the policy and the credential's life. */
  function signingSeconds(affordable: number, lifetime: number): number {
    return Math.max(0, Math.floor(Math.min(affordable, deps.signingTtlSeconds, lifetime)))
  }

  // A call of unknown cost uses all that is left here, so that the next one asks core again.
  function charge(account: Account, { session, ms, at }: Call): void {
    const cost = costHere(account, session, ms)
    if (cost === null) account.left = unknownBalance
    else access.spend(account, cost, at)
  }

  function reportFault(error: unknown, refusal: Refusal): Refusal {
    metrics.countFailure('core')
    warn(error, refusal.code)
    return refusal
  }
}

/** A call that is being decided. */
interface Call {
  readonly identity: BoundIdentity
  readonly session: Session | null
  /** The session's last call, when it was here. */
  readonly last: LastCall | undefined
  /** What the call is billed for. */
  readonly ms: number
  /** Unix milliseconds of the decision. */
  readonly at: number
}

function refuse(refusal: Refusal, source: Source, identity?: BoundIdentity): Decision {
  return { ...refusal, source, authId: identity?.authId ?? '' }
}

/**
 * True when what is left here pays for this call. A call of unknown price needs a balance that is
 * not below zero.
 */
function covers(account: Account, session: Session | null, ms: number): boolean {
  const cost = costHere(account, session, ms)
  return account.left >= (cost ?? 0)
}

// Without a rate nothing can be counted in dollars: then core's own figure decides alone.
function costHere({ rate }: Account, session: Session | null, ms: number): number | null {
  if (rate === null) return 0
  return session ? costOf(session, ms, rate) : null
}

const faultLogPauseMs = 1_000

/** Warns of a fault at most once a second, with the number of faults that it left out before. */
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

const priceUnits: Readonly<Record<string, string>> = {
  live: 'seconds',
  lv2v: '720p-pixel-seconds',
  fixed: 'fixed',
}

/**
 * The `maxPrice` member of an answer for each session type that has a price ceiling, with its
 * leading comma. The unit must be the session type's own: with another one every call fails
 * (docs/signer-protocol.md).
 */
export function maxPriceMembers(
  ceilings: Readonly<Record<string, string>>,
): ReadonlyMap<string, string> {
  return new Map(
    Object.entries(ceilings).map(([type, price]) => [
      type,
      `,"maxPrice":{"price":${price},"currency":"wei","unit":"${priceUnits[type]}"}`,
    ]),
  )
}
