/** When deliveries are attempted (docs/webhooks.md, "Schedule"). */

const minute = 60_000
const hour = 60 * minute
const day = 24 * hour

/** Pauses after the first, second, ... failed attempt; 71.6 hours together. */
const pausesMs: readonly number[] = [
  5_000,
  5 * minute,
  30 * minute,
  2 * hour,
  5 * hour,
  10 * hour,
  14 * hour,
  20 * hour,
  20 * hour,
]
/** After this time without a success a delivery has failed, however often it was attempted. */
export const deliveryMs = 3 * day
/** An endpoint that only fails for this long is disabled. */
export const endpointMs = 5 * day
/** After this many failures in a row, an endpoint gets one delivery at a time, with pauses. */
export const failuresMax = 5
/** Pauses of such an endpoint. */
export const endpointPauses = { firstMs: 5_000, lastMs: 5 * minute }
export const keptMs = 30 * day
/** A failing endpoint with more waiting deliveries is disabled. */
export const backlogMax = 100_000

/**
 * Returns when to attempt a delivery again after its `attempts`-th attempt failed at `at`; null if
 * it has failed for good. Each pause is shorter by a random part of up to a tenth.
 */
export function nextAttempt(
  attempts: number,
  { startedAt, at }: { readonly startedAt: Date; readonly at: Date },
): Date | null {
  const pause = pausesMs[attempts - 1]
  const end = startedAt.getTime() + deliveryMs
  if (pause === undefined || at.getTime() >= end) return null
  const next = at.getTime() + pause * (1 - Math.random() / 10)
  return new Date(Math.min(next, end))
}
