import { uuidV7 } from '../../lib/crypto.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Account, append, bookingTime } from './account.ts'
import type { CreditDebit } from './chain.ts'
import {
  type Credit,
  activeAt,
  burnOrder,
  covers,
  drawsSince,
  paysForAnything,
  snapshot,
  take,
  unheldAt,
} from './credits.ts'

/** Adjustments: compensating entries that give or take money. */

/** A correction of an account: a positive amount gives, a negative one takes. */
export interface Adjustment {
  readonly id: string
  readonly amount: UsdAttos
  readonly at: Date
  /** Feature of the corrected ticket; null if no ticket is named. */
  readonly feature: { readonly pipeline: string; readonly modelId: string } | null
  /** The only credit that a debit draws from. Default is all. */
  readonly creditId?: string | undefined
}

const adjustmentPriority = 10

/**
 * Appends a compensating entry. A positive amount becomes a credit that pays for anything and never
 * expires. A negative one is drawn, in burn order, from credits in effect that pay for anything or
 * for the feature of the named ticket, or only from the named credit. Held money is not drawn.
 * Returns the uncovered part, which the entry records as overage.
 */
export function adjust(account: Account, adjustment: Adjustment): UsdAttos {
  const { id, amount, at } = adjustment
  if (amount > 0n) {
    giveBack(account, { id, at, parts: [{ creditId: '', featureKey: null, amount }] })
    return usdAttos(0n)
  }
  const before = snapshot(account.credits)
  const drawn = takeFrom(account, adjustment)
  const overage = usdAttos(-amount - drawn)
  account.overage = usdAttos(account.overage + overage)
  append(account, {
    kind: 'adjustment',
    amount: usdAttos(-drawn),
    overage,
    causeId: id,
    createdAt: at,
    draws: drawsSince(account.credits, before),
  })
  return overage
}

/**
 * Returns whether the holds of an account need a part of `amount` of one of its credits, so that
 * the amount cannot be drawn from it yet.
 */
export function isNeededByHolds(
  account: Account,
  {
    creditId,
    amount,
    at,
  }: { readonly creditId: string; readonly amount: UsdAttos; readonly at: Date },
): boolean {
  const credit = account.credits.find(({ id }) => id === creditId)
  const part =
    credit === undefined || credit.remaining < amount ? (credit?.remaining ?? 0n) : amount
  return part > unheldAt(account, at)
}

/**
 * A part of a refund. Returned to the credit that paid it, or as a new credit if that one has
 * ended.
 */
export interface Return extends CreditDebit {
  readonly featureKey: string | null
}

export interface GiveBack {
  readonly id: string
  readonly at: Date
  readonly parts: readonly Return[]
  /** Overage of an earlier debit to cancel, which was never paid. Default is 0. */
  readonly overage?: UsdAttos
}

/**
 * Gives money back in one entry. For a credit that has ended, adds a new one for the same feature
 * that never expires, so that the money can be spent.
 */
export function giveBack(
  account: Account,
  { id, at, parts, overage = usdAttos(0n) }: GiveBack,
): void {
  const open = new Map(
    account.credits
      .filter(({ expiresAt, expiredAt }) => expiredAt === null && !(expiresAt && expiresAt <= at))
      .map((credit) => [credit.id, credit]),
  )
  const draws: CreditDebit[] = []
  const ofFeature = new Map<string | null, bigint>()
  for (const { creditId, featureKey, amount } of parts) {
    const credit = open.get(creditId)
    if (credit) {
      credit.remaining = usdAttos(credit.remaining + amount)
      if (credit.state === 'stored') credit.state = 'changed'
      draws.push({ creditId, amount })
    } else ofFeature.set(featureKey, (ofFeature.get(featureKey) ?? 0n) + amount)
  }
  for (const [featureKey, amount] of ofFeature) {
    const creditId = draws.some((draw) => draw.creditId === id) ? uuidV7(at.getTime()) : id
    account.credits.push(
      returnedCredit(account, { id: creditId, featureKey, at, amount: usdAttos(amount) }),
    )
    draws.push({ creditId, amount: usdAttos(amount) })
  }
  account.credits.sort(burnOrder)
  account.overage = usdAttos(account.overage - overage)
  append(account, {
    kind: 'adjustment',
    amount: usdAttos(draws.reduce((sum, { amount }) => sum + amount, 0n)),
    overage: usdAttos(-overage),
    causeId: id,
    createdAt: at,
    draws,
  })
}

const returnedCredit = (
  account: Account,
  { at, ...credit }: Pick<Credit, 'id' | 'featureKey' | 'amount'> & { readonly at: Date },
): Credit => ({
  ...credit,
  kind: 'adjustment',
  source: 'manual',
  remaining: credit.amount,
  priority: adjustmentPriority,
  effectiveAt: at,
  expiresAt: null,
  expiredAt: null,
  createdAt: bookingTime(account, at),
  state: 'new',
})

function takeFrom(account: Account, { amount, at, feature, creditId }: Adjustment): bigint {
  const { pipeline, modelId } = feature ?? { pipeline: '', modelId: '' }
  const spend = { signedAt: at, pipeline, modelId, cost: usdAttos(-amount) }
  let open: bigint = -amount
  let unheld: bigint = unheldAt(account, at)
  for (const credit of activeAt(account.credits, at)) {
    if (!covers(credit, spend) || (creditId !== undefined && credit.id !== creditId)) continue
    const isGeneral = paysForAnything(credit.featureKey)
    const part = take(credit, isGeneral && unheld < open ? unheld : open)
    if (isGeneral) unheld -= part
    open -= part
  }
  return -amount - open
}
