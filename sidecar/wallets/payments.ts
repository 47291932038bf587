import type { Account, Lease } from './accounts.ts'
import { unitsPerSecond } from './bounds.ts'
import type { Escrow } from './escrow.ts'
import { type Session, isRational } from '../signer-state/session.ts'

/** The part of a credential's identity that limits or names what it spends. */
export interface Spender {
  /** The API key that pays; "" without one. */
  readonly apiKeyId: string
  /** Unix seconds of a token's `iat` and `exp`; null for other credentials. */
  readonly issuedAt: number | null
  readonly expiresAt: number | null
}

/** A call to be decided. Without a session nothing is paid, but some money must be left. */
export interface Call {
  readonly identity: Spender
  readonly account: Account
  readonly session: Session | null
  /** Unix milliseconds of the decision. */
  readonly at: number
}

/** A call with a session, which must be paid. */
export type PaidCall = Call & { readonly session: Session }

export const isPaid = <C extends Call>(call: C): call is C & PaidCall => call.session !== null

export type PaymentsDeps = Escrow & { readonly signingTtlSeconds: number }

const maxClockGap = 2
/**
 * Maximum time, in seconds of our own clock, for which an answer allows the signer to skip calls.
 */
const longestPromise = 60

/**
 * Pays for allowed calls. Debits, reports and remembers in one synchronous step, so that a lease is
 * never returned between its debit and the report.
 */
export function createPayments(deps: PaymentsDeps) {
  const { leases, reports, memory, rate, bounds, signingTtlSeconds } = deps

  /** Pays `bound` from a lease that covers it. Returns the answer's expiry. */
  function payFromLease(
    call: PaidCall,
    lease: Lease,
    debit: { bound: number; at: number },
  ): number {
    const { account, session, identity, at } = call
    leases.debit(account, lease, debit)
    const calls = memory.remember(account, session)
    // Pay in advance only after the highest call: time after a lower number is other time.
    const isPromised = signingTtlSeconds > 0 && session.sequence === calls.top.sequence
    const seconds = isPromised ? promisedSeconds(call, lease) : 0
    const advance = seconds === 0 ? 0 : advanceOf(call, seconds + 1)
    if (seconds > 0) {
      leases.debit(account, lease, { bound: advance, at: debit.at })
      calls.paidUntil = session.seconds + seconds + 1
    }
    const bound = debit.bound + advance
    const paid = { leaseId: lease.id, session, bound, at, keyId: identity.apiKeyId }
    reports.add(account, { ...paid, isOffline: false }, calls)
    return seconds > 0 ? session.seconds + seconds : 0
  }

  /** Remembers a call that core has reserved. */
  function noteReserved({ account, session }: PaidCall): void {
    memory.remember(account, session)
  }

  /** Reports a call that the offline budget pays. */
  function payOffline({ account, session, identity, at }: PaidCall, bound: number): void {
    const calls = memory.remember(account, session)
    const paid = { leaseId: '', session, bound, at, keyId: identity.apiKeyId }
    reports.add(account, { ...paid, isOffline: true }, calls)
  }

  /**
   * Whole seconds for which the signer need not call again: as many as half of the lease's
   * remaining money pays for, limited by the policy and the credential's lifetime. Counted by the
   * signer's clock, which must be close to ours.
   */
  function promisedSeconds(call: PaidCall, lease: Lease): number {
    const { session, identity, at } = call
    const perSecond = pricePerSecond(call)
    const ahead = session.seconds - Math.floor(at / 1000)
    if (perSecond === null || Math.abs(ahead) > maxClockGap) return 0
    const lifetime = (identity.expiresAt ?? Infinity) - session.seconds
    const left = lease.amount - lease.used
    // The signer skips the whole last second, too.
    const affordable = left / 2 / perSecond - 1
    const seconds = Math.floor(
      Math.min(affordable, signingTtlSeconds, lifetime, longestPromise - ahead),
    )
    const isUseful = seconds > 0 && ahead + seconds >= 0
    return isUseful && advanceOf(call, seconds + 1) <= left ? seconds : 0
  }

  /**
   * Nano-dollars, unrounded; null when the session has no price for time, or the state is invalid.
   */
  function pricePerSecond({ account, session }: PaidCall): number | null {
    const { type, price, units, balance } = session
    if (type !== 'live' && type !== 'lv2v') return null
    if (price === null || units === null || rate.nanosPerWei === null) return null
    if (!isRational(balance)) return null
    const network = ((Number(price) * unitsPerSecond(type)) / Number(units)) * rate.nanosPerWei
    return account.retailRatio === null ? network : (network * Number(account.retailRatio)) / 1e18
  }

  /** Nano-dollars of the next seconds of a session that has a price. */
  const advanceOf = ({ account, session }: PaidCall, seconds: number): number =>
    session.type === 'live' || session.type === 'lv2v'
      ? bounds.priceUnits(account, session, unitsPerSecond(session.type) * seconds)
      : Infinity

  return { payFromLease, noteReserved, payOffline }
}

export type Payments = ReturnType<typeof createPayments>
