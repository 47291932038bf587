/**
 * Retail rates as people read them: a rate of 0.000001 USD for one USD-micro of network cost is 100 %
 * of the network price.
 */
const shift = 8

/** Converts a rate such as `0.0000015` exactly to per cent: `150`. */
export function percentOfRate(rate: string): string {
  const [whole = '0', fraction = ''] = rate.split('.')
  const digits = fraction.padEnd(shift, '0')
  const [integer, rest] = [whole + digits.slice(0, shift), digits.slice(shift)]
  return trimmed(integer, rest)
}

/** Converts per cent such as `150` exactly to a rate. Returns null for a text that is no number. */
export function rateOfPercent(percent: string): string | null {
  const [, whole, fraction = ''] = /^(\d{1,12})(?:\.(\d{1,10}))?$/.exec(percent.trim()) ?? []
  if (whole === undefined) return null
  const digits = whole.padStart(shift + 1, '0')
  return trimmed(digits.slice(0, -shift), digits.slice(-shift) + fraction)
}

/** Returns what a network cost in USD micros sells for at a rate, rounded up to a micro. */
export function sellAt(micros: bigint, rate: string): bigint {
  const [whole = '0', fraction = ''] = rate.split('.')
  const scale = 10n ** BigInt(fraction.length)
  // The rate is in USD for one micro, the result in micros.
  const exact = micros * BigInt(whole + fraction) * 1_000_000n
  return (exact + scale - 1n) / scale
}

function trimmed(integer: string, fraction: string): string {
  const end = fraction.replace(/0+$/, '')
  const start = integer.replace(/^0+(?=\d)/, '')
  return end === '' ? start : `${start}.${end}`
}
