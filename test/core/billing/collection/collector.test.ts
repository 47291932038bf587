import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createFindCards } from '../../../../core/billing/payments/chargeable-cards.ts'
import { tx } from '../../../../core/lib/sql.ts'
import { openLedger } from '../../../../core/open-ledger.ts'
import { createClocks } from '../../../../core/shared/clocks/clocks.ts'
import { outcome } from '../../support.ts'
import { type CollectionWorld, startCollections, usd } from './world.ts'

/** The ledger of a process without settings of payments, such as a separate collector. */

let world: CollectionWorld
beforeAll(async () => {
  world = await startCollections()
})
afterAll(() => world.stop())

const day = 86_400_000

describe('a process that only books', () => {
  it('gives users who enter a first paid period their credit line, and requests the price', async () => {
    const { appId, ...shop } = await world.merchant()
    const merchant = { appId, ...shop }
    const monthly = { type: 'subscription', price: '10.00', timing: 'next_billing_cycle' } as const
    const ada = await world.payer(merchant, { ...monthly, name: 'ada' })
    const bob = await world.payer(merchant, {
      type: 'usage',
      timing: 'next_billing_cycle',
      name: 'bob',
    })
    expect((await world.account(ada.user)).ceiling).toBe(0n)
    world.clock.advance(32 * day)
    const { ledger } = openLedger(
      { clocks: createClocks(), now: world.clock.now },
      { resubscribe: async () => {}, findPayingOwners: async () => new Map() },
    )
    const users = [ada.user, bob.user]
    await tx(world.sql, (db) => ledger.enterPeriods(db, users, world.clock.now()))
    expect((await world.account(ada.user)).ceiling).toBe(usd(200))
    expect((await world.account(bob.user)).ceiling).toBe(usd(200))
    expect(await world.collections(ada.user)).toEqual([
      expect.objectContaining({ reason: 'period' }),
    ])
    await world.settled(ada.user)
    await expect.poll(() => world.taken(ada)).toEqual([1000])
  }, 60_000)

  it('throws instead of taking a user for one without a card before core has started once', async () => {
    const find = createFindCards(world.clock.now)
    const user = (await world.payer(await world.merchant())).user
    const missing = tx(world.sql, async (db) => {
      expect(await find(db, [user])).toEqual(new Set([user.userId]))
      await db.query('delete from payment_processor')
      expect(await find(db, [])).toEqual(new Set())
      return find(db, [user])
    })
    expect(await outcome(missing)).toBe('UNAVAILABLE')
  })
})
