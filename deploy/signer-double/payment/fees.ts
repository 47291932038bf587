import type { Dialect } from '../dialect.ts'
import { add, ceil, compare, divide, multiply, rational, subtract } from '../wire/rational.ts'
import type { Rational } from '../wire/rational.ts'
import { refusal } from '../refusal.ts'
import { toSeconds } from '../wire/time.ts'

/** 1280 x 720 pixels at 30 frames per second. */
const PIXELS_PER_SECOND = 27_648_000
const MAX_TICKETS = 100n

/** The work that one call is charged for. */
export type Work = Readonly<{
  billableSeconds: number
  /** Seconds, pixels or calls, depending on the type: the factor of the fee. */
  units: bigint
  /** The event's `pixels`. */
  pixels: bigint
}>

export type WorkRequest = Readonly<{
  type: string
  /** Nanoseconds since the session's last update; undefined on its first call. */
  elapsed: bigint | undefined
  inPixels: bigint
}>

function liveWork(elapsed: bigint | undefined): Work {
  const billableSeconds = elapsed === undefined ? 10 : toSeconds(elapsed)
  return { billableSeconds, units: BigInt(Math.ceil(billableSeconds)), pixels: 0n }
}

function videoWork(elapsed: bigint | undefined): Work {
  const billableSeconds = elapsed === undefined ? 60 : toSeconds(elapsed)
  const pixels = BigInt(Math.trunc(PIXELS_PER_SECOND * billableSeconds))
  return { billableSeconds, units: pixels, pixels }
}

/**
 * Measures the work of one call (docs/signer-webhook.md, "Billed units"). Refuses unknown types,
 * and calls without units, with 400.
 */
export function measureWork({ type, elapsed, inPixels }: WorkRequest, dialect: Dialect): Work {
  if (!dialect.types.includes(type)) throw refusal(400, `unknown payment type: ${type}`)
  const billableSeconds = toSeconds(elapsed ?? 0n)
  const reported = dialect.knowsApp ? 0n : inPixels
  const byType: Readonly<Record<string, () => Work>> = {
    live: () => liveWork(elapsed),
    lv2v: () => videoWork(elapsed),
    fixed: () => ({ billableSeconds, units: 1n, pixels: 0n }),
  }
  const work = byType[type]?.() ?? { billableSeconds, units: inPixels, pixels: reported }
  if (work.units <= 0n) throw refusal(400, 'missing or invalid number of pixels')
  return work
}

export const computeFee = (units: bigint, price: Rational): Rational =>
  multiply(rational(units), price)

/** Number of tickets of one call, and the credit that is left after its fee. */
export type Tickets = Readonly<{ count: bigint; balance: Rational }>

/**
 * Returns as many tickets of value `ev` as raise the credit to the larger of fee and `ev`
 * (core/accounting.go of go-livepeer). Refuses with 482 when the credit is already sufficient, with
 * 400 when it takes more than 100.
 */
export function buyTickets(credit: Rational, fee: Rational, ev: Rational): Tickets {
  const needed = compare(fee, ev) > 0 ? fee : ev
  const count = ceil(divide(subtract(needed, credit), ev))
  if (count <= 0n) throw refusal(482, 'no tickets to send: the credit is sufficient')
  if (count > MAX_TICKETS) throw refusal(400, `${count} tickets exceed the limit of ${MAX_TICKETS}`)
  const bought = multiply(rational(count), ev)
  return { count, balance: subtract(add(credit, bought), fee) }
}
