/**
 * What was spent here and core may not know of yet. Core tells what a user has consumed in all; what was spent here
 * since `base` and has not shown there is pending. Nothing stays pending for ever: a payment that was allowed may
 * never have been signed, so that only what was spent within the last one to two lags counts.
 */
export interface Tab {
  /** Core's figure at which `spent` was zero. */
  base: bigint
  spent: bigint
  /** Spent since `since`, and in the lag before. */
  recent: bigint
  earlier: bigint
  since: number
}

/** Unix milliseconds, and how long a payment may take to reach the ledger. */
export interface Moment {
  readonly at: number
  readonly lagMs: number
}

export const openTab = (consumed: bigint, at: number): Tab => ({
  base: consumed,
  spent: 0n,
  recent: 0n,
  earlier: 0n,
  since: at,
})

export function spendOn(tab: Tab, cost: bigint, moment: Moment): void {
  age(tab, moment)
  tab.spent += cost
  tab.recent += cost
}

/** Atto-dollars spent here that are not in `consumed`; never negative. */
export function pendingOf(tab: Tab, consumed: bigint, moment: Moment): bigint {
  age(tab, moment)
  const open = tab.spent - (consumed - tab.base)
  // What is given back may be older than what is left of the time that counts.
  const possible = tab.recent + tab.earlier < 0n ? 0n : tab.recent + tab.earlier
  const pending = open < 0n ? 0n : open < possible ? open : possible
  // Counted afresh from here, so that differences between estimate and ticket do not pile up.
  tab.base = consumed
  tab.spent = pending
  return pending
}

function age(tab: Tab, { at, lagMs }: Moment): void {
  if (at - tab.since < lagMs) return
  const lags = Math.floor((at - tab.since) / lagMs)
  tab.earlier = lags === 1 ? tab.recent : 0n
  tab.recent = 0n
  tab.since += lags * lagMs
}
