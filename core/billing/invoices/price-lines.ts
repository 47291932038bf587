import type { Account } from '../../balances/accounts/account.ts'
import { usdAttos } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import type { UserId, UserKey } from '../../shared/ids.ts'
import { centsDown, centsToAttos } from '../payments/amounts.ts'
import type { PriceLine } from './invoice.ts'
import * as store from './invoice-store.ts'
import type { UnbilledProration, UnpaidPrice } from './invoice-store.ts'
import { readOverage } from './overage.ts'

/** An account whose prices are due. */
export interface PricedAccount {
  readonly account: Account
  /** By the clock of the app. */
  readonly at: Date
  /** When usage was last invoiced; null before. */
  readonly since: Date | null
}

/**
 * Returns the lines that are not in the ledger, by user: prices of entered periods that are on no
 * invoice, in advance, and units beyond the included ones.
 */
export async function readPrices(
  db: Db,
  accounts: readonly PricedAccount[],
): Promise<ReadonlyMap<UserId, PriceLine[]>> {
  if (accounts.length === 0) return new Map()
  const stored = await store.findUnpaidPrices(
    db,
    accounts.map(({ account }) => account),
  )
  const entered = await readEntered(db, accounts)
  // An account that was saved still lists the periods that it entered.
  const due = new Map(
    [...stored, ...entered].map((one) => [`${one.userId} ${one.start.getTime()}`, one]),
  )
  const overage = await readOverage(
    db,
    accounts.map(({ account: { appId, userId }, at, since }) => ({ appId, userId, at, since })),
  )
  const prorations = await store.findUnbilledProrations(
    db,
    accounts.map(({ account }) => account),
  )
  const lines = [...[...due.values()].map(toLine), ...prorations.map(toProrationLine), ...overage]
  return Map.groupBy(lines, ({ userId }) => userId)
}

/**
 * Returns the prorations that a user has left after all stored prices, as lines in whole cents, the
 * newest period first. Leaves out the period that starts at `except`.
 */
export async function readPriceCredit(
  db: Db,
  user: UserKey,
  except: Date | null,
): Promise<PriceLine[]> {
  const isCounted = ({ start }: { readonly start: Date }) => start.getTime() !== except?.getTime()
  const prices = (await store.findUnpaidPrices(db, [user])).filter(isCounted)
  const prorations = (await store.findUnbilledProrations(db, [user])).filter(isCounted)
  const sum = (amounts: readonly bigint[]): bigint => amounts.reduce((a, b) => a + b, 0n)
  const balance = sum(prorations.map((one) => one.amount)) - sum(prices.map((one) => one.price))
  return takeCents(prorations, balance)
}

/** Takes prorations up to an amount, rounded down to cents, the last one first. */
function takeCents(prorations: readonly UnbilledProration[], amount: bigint): PriceLine[] {
  const lines: PriceLine[] = []
  let left = amount > 0n ? centsToAttos(centsDown(usdAttos(amount))) : 0n
  for (const one of prorations.toReversed()) {
    const share = one.amount < left ? one.amount : left
    if (share > 0n) lines.push(toProrationLine({ ...one, amount: usdAttos(share) }))
    left -= share > 0n ? share : 0n
  }
  return lines
}

/** Returns the prices of periods that accounts have entered since they were read. */
async function readEntered(db: Db, accounts: readonly PricedAccount[]): Promise<UnpaidPrice[]> {
  const periods = accounts.flatMap(({ account: { appId, userId, periods: entered } }) =>
    entered.flatMap(({ start, end, terms: { planId, priceAttos } }) =>
      priceAttos === null || priceAttos === 0n
        ? []
        : [{ appId, userId, planId, start, end, price: usdAttos(priceAttos) }],
    ),
  )
  const names = await store.readPlanNames(db, [...new Set(periods.map(({ planId }) => planId))])
  return periods.map((period) => ({ ...period, planName: names.get(period.planId) ?? '' }))
}

const toLine = (due: UnpaidPrice): PriceLine & { readonly userId: UserId } => ({
  userId: due.userId,
  kind: 'subscription',
  description: due.planName,
  planId: due.planId,
  amount: due.price,
  periodStart: due.start,
  periodEnd: due.end,
})

const toProrationLine = (one: UnbilledProration): PriceLine & { readonly userId: UserId } => ({
  userId: one.userId,
  kind: 'proration',
  description: prorationText(one.planName),
  planId: one.planId,
  amount: usdAttos(-one.amount),
  periodStart: one.start,
  periodEnd: one.end,
})

/** Text of the line for the unused part of a plan's period. */
export const prorationText = (planName: string): string => `Unused part of ${planName}`
