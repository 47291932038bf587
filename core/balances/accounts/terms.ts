import {
  type BillingCycle,
  type Period,
  anchorFrom,
  cyclesSince,
  newestAt,
  periodIn,
} from '../../lib/time.ts'
import type { PeriodTerms } from './account.ts'

/**
 * Computes a user's period and plan version. The result depends only on the subscription and the
 * versions of its plan, so that every core, and later `verify`, computes the same
 * (docs/subscriptions.md, "Periods").
 */

/** The part of a plan version that periods depend on. */
export interface PlanVersion {
  readonly planId: string
  readonly version: number
  readonly includedAttos: bigint
  readonly cycle: BillingCycle
  readonly createdAt: Date
  /** The price of a period as charged; 0 or absent for one that is not. */
  readonly priceAttos?: bigint
  /** True for Starter and for plans of type `free`. */
  readonly isFree?: boolean
}

export type IncludedUsage = Pick<PlanVersion, 'version' | 'includedAttos' | 'createdAt'>

/** Sorted by version. */
type Versions = readonly [PlanVersion, ...PlanVersion[]]
export type VersionsOf = (planId: string) => Versions

/** A subscription, valid from `createdAt`. */
export interface HeldPlan {
  readonly planId: string
  readonly anchorAt: Date
  readonly createdAt: Date
}

/** A user's slot: the current subscription and its successor. */
export interface Slot extends HeldPlan {
  readonly next: { readonly planId: string; readonly at: Date } | null
}

/** A period with its terms. */
export interface Terms extends PeriodTerms {
  readonly period: Period
  /**
   * The cycle, if a subscription of a free plan begins with the period; null or absent otherwise.
   */
  readonly freeCycle?: BillingCycle | null
  readonly isFree?: boolean
}

/** A period of a free plan. */
export interface FreePeriod {
  readonly planId: string
  readonly start: Date
  /** Included usage minus what was withheld. */
  readonly givenAttos: bigint
}

/**
 * Returns the part of a period's included usage that is withheld. Applies if a subscription of a
 * free plan begins with the period: withholds what free plans gave earlier in the same calendar
 * period (UTC day, week from Monday, or month), or everything if the user was on the same plan in
 * it.
 */
export function withheldFrom(
  { planId, includedAttos, period: { start }, freeCycle }: Terms,
  earlier: readonly FreePeriod[],
): bigint {
  if (!freeCycle) return 0n
  const from = calendarStart(freeCycle, start)
  const same = earlier.filter((one) => one.start >= from && one.start < start)
  if (same.some((one) => one.planId === planId)) return includedAttos
  const sum = same.reduce((total, { givenAttos }) => total + givenAttos, 0n)
  return sum < includedAttos ? sum : includedAttos
}

/** The longest calendar period. */
export const calendarDaysMax = 31

function calendarStart(cycle: BillingCycle, at: Date): Date {
  const [year, month, day] = [at.getUTCFullYear(), at.getUTCMonth(), at.getUTCDate()]
  if (cycle === 'monthly') return new Date(Date.UTC(year, month, 1))
  const daysBack = cycle === 'weekly' ? (at.getUTCDay() + 6) % 7 : 0
  return new Date(Date.UTC(year, month, day - daysBack))
}

/** Returns the slot's period at `at`, with the plan version that was newest when it began. */
export function termsAt(slot: Slot, versionsOf: VersionsOf, at: Date): Terms {
  const { planId, anchorAt, createdAt } = heldAt(slot, versionsOf, at)
  const versions = versionsOf(planId)
  const { start, end } = periodIn(anchorAt, cyclesSince(versions, createdAt), at)
  const { version, includedAttos, isFree, cycle, priceAttos = 0n } = newestAt(versions, start)
  const freeCycle = isFree && start.getTime() === createdAt.getTime() ? cycle : null
  const included = { includedAttos, withheldAttos: 0n }
  const terms = { planId, planVersion: version, ...included, priceAttos: isFree ? 0n : priceAttos }
  return { ...terms, period: { start, end }, freeCycle, isFree: isFree === true }
}

/**
 * The successor holds the slot from its instant on, even if the stored row does not show it yet.
 */
function heldAt(slot: Slot, versionsOf: VersionsOf, at: Date): HeldPlan {
  const { next } = slot
  if (next === null || next.at > at) return slot
  const changes = cyclesSince(versionsOf(slot.planId), slot.createdAt)
  const { cycle } = newestAt(versionsOf(next.planId), next.at)
  return {
    planId: next.planId,
    createdAt: next.at,
    anchorAt: anchorFrom(next.at, { anchor: slot.anchorAt, changes }, cycle),
  }
}

/**
 * Returns what version `to` includes beyond the most that a version since `from` included. The
 * period began with `from`. Raises in between were given; a reduction applies only from the next
 * period. Zero or less adds nothing.
 */
export function raiseBetween(
  versions: readonly IncludedUsage[],
  { from, to }: { readonly from: number; readonly to: IncludedUsage },
): bigint {
  const before = versions.filter(({ version }) => version >= from && version < to.version)
  const most = before.reduce(
    (max, { includedAttos }) => (includedAttos > max ? includedAttos : max),
    0n,
  )
  return to.includedAttos - most
}

/** Groups versions by plan. The returned function throws for a plan without versions. */
export function versionsByPlan(versions: readonly PlanVersion[]): VersionsOf {
  const byPlan = new Map<string, [PlanVersion, ...PlanVersion[]]>()
  for (const version of versions) {
    const others = byPlan.get(version.planId)
    if (others) others.push(version)
    else byPlan.set(version.planId, [version])
  }
  return (planId) => {
    const planVersions = byPlan.get(planId)
    if (!planVersions) throw new Error(`plan ${planId} has no version`)
    return planVersions
  }
}
