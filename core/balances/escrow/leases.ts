import { usdAttos } from '../../lib/money.ts'
import { addSeconds } from '../../lib/time.ts'
import type { UserId } from '../../shared/ids.ts'
import type { Account } from '../accounts/account.ts'
import type { Lease, LeaseChanges } from './port.ts'

/** How long nothing is lent to a user after a recall. */
const recallSeconds = 10

/** Finds the leases of locked accounts and collects their changes. */
export function createLeases(stored: readonly Lease[]) {
  const byUser = Map.groupBy(stored, ({ userId }) => userId)
  const opened = new Set<Lease>()
  const changed = new Set<Lease>()
  const closed = new Set<Lease>()

  const list = (user: UserId): Lease[] => byUser.get(user) ?? []

  /** Opens a new lease, or records that a lease has changed. */
  function put(lease: Lease): void {
    if (opened.has(lease)) return
    if (list(lease.userId).includes(lease)) changed.add(lease)
    else {
      byUser.set(lease.userId, [...list(lease.userId), lease])
      opened.add(lease)
    }
  }

  function close(lease: Lease): void {
    byUser.set(
      lease.userId,
      list(lease.userId).filter((other) => other !== lease),
    )
    changed.delete(lease)
    if (!opened.delete(lease)) closed.add(lease)
  }

  /**
   * Recalls the user's money from all sidecars if it would cover `missing`. Returns whether it
   * would, including when it is already recalled.
   */
  function recall(account: Account, { missing, at }: { missing: bigint; at: Date }): boolean {
    const live = list(account.userId).filter(({ endsAt }) => endsAt > at)
    if (live.reduce((sum, lease) => sum + leaseRemainder(lease), 0n) < missing) return false
    account.lendAfter = addSeconds(at, recallSeconds)
    for (const lease of live.filter(({ recalledAt }) => recalledAt === null)) {
      lease.recalledAt = at
      put(lease)
    }
    return true
  }

  /** Returns the users with a lease that was recalled here at `at`. */
  const recalledAt = (at: Date): UserId[] => [
    ...new Set([...changed].filter((lease) => lease.recalledAt === at).map(({ userId }) => userId)),
  ]

  const changes = (): LeaseChanges => ({
    opened: [...opened],
    changed: [...changed],
    closed: [...closed],
  })

  return { list, put, close, recall, recalledAt, changes }
}

export type Leases = ReturnType<typeof createLeases>

/** Money lent under a lease and not known to be used, in atto-dollars. */
export const leaseRemainder = ({ amount, used }: Lease) => usdAttos(amount - used)
