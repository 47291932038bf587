import { spendableAt } from '../../core/allowances/account.ts'
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

/**
 * Checks that, without faults, a call is refused for money only if less is left than it costs.
 * Returns the problem of a refusal, or null. Skips calls that the escrow rightly bounds by more
 * than their cost: sessions that change their sidecar, and users with untyped calls.
 */
export function createEarlyRefusals({ plan, database, truth, world, waiting }: EarlyRefusalDeps) {
  const { isCalm, roams, sessions, untypedUsdMicros } = plan.world
  const hasUntyped = new Set(sessions.flatMap(({ type, user }) => (type === '' ? [user] : [])))

  function check(call: SignerCall, { status, code }: SidecarAnswer, now: number): string | null {
    const { type, user } = call.session.plan
    if (!isCalm || status === 200) return null
    if (code === 'untyped_call' && type === '' && untypedUsdMicros === null) return null
    if (code !== 'insufficient_balance') return `${describe(call)} is refused for ${code}`
    if (roams || hasUntyped.has(user)) return null
    const left = leftOf(user, now)
    const cost = world.costNow(call)
    return left > cost + slackOf(call)
      ? `${describe(call)} is refused, which costs ${cost} attos of ${left} that are left`
      : null
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
    return account ? left + spendableAt(account.credits, new Date(epochMs + now)) : 0n
  }

  return check
}
