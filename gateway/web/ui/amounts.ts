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

/** Formats an amount of any currency, given as decimal text, such as `1,200 JPY`. */
export function formatCurrency(amount: string, currency: string): string {
  if (currency === 'USD') return formatDollars(amount)
  const [, sign = '', whole = '0', fraction = ''] = /^(-?)(\d+)(\.\d+)?$/.exec(amount) ?? []
  return `${sign}${group(BigInt(whole))}${fraction} ${currency}`
}

const group = (value: bigint): string => value.toLocaleString('en-US')

function groupText(amount: string): string {
  const [whole = '0', fraction = '00'] = amount.split('.')
  return `${group(BigInt(whole))}.${fraction.padEnd(2, '0')}`
}

/** Formats a count as `12,345`. */
export const formatCount = (count: number): string => count.toLocaleString('en-US')

const microsMax = 10n ** 15n

/**
 * Converts dollars such as `25` or `0.05` exactly to USD micros. Returns null for a text that is no
 * amount, for less than `least` micros, and for an amount that no route accepts.
 */
export function parseDollars(text: string, least = 1n): string | null {
  const [, whole, fraction = ''] = /^(\d{1,10})(?:\.(\d{1,6}))?$/.exec(text.trim()) ?? []
  if (whole === undefined) return null
  const micros = BigInt(whole) * microsPerDollar + BigInt(fraction.padEnd(6, '0'))
  return micros >= least && micros <= microsMax ? micros.toString() : null
}

/** Formats USD micros as the decimal text that `parseDollars` reads. */
export function toDollarText(micros: string): string {
  const value = BigInt(micros)
  const fraction = (value % microsPerDollar)
    .toString()
    .padStart(6, '0')
    .replace(/0{1,4}$/, '')
  return `${value / microsPerDollar}.${fraction}`
}

/** Converts decimal dollars to USD micros, rounded half away from zero. */
export function roundToMicros(dollars: string): string {
  const [whole = '0', fraction = ''] = dollars.replace('-', '').split('.')
  const micros = (BigInt(whole + fraction.slice(0, 7).padEnd(7, '0')) + 5n) / 10n
  return (dollars.startsWith('-') ? -micros : micros).toString()
}
