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
  /** Of these what was promised for time ahead: no event need come of it. */
  promised: number
  promisedEarlier: number
  /** Promises that were counted longer than two lags ago, until `pending` is asked. */
  lapsed: number
}

const attosPerNano = 1_000_000_000n

/** Atto-dollars as whole nano-dollars, rounded down; what a number cannot hold is as good as that. */
export function nanosDown(attos: bigint): number {
  const nanos = attos / attosPerNano
  return nanos > BigInt(Number.MAX_SAFE_INTEGER) ? Number.MAX_SAFE_INTEGER : Number(nanos)
}

/**
 * `lagMs`: how long a payment may take to reach the ledger. Instants are Unix milliseconds.
 * `onMissing` is told of nano-dollars of calls that were allowed and in that time did not reach it.
 */
export function createTabs(lagMs: number, onMissing: (nanos: number) => void = () => {}) {
  const open = (consumed: bigint, at: number): Tab => ({
    base: consumed,
    spent: 0,
    recent: 0,
    earlier: 0,
    since: at,
    promised: 0,
    promisedEarlier: 0,
    lapsed: 0,
  })

  function spend(tab: Tab, cost: number, at: number): void {
    age(tab, at)
    tab.spent += cost
    tab.recent += cost
  }

  /** The same for time that has not passed yet. */
  function promise(tab: Tab, cost: number, at: number): void {
    spend(tab, cost, at)
    tab.promised += cost
  }

  /** Undoes what was promised at `promisedAt`, in the time it was counted in. */
  function giveBack(tab: Tab, cost: number, promisedAt: number): void {
    tab.spent -= cost
    if (promisedAt >= tab.since) {
      tab.recent -= cost
      tab.promised -= cost
    } else if (promisedAt >= tab.since - lagMs) {
      tab.earlier -= cost
      tab.promisedEarlier -= cost
    }
  }

  /** What was spent here and is not in `consumed`; never negative. */
  function pending(tab: Tab, consumed: bigint, at: number): number {
    age(tab, at)
    const open = tab.spent - nanosDown(consumed - tab.base)
    const still = tab.recent + tab.earlier
    const left = Math.max(0, Math.min(open, still))
    const missing = open - still - tab.lapsed
    if (missing > 0) onMissing(missing)
    tab.lapsed = 0
    // Counted afresh from here, so that differences between estimate and ticket do not pile up.
    tab.base = consumed
    tab.spent = left
    return left
  }

  function age(tab: Tab, at: number): void {
    const lags = Math.floor((at - tab.since) / lagMs)
    if (lags < 1) return
    tab.lapsed += tab.promisedEarlier + (lags === 1 ? 0 : tab.promised)
    tab.promisedEarlier = lags === 1 ? tab.promised : 0
    tab.promised = 0
    tab.earlier = lags === 1 ? tab.recent : 0
    tab.recent = 0
    tab.since += lags * lagMs
  }

  return { open, spend, promise, giveBack, pending }
}
