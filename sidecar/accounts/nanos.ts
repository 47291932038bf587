/**
 * Money in a sidecar: whole nano-dollars in numbers, changed in place. With bigints the row
 * `authorize-warm` of `npm run bench` took 10 us more for a decision, in collections of long-lived
 * garbage.
 */

const attos = /^\d{1,60}$/

/**
 * Atto-dollars of the wire as nano-dollars, rounded down and capped at the largest safe integer.
 * Throws for other text.
 */
export function nanosDown(text: string): number {
  if (!attos.test(text)) throw new Error('core answered with an unreadable amount')
  return Math.min(Number(text.slice(0, -9)), Number.MAX_SAFE_INTEGER)
}

/** Whole nano-dollars as atto-dollars of the wire. */
export const attosOf = (nanos: number): string => (nanos === 0 ? '0' : `${nanos}000000000`)

/** Atto-dollars for one ETH as nano-dollars for one wei. */
export const nanosPerWei = (usdAttosPerEth: string): number => Number(usdAttosPerEth) / 1e27
