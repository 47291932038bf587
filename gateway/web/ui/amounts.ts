const microsPerDollar = 1_000_000n

/** Formats USD micros as dollars: cents, and more digits only where the amount is below a cent. */
export function formatMicros(micros: string): string {
  const value = BigInt(micros)
  const [sign, size] = value < 0n ? ['-', -value] : ['', value]
  const isSmall = size > 0n && size < 10_000n
  const unit = isSmall ? 1n : 10_000n
  const rounded = ((size + unit / 2n) / unit) * unit
  const fraction = (rounded % microsPerDollar).toString().padStart(6, '0')
  const digits = isSmall ? fraction.replace(/0+$/, '') : fraction.slice(0, 2)
  return `${sign}$${group(rounded / microsPerDollar)}.${digits}`
}

/** Formats USD micros exactly, for the hint on an amount. */
export function formatExactMicros(micros: string): string {
  const value = BigInt(micros)
  const size = value < 0n ? -value : value
  const fraction = (size % microsPerDollar).toString().padStart(6, '0')
  return `${value < 0n ? '-' : ''}${group(size / microsPerDollar)}.${fraction} USD`
}

/** Formats dollars given as decimal text. */
export const formatDollars = (amount: string): string =>
  amount.startsWith('-') ? `-$${groupText(amount.slice(1))}` : `$${groupText(amount)}`

const group = (value: bigint): string => value.toLocaleString('en-US')

function groupText(amount: string): string {
  const [whole = '0', fraction = '00'] = amount.split('.')
  return `${group(BigInt(whole))}.${fraction.padEnd(2, '0')}`
}

/** Formats a count as `12,345`. */
export const formatCount = (count: number): string => count.toLocaleString('en-US')
