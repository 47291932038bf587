export interface OfflineOptions {
  /** Nano-dollars while core is away: for one user, and for all of them. */
  readonly userBudget: number
  readonly budget: number
}

/**
 * What may be spent beyond leases while core is away. It is reported as such later, and the budgets
 * begin anew once core knows of all of it.
 */
export function createOfflineBudget({ userBudget, budget }: OfflineOptions) {
  const spent = new Map<string, number>()
  let total = 0
  let ever = 0

  /** Takes `bound` from both budgets; false when one of them does not cover it. */
  function spend(authId: string, bound: number): boolean {
    const ofUser = (spent.get(authId) ?? 0) + bound
    if (ofUser > userBudget || total + bound > budget) return false
    spent.set(authId, ofUser)
    total += bound
    ever += bound
    return true
  }

  function reset(): void {
    if (total === 0) return
    spent.clear()
    total = 0
  }

  return { spend, reset, ever: () => ever }
}

export type OfflineBudget = ReturnType<typeof createOfflineBudget>
