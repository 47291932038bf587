import type { Db } from '../../lib/sql.ts'
import type { UserKey } from '../../shared/ids.ts'
import { createLend } from './granting/lend.ts'
import { type EscrowDeps, createLocking } from './locking.ts'
import { createReserve } from './granting/reserve.ts'
import { createReports } from './reports/report.ts'

/**
 * Lends, reserves and takes reports (docs/escrow.md). Every function runs inside the caller's
 * transaction, locks users in id order, and takes the time from `at` instead of a clock. Invariant:
 * `lent` and `pending` of an account are the sums over its leases and its pending authorisations.
 * Only calls that a sidecar already allowed can raise them beyond what is free.
 */
export function createEscrow(deps: EscrowDeps) {
  const parts = { ...deps, ...createLocking(deps) }

  /** Locks the accounts of users and recalls their leases. */
  async function recall(db: Db, users: readonly UserKey[], at: Date): Promise<void> {
    const { find, leases, save } = await parts.lock(db, users, { at })
    for (const user of users) {
      const account = find(user)
      if (account) leases.recall(account, { missing: 0n, at })
    }
    await save()
  }

  const { findPayers } = parts
  const calls = { ...createLend(parts), ...createReserve(parts), ...createReports(parts) }
  return { ...calls, findPayers, recall }
}

export type Escrow = ReturnType<typeof createEscrow>
