import type { UsdAttos } from '../../lib/money.ts'
import type { BillingCycle } from '../../lib/time.ts'
import type { AppId } from '../../shared/ids.ts'
import type { PricedBundle } from '../terms.ts'

/** Plans, their versions and their bundles, as passed between the files of this domain. */

export const planTypes = ['free', 'subscription', 'usage'] as const
export type PlanType = (typeof planTypes)[number]

export const planStatuses = ['active', 'inactive'] as const
export type PlanStatus = (typeof planStatuses)[number]

export const billingCycles: readonly BillingCycle[] = ['daily', 'weekly', 'monthly']

/** Terms of a version for a pipeline or one of its models. */
export interface Bundle extends PricedBundle {
  readonly slaTargetScore: number | null
  readonly slaTargetP95Ms: number | null
  /** Wei per unit. */
  readonly maxPricePerUnit: bigint | null
}

/** Terms of a plan. A change creates a new version. */
export interface PlanTerms {
  readonly type: PlanType
  /** Text as given, such as "49.00". */
  readonly priceAmount: string
  readonly priceCurrency: string
  /** Null when the owner has not set it: nothing is included. */
  readonly included: UsdAttos | null
  readonly includedUnits: bigint | null
  readonly overageRateWei: bigint | null
  /** USD per USD-micro of network cost, scaled by 10^18; null sells at network price. */
  readonly retailRate: bigint | null
  readonly billingCycle: BillingCycle
  readonly chargeThreshold: UsdAttos | null
  readonly bundles: readonly Bundle[]
}

export interface PlanVersion extends PlanTerms {
  readonly termsId: bigint
  readonly planId: string
  readonly version: number
  readonly createdAt: Date
}

/** A plan with its newest version. */
export interface Plan {
  readonly appId: AppId
  readonly id: string
  readonly name: string
  readonly status: PlanStatus
  readonly isStarterDefault: boolean
  readonly isNetworkDefault: boolean
  readonly createdAt: Date
  readonly updatedAt: Date
  readonly newest: PlanVersion
}

/** The only currency for new plans (docs/decisions/65.md). */
export const soldCurrency = 'USD'

/** True for a price in whole cents of `soldCurrency`. Older plans may have other prices. */
export const isChargeable = ({
  priceAmount,
  priceCurrency,
}: Pick<PlanTerms, 'priceAmount' | 'priceCurrency'>): boolean =>
  priceCurrency === soldCurrency && /^[0-9]+(?:\.[0-9]{1,2})?$/.test(priceAmount)

export const freeTerms: PlanTerms = {
  type: 'free',
  priceAmount: '0',
  priceCurrency: soldCurrency,
  included: null,
  includedUnits: null,
  overageRateWei: null,
  retailRate: null,
  billingCycle: 'monthly',
  chargeThreshold: null,
  bundles: [],
}

/**
 * Key under which names are compared. Ignores case, compatibility variants of characters (NFKC) and
 * repeated blanks.
 */
export function nameKey(name: string): string {
  let key = foldName(name)
  // Folding can produce characters that compose and fold again: at most once, by the property test.
  for (let folds = 0; folds < foldsMax && key !== foldName(key); folds++) key = foldName(key)
  return key
}

const foldsMax = 8

/**
 * Lower case via upper case, so that ẞ, ß and SS are equal. Works by code point, so that no letter
 * depends on its neighbours.
 */
const foldName = (name: string): string =>
  [...name.normalize('NFKC').toLowerCase().toUpperCase()]
    .map((letter) => letter.toLowerCase())
    .join('')
    .normalize('NFKC')
    .trim()
    .replaceAll(/\s+/gu, ' ')
