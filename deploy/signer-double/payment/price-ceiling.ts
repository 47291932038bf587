import { numberLiteral, text } from '../wire/go-json.ts'
import type { Members } from '../wire/go-json.ts'
import { compare, parseDecimal } from '../wire/rational.ts'
import type { Rational } from '../wire/rational.ts'
import type { JsonOut } from '../wire/go-json.ts'

/** `maxPrice` as received, decoded but not validated. */
export type MaxPrice = Readonly<{ price: string; currency: string; unit: string }>

const UNIT_OF_TYPE: Readonly<Record<string, string>> = {
  live: 'seconds',
  lv2v: '720p-pixel-seconds',
  fixed: 'fixed',
}

/** Throws a TypeError when a member has the wrong JSON type. */
export function readMaxPrice(members: Members): MaxPrice {
  return {
    price: numberLiteral(members, 'price') ?? '',
    currency: text(members, 'currency') ?? '',
    unit: text(members, 'unit') ?? '',
  }
}

export const writeMaxPrice = (ceiling: MaxPrice | undefined): JsonOut =>
  ceiling === undefined ? null : { ...ceiling }

/**
 * Returns `malformed` when the ceiling cannot apply to this payment type, `exceeded` when the price
 * is above it.
 */
export function judgePrice(
  price: Rational,
  type: string,
  ceiling: MaxPrice | undefined,
): 'ok' | 'malformed' | 'exceeded' {
  if (ceiling === undefined) return 'ok'
  const limit = parseDecimal(ceiling.price)
  const positive = limit !== undefined && limit.n > 0n
  const currencyFits = ceiling.currency.trim().toLowerCase() === 'wei'
  if (!positive || !currencyFits || ceiling.unit !== UNIT_OF_TYPE[type]) return 'malformed'
  return compare(price, limit) > 0 ? 'exceeded' : 'ok'
}
