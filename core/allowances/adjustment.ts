import { type UsdAttos, usdAttos } from '../lib/money.ts'
import { activeAt, append, burnOrder, draw } from './account.ts'
import type { Account } from './types.ts'

/** A correction of an account: more than zero gives, less takes. */
export interface Adjustment {
  readonly id: string
  readonly amount: UsdAttos
  readonly at: Date
  /** What the ticket that it corrects was for; null when it corrects none. */
  readonly feature: { readonly pipeline: string; readonly modelId: string } | null
}

// Given money is spent like a grant's; it says of itself that somebody gave it by hand.
const source = 'manual'
const priority = 10

/**
 * Books a compensating entry. What is given may be spent on anything and never ends. What is taken comes from the grants
 * in effect, in burn order: those that pay for anything and, where a ticket is named, those of its feature. Returns
 * what no grant covered: it stands in the entry as overage, and the balance stays at zero.
 */
export function adjust(account: Account, adjustment: Adjustment): UsdAttos {
  const { id, amount, at } = adjustment
  if (amount > 0n) {
    account.grants.push({
      id,
      kind: 'adjustment',
      source,
      featureKey: null,
      amount,
      remaining: amount,
      priority,
      effectiveAt: at,
      expiresAt: null,
      expiredAt: null,
      createdAt: at,
      state: 'new',
    })
    account.grants.sort(burnOrder)
    append(account, {
      kind: 'adjustment',
      amount,
      overage: usdAttos(0n),
      causeId: id,
      createdAt: at,
    })
    return usdAttos(0n)
  }
  const drawn = takeFrom(account, adjustment)
  const overage = usdAttos(-amount - drawn)
  account.overage = usdAttos(account.overage + overage)
  append(account, {
    kind: 'adjustment',
    amount: usdAttos(-drawn),
    overage,
    causeId: id,
    createdAt: at,
  })
  return overage
}

function takeFrom({ grants }: Account, { amount, at, feature }: Adjustment): bigint {
  const { pipeline, modelId } = feature ?? { pipeline: '', modelId: '' }
  return draw(activeAt(grants, at), { signedAt: at, pipeline, modelId, cost: usdAttos(-amount) })
}
