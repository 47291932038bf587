import type { Account } from '../../core/allowances/account.ts'
import type { Database } from './actors/database.ts'
import type { Truth } from './truth.ts'

/**
 * Checks the users that a step has changed: the rule itself, by what really happened (`truth.ts`),
 * and that core's own figures agree. Returns the problem, or null.
 */
export function createRule(truth: Truth, { tables, accounts, takeTouched }: Database) {
  function check(now: number): string | null {
    for (const userId of takeTouched()) {
      const problem = checkUser(userId, now)
      if (problem) return problem
    }
    return null
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
