import { formatMicros } from './amounts.ts'
import { attosToMicros } from './attos.ts'

/** Amounts of 18 digits after the point: wei, and the atto-dollars that core counts in. */

const unit = 10n ** 18n
const weiPerGwei = 10n ** 9n
const weiPerMicroEth = 10n ** 12n

/** Formats a whole number that may exceed the precision of a double, given as text or not. */
export const formatInteger = (value: bigint | string): string =>
  BigInt(value).toLocaleString('en-US')

/** Formats wei as ETH, rounded to six digits, and smaller amounts as gwei or wei. */
export function formatWei(wei: string): string {
  const value = BigInt(wei)
  if (value === 0n) return '0 ETH'
  if (value < weiPerGwei) return `${formatInteger(value)} wei`
  return value < weiPerMicroEth
    ? `${decimal(value, weiPerGwei, 3)} gwei`
    : `${decimal(value, unit, 6)} ETH`
}

/** Formats wei exactly, for the hint on an amount. */
export const formatExactWei = (wei: string): string =>
  `${decimal(BigInt(wei), unit, 18)} ETH (${formatInteger(wei)} wei)`

/** Formats 10^-18 USD as dollars, rounded to micros. */
export const formatAttos = (attos: string): string => formatMicros(attosToMicros(BigInt(attos)))

/** Formats 10^-18 USD exactly, for the hint on an amount. */
export function formatExactAttos(attos: string): string {
  const value = BigInt(attos)
  return `${value < 0n ? '-' : ''}${decimal(value < 0n ? -value : value, unit, 18)} USD`
}

/** Divides and rounds to at most `digits` digits after the point. */
function decimal(value: bigint, divisor: bigint, digits: number): string {
  const step = divisor / 10n ** BigInt(digits)
  const scale = 10n ** BigInt(digits)
  const rounded = (value + step / 2n) / step
  const fraction = (rounded % scale).toString().padStart(digits, '0').replace(/0+$/, '')
  return `${formatInteger(rounded / scale)}${fraction === '' ? '' : `.${fraction}`}`
}
