import type { Pool } from 'pg'
import { describe, expect, it } from 'vitest'
import type { UserPeriods } from '../../../../core/metering/rating/port.ts'
import { createPlanHistory } from '../../../../core/metering/rating/plan-history.ts'
import { type AppId, type UserId, newUserId } from '../../../../core/shared/ids.ts'

const db = {} as Pool

function setUp() {
  const user = { appId: 'app' as AppId, userId: newUserId() }
  let last = 1n
  let reads = 0
  const timelines = createPlanHistory({
    pool: db,
    ledger: {
      readPeriods: async (): Promise<UserPeriods[]> => {
        reads += 1
        return [{ userId: user.userId, isWhole: true, periods: [periodOf(last)] }]
      },
      enterPeriods: async () => {},
    },
    plans: {
      readRates: async (_, ids) =>
        new Map(ids.map((id) => [id, { ratioOf: () => id, highest: id, maxPriceWei: null }])),
    },
  })

  /** Returns the highest ratio of a locked account's version. */
  async function running(terms: bigint, entered: readonly unknown[] = []) {
    last = terms
    const locked = { ...user, periodStart: new Date(Number(terms)), periods: entered }
    return (await timelines.running(db, [locked])).get(user.userId as UserId)?.highest
  }

  return { running, reads: () => reads }
}

const periodOf = (termsId: bigint) => ({ startMs: Number(termsId), endMs: 1e13, termsId })

describe('running', () => {
  it('reads the periods of an account once', async () => {
    const { running, reads } = setUp()
    expect([await running(1n), await running(1n)]).toEqual([1n, 1n])
    expect(reads()).toBe(1)
  })

  it('reads them again if the account is in another period', async () => {
    const { running } = setUp()
    expect([await running(1n), await running(2n), await running(1n)]).toEqual([1n, 2n, 1n])
  })

  it('does not cache a period that the transaction has entered', async () => {
    const { running, reads } = setUp()
    await running(1n, [{}])
    await running(1n)
    expect(reads()).toBe(2)
  })
})
