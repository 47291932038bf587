import { DomainError } from '../../../proto/errors.ts'
import { microsThatAddUp, usdAttos, wei } from '../../lib/money.ts'
import type { AppId } from '../../shared/ids.ts'
import { createOwnerPlans } from './owner-plan.ts'
import * as store from './store.ts'
import type { BilledPlan, DaySums } from './store.ts'
import {
  type BilledUsage,
  type Summary,
  type SummaryDeps,
  computeOverage,
  buildTimeline,
  toUsage,
} from './summary.ts'

export interface Statement {
  /** The owner's plan at the end of the month. */
  readonly plan: BilledPlan | null
  /** `[start, end)`. */
  readonly period: { readonly start: Date; readonly end: Date }
  readonly usage: BilledUsage
  /** Every UTC day of the month, in order. */
  readonly days: readonly { readonly day: string; readonly usage: BilledUsage }[]
  readonly overage: Summary['overage']
  /** Hundredths of a percent; null without a cut. */
  readonly cut: bigint | null
}

type StatementDeps = Required<Omit<SummaryDeps, 'resubscribe'>>

/**
 * Statements of past UTC months. A month consists of whole hours, so they need only hourly sums,
 * which archived months keep. A statement has one row per day, regardless of the number of users
 * and tickets.
 */
export function createStatements(deps: StatementDeps) {
  const { pool, cuts, ledger, findOwner, clocks, now } = deps
  const ownerPlans = createOwnerPlans(deps)

  /**
   * Throws CONFLICT while the month continues by the app's clock, NOT_FOUND when it ended before
   * the app was created.
   */
  async function read(app: AppId, month: string): Promise<Statement> {
    const period = parseMonth(month)
    const at = now()
    const own = await clocks.timeOf(pool, app, at)
    if (period.end > own)
      throw new DomainError(
        'CONFLICT',
        `${month} has not ended; its statement is available from ${period.end.toISOString()} on, and GET …/billing returns the current period`,
      )
    const sums = await store.sumByDay(pool, app, period)
    if (sums.length === 0) await requireExisted(app, { month, period })
    const plan = await planAt(app, { at, end: period.end })
    const usage = toUsage(sums)
    return {
      plan,
      period,
      usage,
      days: daysOf(period, sums),
      overage: computeOverage(plan, usage.units),
      cut: await cuts.at(app, lastMoment(period.end)),
    }
  }

  async function requireExisted(
    app: AppId,
    { month, period }: { readonly month: string; readonly period: Statement['period'] },
  ): Promise<void> {
    const madeAt = await store.findCreation(pool, app)
    if (madeAt !== null && madeAt >= period.end)
      throw new DomainError(
        'NOT_FOUND',
        `there is no statement of ${month}: the app was created on ${madeAt.toISOString().slice(0, 10)}`,
      )
  }

  async function planAt(
    app: AppId,
    { at, end }: { readonly at: Date; readonly end: Date },
  ): Promise<BilledPlan | null> {
    const owned = await ownerPlans.find(app, { at, moment: lastMoment(end) })
    if (owned) return owned.period.plan
    const userId = await findOwner(pool, app)
    if (userId === null) return null
    const owner = { appId: app, userId }
    // Reading the account enters periods that have begun since.
    await ledger.read(pool, owner, at)
    return (await store.findPeriod(pool, owner, lastMoment(end)))?.plan ?? null
  }

  return { read }
}

export type Statements = ReturnType<typeof createStatements>

const lastMoment = (end: Date): Date => new Date(end.getTime() - 1)

function parseMonth(month: string): Statement['period'] {
  if (!/^2\d{3}-(0[1-9]|1[0-2])$/.test(month))
    throw new DomainError(
      'REQUEST_INVALID',
      'month must be a UTC month as YYYY-MM, such as 2026-03',
    )
  const start = new Date(`${month}-01T00:00:00Z`)
  return { start, end: new Date(Date.UTC(start.getUTCFullYear(), start.getUTCMonth() + 1, 1)) }
}

const noSums = {
  requests: 0n,
  unpriced: 0n,
  fee: wei(0n),
  cost: usdAttos(0n),
  platformFee: usdAttos(0n),
  platformWei: wei(0n),
  units: 0n,
}

/** Returns every day with its usage. Rounds USD amounts so that the days add up to the month. */
function daysOf(period: Statement['period'], sums: readonly DaySums[]): Statement['days'] {
  const known = new Map(sums.map((sum) => [sum.day, sum]))
  const days = buildTimeline(period, []).map(({ day }) => known.get(day) ?? { ...noSums, day })
  const network = microsThatAddUp(days.map(({ cost }) => cost))
  const owner = microsThatAddUp(days.map(({ cost, platformFee }) => usdAttos(cost + platformFee)))
  return days.map((sum, i) => {
    const usage = toUsage([sum])
    return {
      day: sum.day,
      usage: {
        ...usage,
        networkMicros: network[i] ?? usage.networkMicros,
        ownerMicros: owner[i] ?? usage.ownerMicros,
      },
    }
  })
}
