/**
 * What was spent here and core may not know of yet, in nano-dollars. Core tells what a user has
 * consumed in all; what was spent here since `base` and has not shown there is pending. Nothing
 * stays pending for ever: a payment that was allowed may never have been signed, so that only what
 * was spent within the last one to two lags counts.
 *
 * These are estimates that bound what is allowed until the ledger, which is exact, has caught up:
 * whole nano-dollars in numbers that are changed in place. Bigints here cost 10 us a decision, in
 * collections of what lives long.
 */
export interface Tab {
  /** Core's figure, in atto-dollars, at which `spent` was zero. */
  base: bigint
  spent: number
  /** Spent since `since`, and in the lag before. */
  recent: number
  earlier: number
  since: number
}

const attosPerNano = 1_000_000_000n

/** Atto-dollars as whole nano-dollars, rounded down; what a number cannot hold is as good as that. */
export function nanosDown(attos: bigint): number {
  const nanos = attos / attosPerNano
  return nanos > BigInt(Number.MAX_SAFE_INTEGER) ? Number.MAX_SAFE_INTEGER : Number(nanos)
}

/** `lagMs`: how long a payment may take to reach the ledger. Instants are Unix milliseconds. */
export function createTabs(lagMs: number) {
  const open = (consumed: bigint, at: number): Tab => ({
    base: consumed,
    spent: 0,
    recent: 0,
    earlier: 0,
    since: at,
  })

  function spend(tab: Tab, cost: number, at: number): void {
    age(tab, at)
    tab.spent += cost
    tab.recent += cost
  }

  /** Undoes what was spent at `spentAt`, in the time it was counted in. */
  function giveBack(tab: Tab, cost: number, spentAt: number): void {
    tab.spent -= cost
    if (spentAt >= tab.since) tab.recent -= cost
    else if (spentAt >= tab.since - lagMs) tab.earlier -= cost
  }

  /** What was spent here and is not in `consumed`; never negative. */
  function pending(tab: Tab, consumed: bigint, at: number): number {
    age(tab, at)
    const open = tab.spent - nanosDown(consumed - tab.base)
    const left = Math.max(0, Math.min(open, tab.recent + tab.earlier))
    // Counted afresh from here, so that differences between estimate and ticket do not pile up.
    tab.base = consumed
    tab.spent = left
    return left
  }

  function age(tab: Tab, at: number): void {
    const lags = Math.floor((at - tab.since) / lagMs)
    if (lags < 1) return
    tab.earlier = lags === 1 ? tab.recent : 0
    tab.recent = 0
    tab.since += lags * lagMs
  }

  return { open, spend, giveBack, pending }
}
