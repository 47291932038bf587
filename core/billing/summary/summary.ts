import { type UsdMicros, type Wei, microsUp, usdAttos, wei } from '../../lib/money.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { type Clocks, realTime } from '../../shared/clocks/clocks.ts'
import type { AppId, UserId } from '../../shared/ids.ts'
import type { Resubscribe } from '../../plans/subscriptions/ports.ts'
import type { Cuts } from '../cuts.ts'
import type { Shared } from '../../shared/shared.ts'
import { type OwnerPlanDeps, type OwnerPlanPeriod, createOwnerPlans } from './owner-plan.ts'
import * as store from './store.ts'
import type { BilledPlan, DaySums, OwnerPeriod } from './store.ts'

export interface SummaryDeps extends Pick<Shared, 'pool' | 'now'>, OwnerPlanDeps {
  readonly cuts: Cuts
  /** Returns the app's owner as an end user; null if the owner is not an end user yet. */
  readonly findOwner: (db: Db, app: AppId) => Promise<UserId | null>
  readonly resubscribe: Resubscribe
  readonly clocks?: Clocks
}

export interface Summary {
  readonly plan: BilledPlan | null
  readonly subscription: OwnerPeriod | null
  /** `[start, end)`. */
  readonly period: { readonly start: Date; readonly end: Date }
  readonly usage: BilledUsage
  /** Every UTC day of the period, in order. */
  readonly timeline: readonly Pick<DaySums, 'day' | 'requests' | 'fee'>[]
  readonly overage: { readonly units: bigint; readonly wei: Wei }
  /** Hundredths of a percent; null without a cut. */
  readonly cut: bigint | null
}

export interface BilledUsage {
  readonly requests: bigint
  readonly unpriced: bigint
  readonly fee: Wei
  readonly platformWei: Wei
  readonly ownerWei: Wei
  readonly networkMicros: UsdMicros
  /** Network fee plus cut, rounded once. */
  readonly ownerMicros: UsdMicros
  readonly units: bigint
}

const dayMs = 86_400_000
const daysMax = 366

/** Billing summary of an app for the current period (docs/billing.md). */
export function createSummary({
  pool,
  cuts,
  ledger,
  findOwner,
  findOwnerAccount,
  resubscribe,
  clocks = realTime,
  now,
}: SummaryDeps) {
  const ownerPlans = createOwnerPlans({ pool, ledger, findOwnerAccount })

  async function read(app: AppId): Promise<Summary> {
    const at = now()
    const own = await clocks.timeOf(pool, app, at)
    // Owner plans are by real time, and cannot be compared with usage by a clock that is ahead.
    const isAhead = own.getTime() !== at.getTime()
    const owned = isAhead ? null : await ownerPlans.find(app, { at, moment: at })
    const subscription = owned?.period ?? (await ownerPeriod(app, { at, own }))
    const plan = subscription?.plan ?? (await store.findNewestPlan(pool, app))
    const period = subscription ?? calendarMonth(own)
    const sums = await store.sumByDay(pool, app, period)
    const usage = toUsage(sums)
    return {
      plan,
      subscription,
      period,
      usage,
      timeline: buildTimeline(period, sums),
      overage: computeOverage(plan, owned ? await unitsOf(owned) : usage.units),
      cut: await cuts.at(app, at),
    }
  }

  // One owner plan covers all apps of the owner.
  async function unitsOf({ account, period }: OwnerPlanPeriod): Promise<bigint> {
    let units = 0n
    for (const app of await store.findOwnedApps(pool, account))
      units += toUsage(await store.sumByDay(pool, app, period)).units
    return units
  }

  // Reading the account enters a period that has begun since.
  async function ownerPeriod(
    app: AppId,
    { at, own }: { readonly at: Date; readonly own: Date },
  ): Promise<OwnerPeriod | null> {
    const userId = await findOwner(pool, app)
    if (userId === null) return null
    const owner = { appId: app, userId }
    await ledger.read(pool, owner, at)
    const period = await store.findPeriod(pool, owner, own)
    if (period) return period
    await tx(pool, (db) => resubscribe(db, [owner]))
    return store.findPeriod(pool, owner, own)
  }

  return { read }
}

export type BillingSummary = ReturnType<typeof createSummary>

/** Returns the UTC month of an instant. */
export const calendarMonth = (at: Date): { start: Date; end: Date } => ({
  start: new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth(), 1)),
  end: new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + 1, 1)),
})

/**
 * Returns every UTC day that `[start, end)` touches, at most 366. An end at midnight adds no day.
 */
export function buildTimeline(
  { start, end }: { readonly start: Date; readonly end: Date },
  sums: readonly Pick<DaySums, 'day' | 'requests' | 'fee'>[],
): Summary['timeline'] {
  const byDay = new Map(sums.map((sum) => [sum.day, sum]))
  const first = Math.floor(start.getTime() / dayMs)
  const last = Math.floor((end.getTime() - 1) / dayMs)
  return Array.from({ length: Math.min(last - first + 1, daysMax) }, (_, i) => {
    const day = new Date((first + i) * dayMs).toISOString().slice(0, 10)
    const sum = byDay.get(day)
    return { day, requests: sum?.requests ?? 0n, fee: sum?.fee ?? wei(0n) }
  })
}

export function toUsage(sums: readonly DaySums[]): BilledUsage {
  const total = (value: (sum: DaySums) => bigint): bigint =>
    sums.reduce((all, sum) => all + value(sum), 0n)
  const [fee, platformWei] = [total((sum) => sum.fee), total((sum) => sum.platformWei)]
  const [cost, platformFee] = [total((sum) => sum.cost), total((sum) => sum.platformFee)]
  return {
    requests: total((sum) => sum.requests),
    unpriced: total((sum) => sum.unpriced),
    fee: wei(fee),
    platformWei: wei(platformWei),
    ownerWei: wei(fee + platformWei),
    networkMicros: microsUp(usdAttos(cost)),
    ownerMicros: microsUp(usdAttos(cost + platformFee)),
    units: total((sum) => sum.units),
  }
}

/**
 * Returns the usage beyond the included units: zero for a free plan, and for a plan without
 * included units or overage rate.
 */
export function computeOverage(
  plan: Pick<BilledPlan, 'type' | 'includedUnits' | 'overageRateWei'> | null,
  units: bigint,
): Summary['overage'] {
  const none = { units: 0n, wei: wei(0n) }
  if (plan === null || plan.type === 'free') return none
  const { includedUnits, overageRateWei } = plan
  if (includedUnits === null || overageRateWei === null || units <= includedUnits) return none
  const over = units - includedUnits
  return { units: over, wei: wei(over * overageRateWei) }
}
