import { spendableAt } from '../../core/balances/accounts/credits.ts'
import type { Database } from './actors/database.ts'
import type { Plan } from './plan.ts'
import type { SidecarAnswer } from './actors/sidecar.ts'
import { type SignerCall, describe, pixelsPerSecond } from './actors/signer.ts'
import type { Truth } from './truth.ts'
import { epochMs } from './virtual-time.ts'
import type { World } from './actors/world.ts'

export interface EarlyRefusalDeps {
  readonly plan: Plan
  readonly database: Database
  readonly truth: Truth
  readonly world: World
  /** Calls that sidecars are deciding about. Money may be reserved for them. */
  readonly waiting: () => Iterable<SignerCall>
}

// Bounds are rounded up: to a wei, a pixel, and a nano-dollar.
const roundingAttos = 10n ** 12n
/** A call bills at least the time since the sidecar's last heartbeat; `live` rounds it up. */
const heartbeatSeconds = 3n
/** A sidecar repeats a refusal for a second, and may have requested it before the end of the period. */
const refusedMs = 1_500

/**
 * Checks that, without faults, a call is refused for money only if less is left than it costs.
 * Returns the problem of a refusal, or null. Skips calls that the escrow rightly bounds by more
 * than their cost: sessions that change their sidecar, and users with untyped calls.
 */
export function createEarlyRefusals({ plan, database, truth, world, waiting }: EarlyRefusalDeps) {
  const { isCalm, roams, sessions, untypedUsdMicros } = plan.world
  /** When each user was last refused by core, as far as a sidecar repeats it. */
  const refusedAt = new Map<number, number>()
  const hasUntyped = new Set(sessions.flatMap(({ type, user }) => (type === '' ? [user] : [])))

  function check(call: SignerCall, { status, code }: SidecarAnswer, now: number): string | null {
    const { type, user } = call.session.plan
    if (!isCalm || status === 200) return null
    if (code === 'untyped_call' && type === '' && untypedUsdMicros === null) return null
    const isOwners = code === 'owner_debt_ceiling_reached'
    if (!isOwners && code !== 'insufficient_balance' && code !== 'debt_ceiling_reached')
      return `${describe(call)} is refused for ${code}`
    if (roams || hasUntyped.has(user) || isRepeated(user, now)) return null
    // Tickets that cost less than their bounds may have freed money since.
    if (now - (refusedAt.get(user) ?? -Infinity) < refusedMs) return null
    refusedAt.set(user, now)
    if (isOwners) return ownerProblem(call, now)
    const left = leftOf(user, now)
    const cost = world.costNow(call)
    return left > cost + slackOf(call)
      ? `${describe(call)} is refused, which costs ${cost} attos of ${left} that are left`
      : null
  }

  /** Idle leases may hold three quarters of the owner's money, and settled calls for a moment, too. */
  function ownerProblem(call: SignerCall, now: number): string | null {
    const account = world.owner && database.accounts.get(world.owner.userId)
    if (!account) return `${describe(call)} is refused for an owner that nobody has`
    if (hasUntyped.size > 0) return null
    let left = spendableAt(account.credits, new Date(epochMs + now)) as bigint
    left += truth.creditLine(account.userId, account)
    for (const one of waiting()) left -= 2n * world.ownerCostNow(one) + roundingAttos
    for (const one of truth.truthOf(account.userId).open) left -= 2n * world.ownerCostNow(one)
    const cost = 2n * world.ownerCostNow(call) + roundingAttos
    return left > 8n * cost && left > 0n
      ? `${describe(call)} is refused, which costs the owner ${cost} attos of ${left} that are left`
      : null
  }

  /** True if a new period has begun while the sidecar may repeat a refusal from before. */
  function isRepeated(user: number, now: number): boolean {
    const sinceEnd = now - (plan.world.users[user]?.periodEndsMs ?? Infinity)
    return sinceEnd >= 0 && sinceEnd < refusedMs
  }

  /** Returns how far the bound of a call may exceed its cost. */
  function slackOf(call: SignerCall): bigint {
    const { type, price, units } = call.session.plan
    if (type === 'fixed') return roundingAttos
    const perSecond = type === 'lv2v' ? price * pixelsPerSecond : price
    const feeWei = (perSecond * heartbeatSeconds) / units
    return roundingAttos + world.costNow({ ...call, feeWei })
  }

  /** Returns the money that neither allowed calls take nor calls that wait for a decision. */
  function leftOf(user: number, now: number): bigint {
    const { userId } = world.userOf(user)
    let left: bigint = -roundingAttos
    for (const call of waiting())
      if (call.session.plan.user === user) left -= world.costNow(call) + slackOf(call)
    for (const call of truth.truthOf(userId).open) left -= call.cost + slackOf(call)
    const account = database.accounts.get(userId)
    if (!account) return 0n
    const line = truth.creditLine(userId, account)
    return left + line + spendableAt(account.credits, new Date(epochMs + now))
  }

  return check
}
