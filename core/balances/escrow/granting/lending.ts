import type { UserKey } from '../../../shared/ids.ts'
import { uuidV7 } from '../../../lib/crypto.ts'
import { type UsdAttos, usdAttos } from '../../../lib/money.ts'
import { addSeconds } from '../../../lib/time.ts'
import {
  type Room,
  leftIn,
  lendable,
  networkCost,
  spendingWith,
  takeFrom,
} from '../../exposure/exposure.ts'
import { type Account, toAppTime } from '../../accounts/account.ts'
import { freeAt, uncommittedAt, unheldAt } from '../../accounts/credits.ts'
import { type SpendRefusal, spendingAt } from '../../accounts/spending.ts'
import type { Leases } from '../leases.ts'
import type { Lease, SidecarProcess } from '../port.ts'
import { computeSlice } from './slices.ts'

/** Opens or renews one lease. Changes only the account and the leases passed in. */

export interface LendCall extends UserKey {
  /** Nothing is lent to an inactive user. */
  readonly isActive: boolean
  /** The sidecar's open lease, and the total debited from it. */
  readonly leaseId: string | null
  readonly used: UsdAttos
  /** Bound of the current call; 0 if not known yet. */
  readonly bound: UsdAttos
  /** The user's spending per second at this sidecar. */
  readonly spending: UsdAttos
  /**
   * A session whose earlier calls the sidecar has not seen, with the number of the current call.
   */
  readonly session: { readonly id: string; readonly sequence: bigint } | null
}

export interface LentLease {
  readonly id: string
  readonly amount: UsdAttos
  /** How long the sidecar may spend it, by its own clock and counted from before its request. */
  readonly seconds: number
}

export interface LendAnswer {
  /** Null if each call must be reserved. */
  readonly lease: LentLease | null
  readonly remaining: UsdAttos
  /** Whether any money or credit line is left, of the user and of the app's owner. */
  readonly canSpend: boolean
  /** Null if `canSpend`. */
  readonly spendRefusal: SpendRefusal | null
  readonly raise: UsdAttos
}

interface Situation {
  readonly process: SidecarProcess
  readonly account: Account
  readonly leases: Leases
  readonly leaseSeconds: number
  /** True for a user with limits, who must reserve each call. */
  readonly isLimited: boolean
  /** Ratio by which a bound at network price is multiplied, scaled by 10^18. */
  readonly retailRatio: bigint
  /** What the app's owner can still pay for; null if no owner pays. */
  readonly room: Room | null
  /** What the next period includes, if it begins before the call is signed; otherwise 0. */
  readonly nextIncluded: bigint
  readonly at: Date
}

/**
 * Core holds a lease for this long after its end, and the sidecar stops 2 s before its end. The
 * signer waits 5 s for an answer, so this covers a sidecar that was frozen between its decision and
 * its answer.
 */
export const graceSeconds = 6
/**
 * A call that core reserves is signed within this time: the answer's way to the sidecar, plus the 5
 * s that the signer waits.
 */
export const reservationSeconds = 10
/** A lease that cannot be renewed serves until its end, unless less than this is left. */
const usefulSeconds = 5

/**
 * Opens or renews the lease of a call's user at the sidecar. If the money for the current call is
 * lent elsewhere, recalls it.
 */
export function lendTo(call: LendCall, situation: Situation): LendAnswer {
  const { account, leases, at } = situation
  const own = toAppTime(account, at)
  const before = account.lent
  const { room } = situation
  // The owner's account has lost money that was lent.
  if (room && leftIn(room) < 0n) leases.recall(account, { missing: 0n, at })
  const lease = call.isActive && !situation.isLimited ? renew(call, situation) : null
  if (!lease && call.isActive && call.bound > 0n) {
    const { nextIncluded } = situation
    const times = { at: own, until: addSeconds(own, reservationSeconds), nextIncluded }
    const free = freeAt(account, times)
    if (free < call.bound) leases.recall(account, { missing: call.bound - free, at })
  }
  const { canSpend, refusal: spendRefusal } = spendingWith(room, spendingAt(account, own))
  return {
    lease,
    remaining: unheldAt(account, own),
    canSpend,
    spendRefusal,
    raise: usdAttos(account.lent - before),
  }
}

function renew(call: LendCall, situation: Situation): LentLease | null {
  const { process, account, leases, at } = situation
  if (account.lendAfter !== null && account.lendAfter > at) return null
  const own = leases.list(account.userId).find(({ instance }) => instance === process.instance)
  if (!own) return extend(call, situation, newLease(process, account, situation))
  // An ended lease is an orphan, and unmatched tickets may have lowered it. The sidecar returns it
  // and gets a new one.
  return own.recalledAt !== null || own.endsAt <= at ? null : extend(call, situation, own)
}

function extend(call: LendCall, situation: Situation, lease: Lease): LentLease | null {
  const { account, leases, leaseSeconds, retailRatio, room, at } = situation
  const rest = usdAttos(lease.amount - usedOf(lease, call))
  const endsAt = addSeconds(at, leaseSeconds + graceSeconds)
  // The sidecar sells at this ratio from now on, even if the lease only serves until its end. At a
  // lower one, the rest of the lease can cost the owner more.
  if (retailRatio < lease.retailRatio) {
    const more = networkCost(rest, retailRatio) - networkCost(rest, lease.retailRatio)
    if (room && !takeFrom(room, more)) return null
    lease.retailRatio = retailRatio
    leases.put(lease)
  }
  const uncommitted = uncommittedAt(account, {
    at: toAppTime(account, at),
    until: toAppTime(account, endsAt),
  })
  // Holds must not outlast the credit that covers them.
  if (uncommitted < 0n) return rest > 0n && rest >= call.bound ? untilItsEnd(lease, at) : null
  const free = room ? least(uncommitted, lendable(room, retailRatio)) : uncommitted
  const slice = computeSlice({ ...call, free, rest, retailRatio }, leaseSeconds)
  if (slice === null) return null
  const raise = slice - rest
  if (room && !takeFrom(room, networkCost(raise, retailRatio))) return null
  lease.amount = usdAttos(lease.amount + raise)
  lease.endsAt = endsAt
  account.lent = usdAttos(account.lent + raise)
  leases.put(lease)
  return { id: lease.id, amount: lease.amount, seconds: leaseSeconds }
}

const least = (a: UsdAttos, b: bigint): UsdAttos => (a < b ? a : usdAttos(b))

// A sidecar that lost its last answer may not know its lease. Core's figure then counts.
function usedOf(lease: Lease, { leaseId, used }: LendCall): bigint {
  if (leaseId !== lease.id || used < lease.used) return lease.used
  return used < lease.amount ? used : lease.amount
}

function untilItsEnd(lease: Lease, at: Date): LentLease | null {
  const seconds = Math.floor((lease.endsAt.getTime() - at.getTime()) / 1000) - graceSeconds
  return seconds < usefulSeconds ? null : { id: lease.id, amount: lease.amount, seconds }
}

const newLease = (
  { id, instance }: SidecarProcess,
  user: UserKey,
  { at, retailRatio }: Situation,
): Lease => ({
  appId: user.appId,
  userId: user.userId,
  id: uuidV7(at.getTime()),
  sidecarId: id,
  instance,
  amount: usdAttos(0n),
  used: usdAttos(0n),
  createdAt: at,
  endsAt: at,
  recalledAt: null,
  retailRatio,
})
