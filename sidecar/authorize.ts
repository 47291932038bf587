import type { Log } from '../core/lib/log.ts'
import type { Now } from '../core/lib/time.ts'
import type { AccessBook, Allowance } from './access.ts'
import type { AuthorizeBody } from './body.ts'
import { createFaultLog } from './fault-log.ts'
import type { Found, Identities } from './identities.ts'
import type { Meters } from './meters.ts'
import { type Elapsed, burnOf, costOf } from './price.ts'
import { type Refusal, refusals } from './refusals.ts'
import type { Session } from './session.ts'
import type { Source } from './verifiers/types.ts'
import type { Who } from './who.ts'

/** An answer ready to be sent; `code` is `ok` or the code of the refusal. */
export interface Decision {
  readonly status: number
  readonly code: string
  readonly body: string
  readonly source: Source
  /** Whom it was about; "" when nobody is known. */
  readonly authId: string
}

export interface AuthorizerDeps {
  readonly identities: Identities
  readonly access: AccessBook
  readonly elapsed: Elapsed
  readonly signingTtlSeconds: number
  /**
   * The `maxPrice` member of the answer by session type, with its leading comma; absent for
   * none.
   */
  readonly maxPrice: ReadonlyMap<string, string>
  readonly meters: Meters
  readonly log: Log
  readonly now: Now
}

/**
 * Decides whether the end user of a request may spend (signer-contract.md sections 1-3). Answers
 * from memory where it can. Never throws: what keeps us from deciding is body status 503. A request
 * without `state` is decided by its credential alone, with expiry 0.
 */
export function createAuthorizer(deps: AuthorizerDeps): (body: AuthorizeBody) => Promise<Decision> {
  const { identities, access, elapsed, meters } = deps
  const warn = createFaultLog(deps)

  return async (body) => {
    if (body.credential.kind === 'ambiguous') return refused(refusals.ambiguousCredential, 'none')
    const found = identify(body)
    return judge(found instanceof Promise ? await found : found, body.session)
  }

  // A promise only where something must be waited for: the warm path runs through in one go.
  function identify(body: AuthorizeBody): Found | Promise<Found> {
    const found = identities.find(body)
    if (!(found instanceof Promise)) return found
    return found.catch((error: unknown) => ({
      refusal: broken(error, refusals.authorizationUnavailable),
      source: 'core',
    }))
  }

  function judge(found: Found, session: Session | null): Decision | Promise<Decision> {
    if ('refusal' in found) return refused(found.refusal, found.source)
    const { who, source } = found
    const bound = session ? session.authId : ''
    if (bound !== '' && bound !== who.authId) return refused(refusals.otherIdentity, source, who)
    const ms = session ? elapsed.of(who.authId, session) : 0
    const promised = session ? elapsed.takePromised(who.authId, session) : 0n
    if (promised > 0n) access.giveBack(who.authId, promised)
    const allowance = access.known(who.authId)
    if (!allowance || !(allowance.refusal || covers(allowance, session, ms)))
      return ask({ who, session, ms })
    return settle({ who, session, ms, allowance, source })
  }

  async function ask(spending: Spending): Promise<Decision> {
    try {
      return settle({ ...spending, allowance: await access.fetch(spending.who), source: 'core' })
    } catch (error) {
      return refused(broken(error, refusals.billingUnavailable), 'core', spending.who)
    }
  }

  function settle({ who, session, ms, allowance, source }: Settling): Decision {
    if (who.issuedAt !== null && who.issuedAt < allowance.validAfter)
      return refused(refusals.invalidToken, source, who)
    if (allowance.refusal) return refused(allowance.refusal, source, who)
    debit({ allowance, session, ms })
    const expiry = session ? promise(allowance, session, who) : 0
    const ceiling = deps.maxPrice.get(session?.type ?? '') ?? ''
    const body = `${who.head}${expiry}${who.tail}${ceiling}}`
    return { status: 200, code: 'ok', body, source, authId: who.authId }
  }

  /**
   * The second until which the signer need not ask again, paid for here; 0 when nothing may be
   * promised.
   */
  function promise(allowance: Allowance, session: Session, who: Who): number {
    const burn = session.sound && allowance.rate !== null ? burnOf(session, allowance.rate) : null
    const window = burn === null ? 0 : windowOf(allowance, burn, who)
    const cost = (burn ?? 0n) * BigInt(window)
    if (window > 0) access.spend(allowance, cost)
    elapsed.remember(who.authId, session, cost)
    return window > 0 ? Math.floor(deps.now().getTime() / 1000) + window : 0
  }

  /** Seconds that half of what is left pays for, within the policy and the credential's life. */
  function windowOf(allowance: Allowance, burn: bigint, who: Who): number {
    const second = Math.floor(deps.now().getTime() / 1000)
    const affordable = allowance.left / (burn * 2n)
    const policy = Math.min(deps.signingTtlSeconds, (who.expiresAt ?? Infinity) - second)
    const window = affordable < BigInt(Math.max(0, policy)) ? Number(affordable) : policy
    return Math.max(0, window)
  }

  // A call of unknown cost uses all that is left here, so that the next one asks core again.
  function debit({ allowance, session, ms }: Pick<Settling, 'allowance' | 'session' | 'ms'>): void {
    const cost = costHere(allowance, session, ms)
    if (cost === null) allowance.left = -1n
    else access.spend(allowance, cost)
  }

  function broken(error: unknown, refusal: Refusal): Refusal {
    meters.failed('core')
    warn(error, refusal.code)
    return refusal
  }
}

interface Spending {
  readonly who: Who
  readonly session: Session | null
  /** What the call is billed for. */
  readonly ms: number
}

interface Settling extends Spending {
  readonly allowance: Allowance
  readonly source: Source
}

function refused(refusal: Refusal, source: Source, who?: Who): Decision {
  return { ...refusal, source, authId: who?.authId ?? '' }
}

/**
 * True when what is left here pays for this call; an unknown price needs an allowance nobody has
 * used.
 */
function covers(allowance: Allowance, session: Session | null, ms: number): boolean {
  const cost = costHere(allowance, session, ms)
  return allowance.left >= (cost ?? 0n)
}

// Without a rate nothing can be counted in dollars: then core's own figure is all there is.
function costHere({ rate }: Allowance, session: Session | null, ms: number): bigint | null {
  if (rate === null) return 0n
  return session ? costOf(session, ms, rate) : null
}
