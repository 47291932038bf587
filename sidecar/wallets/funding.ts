import type { PriceCeiling } from '../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import { findRefusal, hasMoney } from './accounts.ts'
import type { Escrow } from './escrow.ts'
import type { Reservation } from './reservations.ts'
import { type Call, type PaidCall, type Payments, isPaid } from './payments.ts'
import { createPriorCalls } from './prior-calls.ts'
import { type Refusal, isForMoney, isSpent, refusals } from '../decision/refusals.ts'

/** Source of a call's money. For `core`, core reserved this single call. */
export type MoneySource = 'lease' | 'core' | 'offline' | 'none'

/** A paid call with the expiry of its answer, or the reason why it is not paid. */
export type Payment =
  | {
      readonly money: MoneySource
      readonly expiry: number
      /** Ceilings of the call's user and key; absent when only those of the user are known. */
      readonly ceilings?: readonly PriceCeiling[]
    }
  | { readonly refusal: Refusal }

export type FundingDeps = Escrow & { readonly payments: Payments }

/** A bound in nano-dollars, and the account's `retailRatio` at the time it was computed. */
interface BoundPrice {
  readonly bound: number
  readonly ratio: bigint | null
}

const maxTries = 3
const spentMs = 1_000
const tooLarge = { refusal: refusals.insufficientBalance }
const unavailable = { refusal: refusals.billingUnavailable }

/** Pays for calls that no current lease covers (docs/escrow.md). */
export function createFunding(deps: FundingDeps) {
  const { core, accounts, leases, reservations, reports, bounds, payments, clocks } = deps
  const priorCalls = createPriorCalls(deps)

  /**
   * Pays from a lease, by a reservation at core, or, while core is unavailable, from the offline
   * budget. Throws all faults except that core is unavailable.
   */
  async function pay(call: Call): Promise<Payment> {
    if (core.isAway()) return payOffline(call)
    try {
      return isPaid(call) ? await payAtCore(call) : await checkMoney(call)
    } catch (error) {
      if (!core.isAway()) throw error
      return payOffline(call)
    }
  }

  /** A request without a session pays nothing, but requires that some money is left. */
  async function checkMoney({ account, identity }: Call): Promise<Payment> {
    await leases.lend(account, { bound: 0 })
    const refusal = findRefusal(account, identity.issuedAt)
    if (refusal) return { refusal }
    return hasMoney(account) ? { money: 'none', expiry: 0 } : { refusal: account.brokeRefusal }
  }

  /** Tries again if core returns another retail ratio than the one in the bound. */
  async function payAtCore(call: PaidCall): Promise<Payment> {
    for (let tries = 1; ; tries++) {
      const ratio = call.account.retailRatio
      const bound = await findBound(call)
      if (typeof bound !== 'number') return { refusal: bound }
      if (bound === Infinity) return tooLarge
      const isSame = (): boolean => tries === maxTries || call.account.retailRatio === ratio
      const payment = await payFromLease(call, { bound, isSame })
      if (payment) return payment
      const reservation = isSame() ? await reserve(call, { bound, ratio }) : null
      if (reservation) return reservation
      if (tries >= maxTries) return unavailable
    }
  }

  /** Returns the bound of the call. Fetches the rate or the prior call from core if necessary. */
  async function findBound(call: PaidCall): Promise<number | Refusal> {
    const { account, session } = call
    let bound = bounds.boundOf(account, session)
    if (bound === 'no_rate') {
      await leases.lend(account, { bound: 0 })
      bound = bounds.boundOf(account, session)
    }
    if (bound === 'no_rate') return refusals.rateUnavailable
    if (bound === 'untyped') return refusals.untypedCall
    return bound === 'no_prior_call' ? priorCalls.boundByCore(call) : bound
  }

  /** Returns null when core lends too little for the call, or when its bound has changed. */
  async function payFromLease(
    call: PaidCall,
    { bound, isSame }: { readonly bound: number; readonly isSame: () => boolean },
  ): Promise<Payment | null> {
    const { account } = call
    for (let tries = 1; tries <= maxTries; tries++) {
      const at = clocks.mono()
      if (!isSame()) return null
      if (accounts.isCurrent(account, at)) {
        const payment = payAtHand(call, { bound, at })
        if (payment) return payment
      }
      if (account.reserveUntil > at && accounts.isUnrevoked(account)) return null
      if (tries < maxTries) await leases.lend(account, { bound })
    }
    return null
  }

  /** Pays from the current lease; returns null when it does not cover the call. */
  function payAtHand(call: PaidCall, { bound, at }: { bound: number; at: number }): Payment | null {
    const { account, identity } = call
    const refusal = findRefusal(account, identity.issuedAt)
    if (refusal) return { refusal }
    if (!account.lease || !leases.covers(account, { bound, at })) return null
    return { money: 'lease', expiry: payments.payFromLease(call, account.lease, { bound, at }) }
  }

  /** Returns null when the plan's retail ratio is higher than the one in the bound. */
  async function reserve(call: PaidCall, price: BoundPrice): Promise<Payment | null> {
    const { account } = call
    const lease = account.lease
    let reservation = await reserveCall(call, price)
    // The missing money may be in the account's own lease, which is too small for this call: return
    // it and try again.
    if (isSpent(reservation.refusal) && lease && account.lease === lease) {
      leases.giveBack(account)
      reservation = await reserveCall(call, price)
    }
    const { refusal, isRepriced, ceilings } = reservation
    if (isRepriced) return null
    if (!refusal) return { money: 'core', expiry: 0, ceilings }
    if (!isForMoney(refusal)) return { refusal }
    account.spentBound = price.bound
    account.spentUntil = clocks.mono() + spentMs
    account.spentRefusal = refusal
    return { refusal }
  }

  async function reserveCall(call: PaidCall, { bound, ratio }: BoundPrice): Promise<Reservation> {
    const { account, session, identity, at } = call
    const authorisation = {
      leaseId: '',
      session,
      bound,
      retailRatio: ratio,
      at,
      keyId: identity.apiKeyId,
      isOffline: false,
    }
    const reservation = await reservations.reserve(account, authorisation)
    const refusal = reservation.refusal ?? findRefusal(account, identity.issuedAt)
    if (!refusal) payments.noteReserved(call)
    return { ...reservation, refusal }
  }

  /** Pays only for users that core has allowed before. */
  function payOffline(call: Call): Payment {
    const { account, session } = call
    if (!accounts.isUnrevoked(account) || !session || !isPaid(call) || reports.isFull())
      return unavailable
    const localBound = bounds.boundOf(account, session)
    if (localBound === 'untyped') return { refusal: refusals.untypedCall }
    const bound =
      typeof localBound === 'number' ? localBound : bounds.boundSince({ account, session }, null)
    const payment = payAtHand(call, { bound, at: clocks.mono() })
    if (payment) return payment
    if (!deps.offline.spend(account.authId, bound)) return unavailable
    payments.payOffline(call, bound)
    return { money: 'offline', expiry: 0 }
  }

  return { pay }
}
