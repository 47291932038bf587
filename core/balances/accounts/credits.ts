import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import type { TicketCharge } from '../../metering/ingest/charges.ts'
import type { UserKey } from '../../shared/ids.ts'
import type { CreditDebit } from './chain.ts'
import { type Debtor, creditLine } from './credit-line.ts'

/** Credits: the order in which they burn, what they pay for, and what is left of them. */

export const creditSources = ['trial', 'manual', 'promo', 'plan_adjustment'] as const
export type CreditSource = (typeof creditSources)[number]

/** A credit of a user. */
export interface CreditKey extends UserKey {
  readonly creditId: string
}

/** Money given to a user; a row of the table `grants`. */
export interface Credit {
  readonly id: string
  /**
   * `included`: usage that the plan includes, for one period. `grant`: given through the API.
   * `adjustment`: given by an operator's correction and not counted as granted.
   */
  readonly kind: 'included' | 'grant' | 'adjustment'
  readonly source: CreditSource
  readonly featureKey: string | null
  readonly amount: UsdAttos
  remaining: UsdAttos
  /** Lower burns first. */
  readonly priority: number
  readonly effectiveAt: Date
  /** For included usage, the end of its period; a plan change may move it to an earlier time. */
  expiresAt: Date | null
  expiredAt: Date | null
  readonly createdAt: Date
  /** Difference from the stored row, which the next save writes. */
  state: 'stored' | 'changed' | 'new'
}

/** An account as far as its credits may pay for a new call. */
export interface Holder extends Debtor {
  readonly credits: readonly Credit[]
  readonly lent: UsdAttos
  readonly pending: UsdAttos
}

/**
 * Sorts included usage first, then by priority, expiry (credits without expiry last), creation and
 * id (decision 33).
 */
export function burnOrder(a: Credit, b: Credit): number {
  const isIncluded = a.kind === 'included'
  if (isIncluded !== (b.kind === 'included')) return isIncluded ? -1 : 1
  return (
    a.priority - b.priority ||
    (a.expiresAt?.getTime() ?? Infinity) - (b.expiresAt?.getTime() ?? Infinity) ||
    0 ||
    a.createdAt.getTime() - b.createdAt.getTime() ||
    (a.id < b.id ? -1 : 1)
  )
}

export type Spend = Pick<TicketCharge, 'signedAt' | 'pipeline' | 'modelId' | 'cost'>

/**
 * Whether the credit may pay for the ticket. Expiry and period depend on when the ticket was
 * signed.
 */
export function covers(credit: Credit, ticket: Spend): boolean {
  if (credit.remaining === 0n) return false
  const signedAt = ticket.signedAt.getTime()
  if (credit.expiresAt !== null && signedAt >= credit.expiresAt.getTime()) return false
  if (credit.kind === 'included') return signedAt >= credit.effectiveAt.getTime()
  return coversFeature(credit.featureKey, ticket)
}

/** The feature key for all spend on the network (docs/money.md). */
export const everything = 'network_spend'

export const paysForAnything = (featureKey: string | null): boolean =>
  featureKey === null || featureKey === everything

function coversFeature(featureKey: string | null, { pipeline, modelId }: Spend): boolean {
  return (
    paysForAnything(featureKey) ||
    featureKey === pipeline ||
    featureKey === `${pipeline}:${modelId}`
  )
}

/**
 * Takes a ticket's cost from the credits that may pay for it, in burn order. Returns the amount
 * paid.
 */
export function draw(credits: readonly Credit[], ticket: Spend): bigint {
  let open: bigint = ticket.cost
  for (const credit of credits) {
    if (open === 0n) break
    if (covers(credit, ticket)) open -= take(credit, open)
  }
  return ticket.cost - open
}

/** Takes up to `amount` from a credit. Returns the amount taken. */
export function take(credit: Credit, amount: bigint): bigint {
  const part = credit.remaining < amount ? credit.remaining : amount
  credit.remaining = usdAttos(credit.remaining - part)
  if (credit.state === 'stored') credit.state = 'changed'
  return part
}

/** Remaining amount of each credit, to compute later what was drawn. */
export const snapshot = (credits: readonly Credit[]): readonly UsdAttos[] =>
  credits.map(({ remaining }) => remaining)

export const drawsSince = (
  credits: readonly Credit[],
  before: readonly UsdAttos[],
): CreditDebit[] =>
  credits.flatMap(({ id, remaining }, i) => {
    const amount = usdAttos(remaining - (before[i] ?? 0n))
    return amount === 0n ? [] : [{ creditId: id, amount }]
  })

/** Returns the credits in effect at `at`. */
export const activeAt = (credits: readonly Credit[], at: Date): Credit[] =>
  credits.filter(
    (credit) =>
      credit.expiredAt === null &&
      credit.effectiveAt <= at &&
      (credit.expiresAt === null || credit.expiresAt > at),
  )

/** Returns the sum of all credits in effect at `at`. */
export function remainingAt(credits: readonly Credit[], at: Date): UsdAttos {
  return usdAttos(activeAt(credits, at).reduce((sum: bigint, { remaining }) => sum + remaining, 0n))
}

/**
 * Returns what may back a payment at `at`: the credits in effect that pay for any feature. A
 * payment's feature is known only when its ticket arrives, so a credit bound to one feature backs
 * no payment.
 */
export function spendableAt(credits: readonly Credit[], at: Date): UsdAttos {
  return remainingAt(
    credits.filter(({ featureKey }) => paysForAnything(featureKey)),
    at,
  )
}

/**
 * Returns the remaining money that is bound to each feature at `at`, in atto-dollars, sorted by
 * feature key.
 */
export function boundAt(
  credits: readonly Credit[],
  at: Date,
): readonly { readonly featureKey: string; readonly remaining: UsdAttos }[] {
  const bound = activeAt(credits, at).filter(({ featureKey }) => !paysForAnything(featureKey))
  const byKey = Map.groupBy(bound, ({ featureKey }) => featureKey ?? '')
  return [...byKey]
    .map(([featureKey, same]) => ({ featureKey, remaining: remainingAt(same, at) }))
    .toSorted((a, b) => (a.featureKey < b.featureKey ? -1 : 1))
}

// How far a signer's clock, which dates the tickets, may be ahead of core's.
const clockMarginMs = 5_000

/** When a call is decided and signed. */
export interface CallTimes {
  readonly at: Date
  /** The latest time at which the call is signed. */
  readonly until: Date
  /**
   * What the next period includes, if it begins by `until` (`nextIncluded`); default 0. A call may
   * be signed on either side of the end, so the smaller of both included usages counts.
   */
  readonly nextIncluded?: bigint
}

/** Returns the last instant at which a call may be signed, with the clock margin. */
export const lastSigning = (until: Date): Date => new Date(until.getTime() + clockMarginMs)

/**
 * Returns the unheld money at `at`, in atto-dollars: the credit line, and credits that pay for
 * anything and outlast `until` by the clock margin. Negative if holds rely on credits that end
 * earlier.
 */
export function uncommittedAt(
  account: Holder,
  { at, until, nextIncluded = 0n }: CallTimes,
): UsdAttos {
  const last = lastSigning(until)
  const isLasting = ({ expiresAt }: Credit): boolean => expiresAt === null || expiresAt > last
  const ending = account.credits.filter((one) => one.kind === 'included' && !isLasting(one))
  const renewed = least(spendableAt(ending, at), nextIncluded)
  const lasting = spendableAt(account.credits.filter(isLasting), at)
  return usdAttos(lasting + renewed + creditLine(account) - account.lent - account.pending)
}

const least = (a: bigint, b: bigint): bigint => (a < b ? a : b)

/**
 * What is free at `at` for a call signed by `until` (docs/escrow.md): `uncommittedAt`, never
 * negative.
 */
export const freeAt = (account: Holder, times: CallTimes): UsdAttos =>
  neverNegative(uncommittedAt(account, times))

/**
 * Returns what a user may still spend at `at`: credits that pay for anything, minus holds. Never
 * negative.
 */
export const unheldAt = (account: Omit<Holder, keyof Debtor>, at: Date): UsdAttos =>
  neverNegative(spendableAt(account.credits, at) - account.lent - account.pending)

const neverNegative = (amount: bigint): UsdAttos => usdAttos(amount > 0n ? amount : 0n)
