import { later } from '../../shared/clocks/clocks.ts'

/** When a failed payment is tried again (docs/collection.md). Pure. */

const dayMs = 86_400_000
const retryDays = [1, 3, 7] as const

/** When access falls back to what is paid for, unless a payment succeeds before. */
export const givenUpAt = (failedAt: Date): Date => later(failedAt, 7 * dayMs)

/**
 * Returns when an invoice is charged again after a failure at `at`: 1, 3 and 7 days after the first
 * failure. Null after the last.
 */
export function nextRetry(failedAt: Date, at: Date): Date | null {
  const days = retryDays.find((count) => later(failedAt, count * dayMs) > at)
  return days === undefined ? null : later(failedAt, days * dayMs)
}
