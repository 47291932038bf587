/**
 * Money is a `bigint` with its unit in the type. Internal units are wei and atto-dollars (10^-18
 * USD, with the same 18 decimals as wei). Micros (10^-6 USD) exist only at the edges. Each
 * displayed figure is rounded once: consumption up, balances down (decision 30).
 */
declare const unit: unique symbol
export type Wei = bigint & { readonly [unit]: 'wei' }
export type UsdAttos = bigint & { readonly [unit]: 'usd-attos' }
export type UsdMicros = bigint & { readonly [unit]: 'usd-micros' }
/** Atto-dollars per ETH. */
export type EthRate = bigint & { readonly [unit]: 'usd-attos-per-eth' }

const attosPerMicro = 1_000_000_000_000n
const weiPerEth = 1_000_000_000_000_000_000n

export const wei = (value: bigint): Wei => value as Wei
export const usdAttos = (value: bigint): UsdAttos => value as UsdAttos
export const usdMicros = (value: bigint): UsdMicros => value as UsdMicros
export const ethRate = (value: bigint): EthRate => value as EthRate

/** Rounds toward negative infinity. `divisor` is positive. */
export function divFloor(dividend: bigint, divisor: bigint): bigint {
  const quotient = dividend / divisor
  return dividend % divisor < 0n ? quotient - 1n : quotient
}

/** Rounds toward positive infinity. `divisor` is positive. */
export function divCeil(dividend: bigint, divisor: bigint): bigint {
  const quotient = dividend / divisor
  return dividend % divisor > 0n ? quotient + 1n : quotient
}

export const microsToAttos = (micros: UsdMicros): UsdAttos => usdAttos(micros * attosPerMicro)

/** For consumption: a fraction of a micro counts as a whole micro. */
export const microsUp = (attos: UsdAttos): UsdMicros => usdMicros(divCeil(attos, attosPerMicro))

/** For balances: a fraction of a micro does not count. */
export const microsDown = (attos: UsdAttos): UsdMicros => usdMicros(divFloor(attos, attosPerMicro))

/** The price of `fee` at `rate` in whole atto-dollars, rounded down (decision 47). */
export const computePrice = (fee: Wei, rate: EthRate): UsdAttos =>
  usdAttos(divFloor(fee * rate, weiPerEth))

/** The maximum price of `fee` at `rate`, rounded up so that it is never below the price. */
export const priceBound = (fee: Wei, rate: EthRate): UsdAttos =>
  usdAttos(divCeil(fee * rate, weiPerEth))

/** The ratio, scaled by 10^18, that sells at the network's price. */
export const networkRatio = 10n ** 18n
const ratioScale = weiPerEth * networkRatio

/**
 * The retail price of `fee`: `ratio` (scaled by 10^18) times its price at `rate`, rounded down once
 * from the exact product.
 */
export const computeRetail = (fee: Wei, rate: EthRate, ratio: bigint): UsdAttos =>
  ratio === networkRatio
    ? computePrice(fee, rate)
    : usdAttos(divFloor(fee * rate * ratio, ratioScale))

/** The maximum retail price of `fee`. */
export const retailBound = (fee: Wei, rate: EthRate, ratio: bigint): UsdAttos =>
  ratio === networkRatio ? priceBound(fee, rate) : usdAttos(divCeil(fee * rate * ratio, ratioScale))

/**
 * Parses a canonical non-negative decimal integer of at most 30 digits: no sign, leading zero or
 * blank.
 */
export function parseInteger(text: string): bigint | null {
  return /^(0|[1-9][0-9]{0,29})$/.test(text) ? BigInt(text) : null
}

/**
 * Parses a non-negative decimal with at most 18 places ("3012.5") to an integer scaled by 10^18.
 */
export function parseDecimal18(text: string): bigint | null {
  const match = /^(0|[1-9][0-9]{0,17})(?:\.([0-9]{1,18}))?$/.exec(text)
  if (!match) return null
  return BigInt(match[1] + (match[2] ?? '').padEnd(18, '0'))
}

/**
 * The exact decimal text of an integer scaled by 10^18: no exponent, no trailing zero, "0" for
 * zero.
 */
export function formatDecimal18(value: bigint): string {
  const digits = (value < 0n ? -value : value).toString().padStart(19, '0')
  const fraction = digits.slice(-18).replace(/0+$/, '')
  return `${value < 0n ? '-' : ''}${digits.slice(0, -18)}${fraction ? `.${fraction}` : ''}`
}

/** The exact text of atto-dollars in dollars, with two decimals or as many as they have: "-7.50". */
export function formatDollars(amount: bigint): string {
  const [whole = '0', fraction = ''] = formatDecimal18(amount).split('.')
  return `${whole}.${fraction.padEnd(2, '0')}`
}

/** An exact amount in wei as ETH. */
export const formatEth = (amount: Wei): string => formatDecimal18(amount)

/**
 * Rounds parts to micros that add up to the rounded-up total (largest remainder). Each part is
 * rounded down, then the parts with the largest remainders get the missing micros. Ties go to the
 * earlier part.
 */
export function microsThatAddUp(parts: readonly UsdAttos[]): UsdMicros[] {
  const total = parts.reduce((sum: bigint, part) => sum + part, 0n)
  const floors = parts.map((part) => divFloor(part, attosPerMicro))
  let missing = divCeil(total, attosPerMicro) - floors.reduce((sum, part) => sum + part, 0n)
  const order = parts
    .map((part, index) => ({ index, rest: part - (floors[index] ?? 0n) * attosPerMicro }))
    .sort((a, b) => (a.rest === b.rest ? a.index - b.index : a.rest > b.rest ? -1 : 1))
  for (const { index } of order) {
    if (missing <= 0n) break
    floors[index] = (floors[index] ?? 0n) + 1n
    missing -= 1n
  }
  return floors.map(usdMicros)
}

/** Formats a currency's smallest units as a decimal, such as `12.50` for 1,250 and two decimals. */
export function formatUnits(amount: bigint, decimals: number): string {
  const [sign, size] = amount < 0n ? ['-', -amount] : ['', amount]
  const digits = String(size).padStart(decimals + 1, '0')
  const whole = digits.slice(0, digits.length - decimals)
  return decimals === 0 ? `${sign}${whole}` : `${sign}${whole}.${digits.slice(-decimals)}`
}
