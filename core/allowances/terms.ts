import {
  type BillingCycle,
  type Period,
  anchorFrom,
  cyclesSince,
  newestAt,
  periodIn,
} from '../lib/time.ts'
import type { PeriodTerms } from './account.ts'

/**
 * Which period of which version a user is in. It follows from the subscription and the versions of its plan alone, so
 * that every core says the same at any time, and `verify` afterwards (docs/money.md, "Periods").
 */

/** A version of a plan, as far as periods depend on it. */
export interface PlanVersion {
  readonly planId: string
  readonly version: number
  readonly includedAttos: bigint
  readonly cycle: BillingCycle
  readonly createdAt: Date
  /** Of Starter, or of a plan of type `free`. */
  readonly isFree?: boolean
}

export type IncludedUsage = Pick<PlanVersion, 'version' | 'includedAttos' | 'createdAt'>

/** In the order of their versions. */
type Versions = readonly [PlanVersion, ...PlanVersion[]]
export type VersionsOf = (planId: string) => Versions

/** A subscription from `createdAt` on. */
export interface HeldPlan {
  readonly planId: string
  readonly anchorAt: Date
  readonly createdAt: Date
}

/** A user's slot: the subscription that holds it, and the one that takes it over. */
export interface Slot extends HeldPlan {
  readonly next: { readonly planId: string; readonly at: Date } | null
}

/** A period with the terms that hold in it. */
export interface Terms extends PeriodTerms {
  readonly period: Period
  /** The cycle of a free plan whose subscription begins with the period; null or absent otherwise. */
  readonly freeCycle?: BillingCycle | null
  readonly isFree?: boolean
}

/** A period of a free plan. */
export interface FreePeriod {
  readonly planId: string
  readonly start: Date
  /** Its included usage without what was withheld. */
  readonly givenAttos: bigint
}

/**
 * Returns what a period does not give of its included usage: what free plans have given in the calendar period (UTC day, week
 * from Monday, or month) in which a subscription of a free plan begins. A plan that the user was on in it gives nothing again.
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

/** The period that a slot is in at `at`, with the version that was the newest when it began. */
export function termsAt(slot: Slot, versionsOf: VersionsOf, at: Date): Terms {
  const { planId, anchorAt, createdAt } = heldAt(slot, versionsOf, at)
  const versions = versionsOf(planId)
  const { start, end } = periodIn(anchorAt, cyclesSince(versions, createdAt), at)
  const { version, includedAttos, isFree, cycle } = newestAt(versions, start)
  const freeCycle = isFree && start.getTime() === createdAt.getTime() ? cycle : null
  const terms = { planId, planVersion: version, includedAttos, period: { start, end } }
  return { ...terms, freeCycle, isFree: isFree === true }
}

/** The successor holds the slot from its instant on, whether or not the row says so yet. */
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
 * What version `to` includes beyond what somebody has whose period began with version `from`: what was raised in between
 * they were given, and what was lowered stays theirs until the next period. Zero or less adds nothing.
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

/** Versions by their plan. Throws for a plan without any. */
export function versionsByPlan(versions: readonly PlanVersion[]): VersionsOf {
  const byPlan = new Map<string, [PlanVersion, ...PlanVersion[]]>()
  for (const version of versions) {
    const others = byPlan.get(version.planId)
    if (others) others.push(version)
    else byPlan.set(version.planId, [version])
  }
  return (planId) => {
    const of = byPlan.get(planId)
    if (!of) throw new Error(`plan ${planId} has no version`)
    return of
  }
}
