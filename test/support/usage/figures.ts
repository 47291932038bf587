import { expect } from 'vitest'
import type { AccountBook } from './allowances.ts'
import { type Books, type Sums, type Window, nothing, summed } from './books.ts'
import type { TestApp } from '../deployment/deployment.ts'
import type { Subject } from './events.ts'

/** Figures as the REST API shows them. */
interface UsageAnswer {
  readonly totals: {
    readonly requestCount: number
    readonly totalFeeWei: string
    readonly totalFeeEth: string
    readonly networkFeeUsdMicros: string
    readonly unpricedCount: number
  }
  readonly byUser?: readonly (UsageRow & { readonly externalUserId: string })[]
  readonly byPipelineModel?: readonly (UsageRow & {
    readonly pipeline: string
    readonly modelId: string
  })[]
}

interface UsageRow {
  readonly requestCount: number
  readonly feeWei: string
  readonly networkFeeUsdMicros: string
}

const attosPerMicro = 10n ** 12n

/** Consumption is rounded up to a micro. */
const up = (attos: bigint): bigint => (attos + attosPerMicro - 1n) / attosPerMicro
/** Balances are rounded down to a micro. */
const down = (attos: bigint): bigint => attos / attosPerMicro

function expectTotals({ totals }: UsageAnswer, { count, fee, cost }: Sums): void {
  expect(totals).toMatchObject({
    requestCount: Number(count),
    totalFeeWei: String(fee),
    networkFeeUsdMicros: String(up(cost)),
    unpricedCount: 0,
  })
  const [whole = '', fraction = ''] = totals.totalFeeEth.split('.')
  expect(BigInt(whole) * 10n ** 18n + BigInt(fraction.padEnd(18, '0'))).toBe(fee)
}

/**
 * Expects rows by descending cost. Micros are rounded down, and the rest of the total goes to the
 * largest remainders.
 */
function expectRows<Row extends UsageRow>(
  rows: readonly Row[],
  keyOf: (row: Row) => string,
  expected: ReadonlyMap<string, Sums>,
): void {
  expect(rows.map(keyOf).sort()).toEqual([...expected.keys()].sort())
  const sums = rows.map((row) => expected.get(keyOf(row)) ?? { count: 0n, fee: 0n, cost: 0n })
  expect(sums.every(({ cost }, i) => i === 0 || cost <= (sums[i - 1]?.cost ?? 0n))).toBe(true)
  const micros = sums.map(({ cost }) => down(cost))
  const total = up(sums.reduce((all, { cost }) => all + cost, 0n))
  const lacking = Number(total - micros.reduce((all, one) => all + one, 0n))
  const byRemainder = sums
    .map(({ cost }, i) => ({ i, rest: cost % attosPerMicro }))
    .sort((a, b) => (a.rest === b.rest ? a.i - b.i : a.rest < b.rest ? 1 : -1))
  const raised = new Set(byRemainder.slice(0, lacking).map(({ i }) => i))
  expect(
    rows.map(({ requestCount, feeWei, networkFeeUsdMicros }) => ({
      requestCount,
      feeWei,
      networkFeeUsdMicros,
    })),
  ).toEqual(
    sums.map(({ count, fee }, i) => ({
      requestCount: Number(count),
      feeWei: String(fee),
      networkFeeUsdMicros: String((micros[i] ?? 0n) + (raised.has(i) ? 1n : 0n)),
    })),
  )
}

/** Checks an app's usage in every grouping, and in a window whose ends are within an hour. */
export async function expectUsage(app: TestApp, books: Books, window: Window): Promise<void> {
  const ask = (query: string): Promise<UsageAnswer> =>
    app.call('GET', `/api/v1/builder/apps/${app.clientId}/usage?${query}`)
  const of = <T extends { subject: Subject }>(all: Iterable<T>): T[] =>
    [...all].filter(({ subject }) => subject.clientId === app.clientId)
  const users = new Map(
    of(books.users.values())
      .filter(({ count }) => count > 0n)
      .map((book) => [book.subject.externalUserId, book]),
  )
  const models = new Map<string, Sums>()
  for (const hour of of(books.hours.values())) {
    const key = `${hour.pipeline}:${hour.modelId}`
    models.set(key, summed([models.get(key) ?? nothing(), hour]))
  }
  const [byUser, byModel] = [await ask('groupBy=user'), await ask('groupBy=pipeline_model')]
  for (const answer of [await ask(''), byUser, byModel])
    expectTotals(answer, summed([...users.values()]))
  expectRows(byUser.byUser ?? [], ({ externalUserId }) => externalUserId, users)
  expectRows(
    byModel.byPipelineModel ?? [],
    ({ pipeline, modelId }) => `${pipeline}:${modelId}`,
    models,
  )
  const [from, to] = [window.from, window.until - 1_000].map((micros) =>
    new Date(micros / 1_000).toISOString(),
  )
  expectTotals(
    await ask(`startDate=${from}&endDate=${to}`),
    books.within.get(app.clientId) ?? nothing(),
  )
}

/** The owner of a customer's app has used up its own account. */
function spendingOf({ isCustomer }: TestApp, balanceUsdMicros: string) {
  if (balanceUsdMicros === '0') return { canSpend: false, spendRefusal: 'insufficient_balance' }
  return isCustomer
    ? { canSpend: false, spendRefusal: 'owner_debt_ceiling_reached' }
    : { canSpend: true }
}

/** Checks a user's balance: consumption rounded up, the remainder rounded down. */
export async function expectBalance(
  app: TestApp,
  { externalUserId }: Subject,
  account: AccountBook,
): Promise<void> {
  const path = `/api/v1/builder/apps/${app.clientId}/usage/balance?externalUserId=${encodeURIComponent(externalUserId)}`
  const answer = await app.call('GET', path)
  const { balanceUsdMicros, featureBalances } = answer as BalanceAnswer
  expect(answer).toEqual({
    externalUserId,
    balanceUsdMicros,
    remainingUsdMicros: balanceUsdMicros,
    featureBalances,
    consumedUsdMicros: String(up(account.consumed)),
    lifetimeGrantedUsdMicros: String(down(account.granted)),
    hasAccess: balanceUsdMicros !== '0',
    ...spendingOf(app, balanceUsdMicros),
    unpricedCount: 0,
  })
  // Credit for a feature is shown apart from the balance; each figure is rounded down separately.
  const bound = featureBalances.reduce((sum, one) => sum + BigInt(one.balanceUsdMicros), 0n)
  const rounded = down(account.balance) - BigInt(balanceUsdMicros) - bound
  expect(rounded).toBeGreaterThanOrEqual(0n)
  expect(rounded).toBeLessThanOrEqual(BigInt(featureBalances.length))
}

interface BalanceAnswer {
  readonly balanceUsdMicros: string
  readonly featureBalances: readonly { readonly balanceUsdMicros: string }[]
}
