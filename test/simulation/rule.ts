import type { Account } from '../../core/balances/accounts/account.ts'
import type { Database } from './actors/database.ts'
import type { Truth } from './truth.ts'
import { epochMs } from './virtual-time.ts'

/**
 * Checks the users that a step has changed: the rule itself, by what really happened (`truth.ts`),
 * and that core's own figures agree. Returns the problem, or null.
 */
export function createRule(
  truth: Truth,
  { tables, accounts, takeTouched }: Database,
  ownerId: string | null,
) {
  function check(now: number): string | null {
    let isTouched = false
    for (const userId of takeTouched()) {
      isTouched = true
      const problem = userId === ownerId ? null : checkUser(userId, now)
      if (problem) return problem
    }
    const owner = isTouched && ownerId !== null ? accounts.get(ownerId) : null
    if (!owner) return null
    return truth.checkOwner({ ...owner, entries: [], periods: [] }, new Date(epochMs + now))
  }

  function checkUser(userId: string, now: number): string | null {
    const stored = accounts.get(userId)
    if (!stored) return null
    const account: Account = { ...stored, entries: [], periods: [] }
    const authorisations = tables.authorisations.get(userId) ?? []
    const leases = tables.leases.get(userId) ?? []
    const lent = leases.reduce((sum, { amount, used }) => sum + amount - used, 0n)
    const pending = authorisations.reduce(
      (sum, { state, bound }) => (state === 'pending' ? sum + bound : sum),
      0n,
    )
    if (account.lent !== lent) return `${userId} has ${account.lent} lent, its leases ${lent}`
    if (account.pending !== pending)
      return `${userId} has ${account.pending} pending, its authorisations ${pending}`
    const instances = new Set(leases.map(({ instance }) => instance))
    return truth.check(userId, { account, authorisations, instances }, now)
  }

  return { check }
}
