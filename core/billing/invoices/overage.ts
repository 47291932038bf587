import { divFloor, usdAttos } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import type { UserKey } from '../../shared/ids.ts'
import type { PriceLine } from './invoice.ts'
import {
  type EndedPeriod,
  type EndedQuery,
  type RatedUnits,
  findEndedPeriods,
  readUnitsBeyond,
} from './overage-store.ts'

const weiPerEth = 10n ** 18n

/** The price of units in atto-dollars, rounded down once for the period. */
export const priceUnits = (beyond: readonly RatedUnits[], overageRateWei: bigint): bigint =>
  divFloor(
    beyond.reduce((sum, { units, rate }) => sum + units * overageRateWei * rate, 0n),
    weiPerEth,
  )

/**
 * Returns lines for units beyond the included ones, in periods that ended since usage was last
 * invoiced. For the period before them, only the difference that late tickets make.
 */
export async function readOverage(
  db: Db,
  users: readonly EndedQuery[],
): Promise<(UserKey & PriceLine)[]> {
  const periods = await findEndedPeriods(db, users)
  const lines: (UserKey & PriceLine)[] = []
  for (const group of groupPeriods(periods)) {
    const beyond = await readUnitsBeyond(db, group)
    for (const [i, period] of group.entries()) {
      const line = toLine(period, beyond[i] ?? [])
      if (line) lines.push(line)
    }
  }
  return lines
}

/**
 * Groups periods whose units one statement reads: it reads the same apps for all of its periods,
 * where their tickets are. An owner's apps may differ from period to period.
 */
export const groupPeriods = <Period extends Pick<EndedPeriod, 'userId' | 'isOwner' | 'apps'>>(
  periods: readonly Period[],
): Period[][] => [
  ...Map.groupBy(periods, ({ userId, isOwner, apps }) =>
    [isOwner ? userId : '', ...apps].join(),
  ).values(),
]

function toLine(
  period: EndedPeriod,
  beyond: readonly RatedUnits[],
): (UserKey & PriceLine) | undefined {
  const { appId, userId, planId, planName, invoiced, includedUnits, overageRateWei } = period
  const units = beyond.reduce((sum, one) => sum + one.units, 0n) - invoiced.units
  const amount = priceUnits(beyond, overageRateWei) - invoiced.amount
  if (amount === 0n) return undefined
  const isLate = invoiced.amount !== 0n
  return {
    appId,
    userId,
    kind: 'overage',
    description: `${planName}: units beyond the included ${includedUnits}${isLate ? ', late' : ''}`,
    planId,
    units,
    amount: usdAttos(amount),
    periodStart: period.start,
    periodEnd: period.end,
  }
}
