import { formatDecimal18, formatDollars, parseDecimal18 } from '../../core/lib/money.ts'
import { UsageError } from './options.ts'

/** An amount of money in the format of an RPC. */
export type Amount =
  | { readonly micros: string | undefined }
  | { readonly nanos: string }
  | { readonly attos: string }
  /** Decimal dollars. */
  | { readonly exact: string | undefined }

/**
 * Formats dollars without the unit, for a column with the unit in its header: at least two
 * decimals, and as many as the amount has. Empty for an absent amount.
 */
export function dollars(amount: Amount): string {
  const attos = attosOf(amount)
  // A rate may have more decimals than an amount.
  if (attos === null) return 'exact' in amount ? (amount.exact ?? '') : ''
  return formatDollars(attos)
}

/** The same with the unit: "7.50 USD". */
export const usd = (amount: Amount): string => `${dollars(amount)} USD`

function attosOf(amount: Amount): bigint | null {
  if ('attos' in amount) return BigInt(amount.attos)
  if ('nanos' in amount) return BigInt(amount.nanos) * 10n ** 9n
  if ('micros' in amount)
    return amount.micros === undefined ? null : BigInt(amount.micros) * 10n ** 12n
  const { exact = '' } = amount
  const value = parseDecimal18(exact.replace(/^-/, ''))
  return value === null || !exact.startsWith('-') ? value : -value
}

// A rate is USD for one USD-micro of network cost: 0.000001 is the network cost itself.
const networkRate = 10n ** 12n

/**
 * Converts a rate to a markup: "0.0000015" to "+50 %". Null for text that is not a decimal of at
 * most 18 places.
 */
export function percentOfRate(rate: string): string | null {
  const value = parseDecimal18(rate)
  if (value === null) return null
  const percent = formatDecimal18((value - networkRate) * 10n ** 8n)
  return `${percent.startsWith('-') ? '' : '+'}${percent} %`
}

/** Converts a markup in percent to a rate: "50" to "0.0000015". A UsageError names the option. */
export function rateOfPercent(text: string, option: string): string {
  const percent = parseDecimal18(text.replace(/^[+-]/, ''))
  const value = percent !== null && text.startsWith('-') ? -percent : percent
  const total = value === null ? -1n : 100n * 10n ** 18n + value
  if (total < 0n || total % 10n ** 8n !== 0n)
    throw new UsageError(`${option} takes a markup in percent, from -100, with at most 10 decimals`)
  return formatDecimal18(total / 10n ** 8n)
}
