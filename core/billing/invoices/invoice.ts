import { type UsdAttos, divFloor, usdAttos } from '../../lib/money.ts'
import type { AppId, UserKey } from '../../shared/ids.ts'
import { type Plane, type UsdCents, usdCents } from '../processor/port.ts'

/** Invoices, their lines, and how amounts become cents. Pure. */

/** Why an invoice is raised. `plan`: a move to a plan, paid before it was booked. */
export const invoiceReasons = [
  'threshold',
  'ceiling',
  'period',
  'final',
  'request',
  'plan',
] as const
export type InvoiceReason = (typeof invoiceReasons)[number]

export type LineKind = 'subscription' | 'usage' | 'overage' | 'proration' | 'other'

export interface InvoiceLine {
  readonly kind: LineKind
  readonly description: string
  readonly amount: UsdAttos
  readonly periodStart: Date
  readonly periodEnd: Date
  readonly planId?: string | null | undefined
  readonly pipeline?: string | null | undefined
  readonly modelId?: string | null | undefined
  /** On an owner's invoice: the app whose tickets were charged. */
  readonly chargedAppId?: AppId | null | undefined
  readonly tickets?: bigint | null | undefined
  /** Of an overage line. */
  readonly units?: bigint | null | undefined
  /** Whether its tickets are no longer in the database. */
  readonly isArchived?: boolean
}

/** A line whose amount is not in the ledger. */
export interface PriceLine extends InvoiceLine {
  readonly kind: 'subscription' | 'overage' | 'proration'
}

/** An issued invoice. It never changes. */
export interface Invoice extends UserKey {
  readonly id: string
  /** Numbers of an app have no gaps. */
  readonly number: bigint
  readonly reason: InvoiceReason
  readonly total: UsdCents
  /** The part of the total that a payment collects in the ledger. Negative if a part of the price is carried. */
  readonly debt: UsdAttos
  readonly plane: Plane
  readonly periodStart: Date
  readonly periodEnd: Date
  readonly issuedAt: Date
}

/** The processor takes no smaller charge: 0.50 USD. */
export const minimumCents = usdCents(50n)
const attosPerCent = 10n ** 16n

/** Whole cents to charge, and what is left of the amount. */
export interface Total {
  readonly cents: UsdCents
  readonly carried: UsdAttos
}

/** Rounds an amount down to cents. Amounts below the minimum charge are carried as a whole. */
export function toTotal(amount: UsdAttos): Total {
  const cents = usdCents(divFloor(amount, attosPerCent))
  if (cents < minimumCents) return { cents: usdCents(0n), carried: amount }
  return { cents, carried: usdAttos(amount - cents * attosPerCent) }
}

/** What the parts of an invoice add up to. */
export interface InvoiceSums {
  readonly price: UsdAttos
  readonly debt: UsdAttos
  readonly carriedIn: UsdAttos
  readonly total: Total
}

/** Adds up prices, debt, and what earlier invoices carried. */
export function addUp({
  prices,
  debt,
  carriedIn,
}: Pick<InvoiceSums, 'debt' | 'carriedIn'> & {
  readonly prices: readonly PriceLine[]
}): InvoiceSums {
  const price = sumLines(prices)
  return { price, debt, carriedIn, total: toTotal(usdAttos(price + debt + carriedIn)) }
}

export const sumLines = (lines: readonly Pick<InvoiceLine, 'amount'>[]): UsdAttos =>
  usdAttos(lines.reduce((sum, { amount }) => sum + amount, 0n))

const numberDigits = 6

/** The number of a document as printed, such as "INV-000012". */
export const formatNumber = (kind: 'invoice' | 'credit_note', number: bigint): string =>
  `${kind === 'invoice' ? 'INV' : 'CN'}-${String(number).padStart(numberDigits, '0')}`
