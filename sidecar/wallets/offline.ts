export interface OfflineOptions {
  /** Budgets in nano-dollars while core is unavailable: per user, and in total. */
  readonly userBudget: number
  readonly budget: number
}

/**
 * Limits the spending beyond leases while core is unavailable. Such calls are marked in reports,
 * and the budgets are reset when core has received all of them.
 */
export function createOfflineBudget({ userBudget, budget }: OfflineOptions) {
  const spent = new Map<string, number>()
  let total = 0
  let spentInTotal = 0

  /** Takes `bound` from both budgets; returns false if one does not cover it. */
  function spend(authId: string, bound: number): boolean {
    const spentByUser = (spent.get(authId) ?? 0) + bound
    if (spentByUser > userBudget || total + bound > budget) return false
    spent.set(authId, spentByUser)
    total += bound
    spentInTotal += bound
    return true
  }

  function reset(): void {
    if (total === 0) return
    spent.clear()
    total = 0
  }

  return { spend, reset, spentInTotal: () => spentInTotal }
}

export type OfflineBudget = ReturnType<typeof createOfflineBudget>
