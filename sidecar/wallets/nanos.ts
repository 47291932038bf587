/**
 * Money in a sidecar is whole nano-dollars in mutable numbers. With bigints, a decision took 10 us
 * longer (row `authorize-warm` of `npm run bench`), spent in collections of long-lived garbage.
 */

const attos = /^\d{1,60}$/

/**
 * Converts atto-dollars (text) to nano-dollars, rounded down and capped at the largest safe
 * integer. Throws for other text.
 */
export function nanosDown(text: string): number {
  if (!attos.test(text)) throw new Error('core answered with an unreadable amount')
  return Math.min(Number(text.slice(0, -9)), Number.MAX_SAFE_INTEGER)
}

/** Converts whole nano-dollars to atto-dollars (text). */
export const toAttos = (nanos: number): string => (nanos === 0 ? '0' : `${nanos}000000000`)

/** Converts atto-dollars for one ETH to nano-dollars for one wei. */
export const nanosPerWei = (usdAttosPerEth: string): number => Number(usdAttosPerEth) / 1e27
