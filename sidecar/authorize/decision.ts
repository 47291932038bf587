import type { Log } from '../../core/lib/log.ts'
import { type Now, clockOf } from '../../core/lib/time.ts'
import { type AccessBook, type Account, unknown } from '../accounts/access.ts'
import type { AuthorizeBody } from './request.ts'
import { createFaultLog } from '../fault-log.ts'
import type { Found, Identities } from '../identity/identities.ts'
import type { Meters } from '../metrics.ts'
import { type Elapsed, type Seen, burnOf, costOf } from '../accounts/session-billing.ts'
import { type Refusal, refusals } from './refusals.ts'
import type { Session } from '../accounts/session.ts'
import type { Source } from '../identity/verifiers/types.ts'
import type { Who } from '../identity/bound-identity.ts'

/** An answer ready to be sent; `code` is `ok` or the code of the refusal. */
export interface Decision {
  readonly status: number
  readonly code: string
  readonly body: string
  /** Length of the body in UTF-8. */
  readonly bytes: number
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
export function createAuthorizer(
  deps: AuthorizerDeps,
): (body: AuthorizeBody) => Decision | Promise<Decision> {
  const { identities, access, elapsed, meters } = deps
  const clock = clockOf(deps.now)
  const warn = createFaultLog(deps)

  // A promise only where something must be waited for: the warm path runs through in one go.
  return (body) => {
    if (body.credential.kind === 'ambiguous') return refused(refusals.ambiguousCredential, 'none')
    const at = clock()
    const found = identities.find(body, at)
    if (!(found instanceof Promise)) return judge(found, body.session, at)
    return found.then(
      (known) => judge(known, body.session, clock()),
      (error: unknown) => refused(broken(error, refusals.authorizationUnavailable), 'core'),
    )
  }

  function judge(found: Found, session: Session | null, at: number): Decision | Promise<Decision> {
    if ('refusal' in found) return refused(found.refusal, found.source)
    const { who, account, source } = found
    const bound = session ? session.authId : ''
    if (bound !== '' && bound !== who.authId) return refused(refusals.otherIdentity, source, who)
    const last = session ? elapsed.find(account, session) : undefined
    const ms = session ? elapsed.msOf(session, last) : 0
    if (last && last.promised > 0) settlePromise(account, last)
    const spending = { who, session, last, ms, at }
    const isEnough = account.refusal !== null || covers(account, session, ms)
    return access.isKnown(account, at) && isEnough
      ? settle(spending, account, source)
      : ask(spending)
  }

  // The session calls again: the time that really passed is billed in place of what was promised.
  function settlePromise(account: Account, last: Seen): void {
    access.giveBack(account, last.promised, last.promisedAt)
    last.promised = 0
  }

  async function ask(spending: Spending): Promise<Decision> {
    try {
      return settle(spending, await access.fetch(spending.who), 'core')
    } catch (error) {
      return refused(broken(error, refusals.billingUnavailable), 'core', spending.who)
    }
  }

  function settle(spending: Spending, account: Account, source: Source): Decision {
    const { who, session } = spending
    if (who.issuedAt !== null && who.issuedAt < account.validAfter)
      return refused(refusals.invalidToken, source, who)
    if (account.refusal) return refused(account.refusal, source, who)
    // Of many who waited for one answer the first ones may have used it up.
    if (source === 'core' && access.isSpent(account))
      return refused(refusals.insufficientBalance, source, who)
    debit(account, spending)
    const expiry = String(session ? promise(account, session, spending) : 0)
    const ceiling = deps.maxPrice.get(session?.type ?? '') ?? ''
    const body = `${who.head}${expiry}${who.tail}${ceiling}}`
    const bytes = who.bytes + expiry.length + ceiling.length + 1
    return { status: 200, code: 'ok', body, bytes, source, authId: who.authId }
  }

  /**
   * The second until which the signer need not ask again, paid for here; 0 when nothing may be
   * promised.
   */
  function promise(account: Account, session: Session, { who, last, at }: Spending): number {
    const seen = elapsed.remember(account, session, last)
    const burn = session.sound && account.rate !== null ? burnOf(session, account.rate) : null
    if (burn === null) return 0
    const second = Math.floor(at / 1000)
    const window = windowOf(account.left / (burn * 2), (who.expiresAt ?? Infinity) - second)
    if (window === 0) return 0
    const cost = Math.ceil(burn * window)
    access.promise(account, cost, at)
    if (seen) {
      seen.promised = cost
      seen.promisedAt = at
    }
    return second + window
  }

  /** Whole seconds that half of what is left pays for, within the policy and the credential's life. */
  function windowOf(affordable: number, life: number): number {
    return Math.max(0, Math.floor(Math.min(affordable, deps.signingTtlSeconds, life)))
  }

  // A call of unknown cost uses all that is left here, so that the next one asks core again.
  function debit(account: Account, { session, ms, at }: Spending): void {
    const cost = costHere(account, session, ms)
    if (cost === null) account.left = unknown
    else access.spend(account, cost, at)
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
  /** The session's last call, when it was here. */
  readonly last: Seen | undefined
  /** What the call is billed for. */
  readonly ms: number
  /** Unix milliseconds of the decision. */
  readonly at: number
}

function refused(refusal: Refusal, source: Source, who?: Who): Decision {
  return { ...refusal, source, authId: who?.authId ?? '' }
}

/**
 * True when what is left here pays for this call; an unknown price needs an allowance nobody has
 * used.
 */
function covers(account: Account, session: Session | null, ms: number): boolean {
  const cost = costHere(account, session, ms)
  return account.left >= (cost ?? 0)
}

// Without a rate nothing can be counted in dollars: then core's own figure is all there is.
function costHere({ rate }: Account, session: Session | null, ms: number): number | null {
  if (rate === null) return 0
  return session ? costOf(session, ms, rate) : null
}
