import { usdAttos } from '../../lib/money.ts'
import { addSeconds } from '../../lib/time.ts'
import type { UserId } from '../../platform/ids.ts'
import type { Account } from '../account.ts'
import type { Lease, LeaseChanges } from './port.ts'

/** After a recall nothing is lent to the user for so long. */
const recallSeconds = 10

/** The leases of users whose accounts are locked: looks them up and gathers their changes. */
export function createLeases(stored: readonly Lease[]) {
  const byUser = Map.groupBy(stored, ({ userId }) => userId)
  const opened = new Set<Lease>()
  const changed = new Set<Lease>()
  const closed = new Set<Lease>()

  const of = (user: UserId): Lease[] => byUser.get(user) ?? []

  /** Opens a new lease, or notes that one has changed. */
  function put(lease: Lease): void {
    if (opened.has(lease)) return
    if (of(lease.userId).includes(lease)) changed.add(lease)
    else {
      byUser.set(lease.userId, [...of(lease.userId), lease])
      opened.add(lease)
    }
  }

  function close(lease: Lease): void {
    byUser.set(
      lease.userId,
      of(lease.userId).filter((other) => other !== lease),
    )
    changed.delete(lease)
    if (!opened.delete(lease)) closed.add(lease)
  }

  /**
   * Recalls the user's money from all sidecars when it would cover what is missing. Returns true when it would, also when it
   * is recalled already.
   */
  function recall(account: Account, { missing, at }: { missing: bigint; at: Date }): boolean {
    const live = of(account.userId).filter(({ endsAt }) => endsAt > at)
    if (live.reduce((sum, lease) => sum + restOf(lease), 0n) < missing) return false
    account.lendAfter = addSeconds(at, recallSeconds)
    for (const lease of live.filter(({ recalledAt }) => recalledAt === null)) {
      lease.recalledAt = at
      put(lease)
    }
    return true
  }

  /** Users of whom a lease was recalled here. */
  const recalledAt = (at: Date): UserId[] => [
    ...new Set([...changed].filter((lease) => lease.recalledAt === at).map(({ userId }) => userId)),
  ]

  const changes = (): LeaseChanges => ({
    opened: [...opened],
    changed: [...changed],
    closed: [...closed],
  })

  return { of, put, close, recall, recalledAt, changes }
}

export type Leases = ReturnType<typeof createLeases>

/** What core has lent under a lease and does not know to be used, in atto-dollars. */
export const restOf = ({ amount, used }: Lease) => usdAttos(amount - used)
