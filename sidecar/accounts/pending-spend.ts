/**
 * What was spent here and may not be in core's ledger yet, in nano-dollars. Core says what a user
 * has consumed in all; what was spent here since `base` and does not show in that figure is
 * pending. Nothing stays pending for ever, because a payment that was allowed may never have been
 * signed: only what was spent within the last one to two lags counts.
 *
 * These are estimates that bound what is allowed until the exact ledger has caught up: whole
 * nano-dollars in numbers that are changed in place. With bigints the row `authorize-warm` of
 * `npm run bench` took 10 us more for a decision, in collections of long-lived garbage.
 */
export interface PendingSpend {
  /** Core's figure, in atto-dollars, at which `spent` was zero. */
  base: bigint
  spent: number
  /** Spent since `since`, and in the lag before. */
  recent: number
  earlier: number
  since: number
  /** What of these was charged in advance: no event need follow from it. */
  advance: number
  earlierAdvance: number
  /** Advances older than two lags, until `amount` is called. */
  expiredAdvance: number
}

const attosPerNano = 1_000_000_000n

/** Atto-dollars as whole nano-dollars, rounded down and capped at the largest safe integer. */
export function nanosDown(attos: bigint): number {
  const nanos = attos / attosPerNano
  return nanos > BigInt(Number.MAX_SAFE_INTEGER) ? Number.MAX_SAFE_INTEGER : Number(nanos)
}

/**
 * Functions over PendingSpend. `lagMs` is how long a payment may take to reach the ledger. Instants
 * are Unix milliseconds. `onMissing` is called with the nano-dollars of calls that were allowed and
 * did not reach the ledger in that time.
 */
export function createPendingSpending(
  lagMs: number,
  onMissing: (nanos: number) => void = () => {},
) {
  const open = (consumed: bigint, at: number): PendingSpend => ({
    base: consumed,
    spent: 0,
    recent: 0,
    earlier: 0,
    since: at,
    advance: 0,
    earlierAdvance: 0,
    expiredAdvance: 0,
  })

  function spend(pending: PendingSpend, cost: number, at: number): void {
    age(pending, at)
    pending.spent += cost
    pending.recent += cost
  }

  /** The same for time that has not passed yet. */
  function spendAdvance(pending: PendingSpend, cost: number, at: number): void {
    spend(pending, cost, at)
    pending.advance += cost
  }

  /** Undoes an advance that was charged at `chargedAt`, in the lag it was counted in. */
  function refundAdvance(pending: PendingSpend, cost: number, chargedAt: number): void {
    pending.spent -= cost
    if (chargedAt >= pending.since) {
      pending.recent -= cost
      pending.advance -= cost
    } else if (chargedAt >= pending.since - lagMs) {
      pending.earlier -= cost
      pending.earlierAdvance -= cost
    }
  }

  /** What was spent here and is not in `consumed`; never negative. */
  function amount(pending: PendingSpend, consumed: bigint, at: number): number {
    age(pending, at)
    const unseen = pending.spent - nanosDown(consumed - pending.base)
    const withinLags = pending.recent + pending.earlier
    const left = Math.max(0, Math.min(unseen, withinLags))
    const missing = unseen - withinLags - pending.expiredAdvance
    if (missing > 0) onMissing(missing)
    pending.expiredAdvance = 0
    // Counts afresh from here, so that differences between estimates and tickets do not add up.
    pending.base = consumed
    pending.spent = left
    return left
  }

  function age(pending: PendingSpend, at: number): void {
    const lags = Math.floor((at - pending.since) / lagMs)
    if (lags < 1) return
    pending.expiredAdvance += pending.earlierAdvance + (lags === 1 ? 0 : pending.advance)
    pending.earlierAdvance = lags === 1 ? pending.advance : 0
    pending.advance = 0
    pending.earlier = lags === 1 ? pending.recent : 0
    pending.recent = 0
    pending.since += lags * lagMs
  }

  return { open, spend, spendAdvance, refundAdvance, amount }
}
