/**
 * Sums of decimals in plain notation, exact to 30 places.
 *
 * Gains: nearly all decimals are small and have at most nine places. Those are added as whole
 * billionths in a double, far below 2^53, without a bigint each (`ingest by COPY` in `npm run
 * bench`). Plain version: a bigint of 30 places; test/core/metering/ingest/sums.unit.test.ts
 * compares the two.
 */
export interface DecimalSum {
  billionths: number
  rest: bigint
}

export const newDecimalSum = (): DecimalSum => ({ billionths: 0, rest: 0n })

const places = 30
const quickPlaces = 9
const quickWhole = 6
const spill = 2 ** 52
const unit = 10n ** BigInt(places - quickPlaces)

export function addDecimal(sum: DecimalSum, text: string): void {
  const billionths = billionthsAsNumber(text)
  if (Number.isNaN(billionths)) sum.rest += scaled(text)
  else addBillionths(sum, billionths)
}

/** A decimal as whole billionths; NaN if it is too large or has too many places. */
export function billionthsAsNumber(text: string): number {
  const point = text.indexOf('.')
  const whole = point < 0 ? text.length : point
  const fraction = point < 0 ? 0 : text.length - point - 1
  return whole > quickWhole || fraction > quickPlaces ? NaN : Math.round(Number(text) * 1e9)
}

/** Number of digits that a double always holds exactly. */
const quickDigits = 15

/** An integer as a number; NaN if a double may not hold it exactly. */
export const quickInteger = (text: string): number =>
  text.length <= quickDigits ? Number(text) : NaN

/** Adds another sum. */
export function addDecimals(sum: DecimalSum, { billionths, rest }: DecimalSum): void {
  addBillionths(sum, billionths)
  sum.rest += rest
}

/** Both the sum and the added amount stay below 2^52, so that the addition is exact. */
export function addBillionths(sum: DecimalSum, billionths: number): void {
  sum.billionths += billionths
  if (Math.abs(sum.billionths) < spill) return
  sum.rest += BigInt(sum.billionths) * unit
  sum.billionths = 0
}

function scaled(text: string): bigint {
  const [whole = '', fraction = ''] = text.split('.')
  return BigInt(whole + fraction.padEnd(places, '0'))
}

/** The sum in plain notation, without trailing zeros. */
export function decimalText({ billionths, rest }: DecimalSum): string {
  const total = rest + BigInt(billionths) * unit
  const digits = (total < 0n ? -total : total).toString().padStart(places + 1, '0')
  const fraction = digits.slice(-places).replace(/0+$/, '')
  return `${total < 0n ? '-' : ''}${digits.slice(0, -places)}${fraction && `.${fraction}`}`
}
