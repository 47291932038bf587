import { DomainError } from '../../../proto/errors.ts'
import { type UsdAttos, formatUnits, usdAttos } from '../../lib/money.ts'
import { type UsdCents, usdCents } from '../processor/port.ts'

const attosPerCent = 10n ** 16n

export const centsToAttos = (cents: UsdCents): UsdAttos => usdAttos(cents * attosPerCent)

/** Whole cents in an amount that is not negative; the rest is less than a cent. */
export const centsDown = (attos: UsdAttos): UsdCents => usdCents(attos / attosPerCent)

const topUpMin = 1_00n
const topUpMax = 10_000_00n
const amountSyntax = /^(0|[1-9][0-9]{0,8})(?:\.([0-9]{1,2}))?$/

/**
 * Parses the amount of a top-up: dollars with at most two decimals, from 1 to 10,000. Throws
 * AMOUNT_INVALID for anything else.
 */
export function parseTopUp(text: string): UsdCents {
  const [, dollars, decimals = ''] = amountSyntax.exec(text.trim()) ?? []
  const cents = dollars === undefined ? null : BigInt(dollars + decimals.padEnd(2, '0'))
  if (cents === null || cents < topUpMin || cents > topUpMax)
    throw new DomainError(
      'AMOUNT_INVALID',
      'amountUsd must be an amount from 1 to 10000 with at most two decimals, such as "25.00"',
    )
  return usdCents(cents)
}

/** Parses the amount of a refund: dollars with at most two decimals. Throws AMOUNT_INVALID. */
export function parseRefund(text: string): UsdCents {
  const [, dollars, decimals = ''] = amountSyntax.exec(text.trim()) ?? []
  const cents = dollars === undefined ? 0n : BigInt(dollars + decimals.padEnd(2, '0'))
  if (cents <= 0n)
    throw new DomainError(
      'AMOUNT_INVALID',
      'amountUsd must be more than 0, with at most two decimals, such as "12.50"',
    )
  return usdCents(cents)
}

/** Formats cents as dollars with two decimals. */
export const formatCents = (cents: bigint): string => formatUnits(cents, 2)
