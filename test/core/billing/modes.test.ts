import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createLedger } from '../../../core/balances/ledger/ledger.ts'
import { createModes } from '../../../core/billing/owners/modes.ts'
import { tx } from '../../../core/lib/sql.ts'
import { type AppId, appId } from '../../../core/shared/ids.ts'
import {
  type OwnedApp,
  type OwnersWorld,
  dollar,
  expectRightBooks,
  startOwners,
  ticketOf,
} from '../balances/ledger/owner-world.ts'
import { begin } from '../support.ts'

/** A change of the billing mode: what users ran up in owner_rollup is not their debt (decision 67). */

let world: OwnersWorld
let named = 0
beforeAll(async () => {
  world = await startOwners()
})
afterAll(() => world.stop())

/** Creates a customer's app whose users have nothing included. */
async function newShop(): Promise<OwnedApp> {
  const email = `modes-${(named += 1)}@example.com`
  const request = { name: 'Shop', ownerEmail: email, isCustomer: true, starterUsdMicros: '0' }
  const { clientId } = await world.as().createApp(request)
  return { clientId, email }
}

const changeTo = (shop: OwnedApp, billingMode: string) =>
  world.operator.billing.updateBillingSettings({
    clientId: shop.clientId,
    billingMode,
    endUserCap: undefined,
    isPlatformOwned: undefined,
    servesEveryApp: undefined,
    platformCutPercent: undefined,
  })

/** A ticket of 0.003 USD. */
const small = (shop: OwnedApp, user: string) =>
  ticketOf(shop, user, { computed_fee: '1000000000000' })

const idOf = async ({ clientId }: OwnedApp): Promise<AppId> => {
  const [row] = await world.rows('select app_id from clients where client_id = $1', [clientId])
  return appId(row?.['app_id'] ?? '')
}

const debtsOf = async ({ clientId }: OwnedApp): Promise<bigint[]> => {
  const rows = await world.rows(
    `select b.overage_attos - b.collected_attos as debt
     from balances b join clients c on c.app_id = b.app_id where c.client_id = $1 order by b.user_id`,
    [clientId],
  )
  return rows.map((row) => BigInt(row['debt'] ?? ''))
}

/** Entries that settle overage, and how many of them a change of the mode explains. */
async function settlementsOf({ clientId }: OwnedApp) {
  const [row] = await world.rows(
    `select count(*) as entries, count(m.id) as explained, count(distinct e.user_id) as users
     from ledger_entries e
     join clients c on c.app_id = e.app_id
     left join billing_mode_changes m on m.app_id = e.app_id and m.id = e.cause_id
     where c.client_id = $1 and e.kind = 'payment'`,
    [clientId],
  )
  return [Number(row?.['entries']), Number(row?.['explained']), Number(row?.['users'])]
}

describe('a change from owner_rollup to merchant', () => {
  it("takes the users' overage out of their debts, and only that", async () => {
    const shop = await newShop()
    await world.ingestBytes(ticketOf(shop))
    expect(await debtsOf(shop)).toEqual([3n * dollar])
    await changeTo(shop, 'merchant')
    expect(await debtsOf(shop)).toEqual([0n])
    expect(await settlementsOf(shop)).toEqual([1, 1, 1])
    await world.ingestBytes(small(shop, 'ada'))
    expect(await debtsOf(shop)).toEqual([(3n * dollar) / 1000n])
    await expect(changeTo(shop, 'owner_rollup')).rejects.toThrow("the app's users is unpaid")
    await changeTo(shop, 'merchant')
    expect(await debtsOf(shop)).toEqual([(3n * dollar) / 1000n])
    await expectRightBooks()
  })

  it('waits for an invoice that is still collected, although it has only prices', async () => {
    const shop = await newShop()
    await changeTo(shop, 'merchant')
    await world.ingestBytes(ticketOf(shop, 'ada', { computed_fee: '0' }))
    await world.damage(`
      insert into collections (app_id, user_id, id, reason, state, with_usage, invoice_id, requested_at, due_at)
      select u.app_id, u.id, gen_random_uuid(), 'period', 'retrying', false, gen_random_uuid(), now(), '2999-01-01'
      from end_users u join clients c on c.app_id = u.app_id where c.client_id = '${shop.clientId}'`)
    await expect(changeTo(shop, 'owner_rollup')).rejects.toThrow("the app's users is unpaid")
    await world.damage(`update collections set state = 'voided', ended_at = now()`)
    await changeTo(shop, 'owner_rollup')
    await expectRightBooks()
  })

  it('settles nothing if the change is refused', async () => {
    const shop = await newShop()
    await world.ingestBytes(ticketOf(shop), ticketOf(shop))
    await expect(changeTo(shop, 'merchant')).rejects.toThrow("the owner's account is unpaid")
    expect(await settlementsOf(shop)).toEqual([0, 0, 0])
  })

  it('is refused while too many users run up debt, and settles none of them', async () => {
    const shop = await newShop()
    const modes = createModes({ pool: world.sql, now: () => begin, ledger: createLedger() })
    const runUp = async (from: number, count: number): Promise<void> => {
      const users = Array.from({ length: count }, (_, index) => `user-${from + index}`)
      await world.ingestBytes(...users.map((user) => small(shop, user)))
    }
    const settleLast = await modes.settle(await idOf(shop))
    await runUp(0, 999)
    await tx(world.sql, settleLast)
    expect((await debtsOf(shop)).filter((debt) => debt > 0n)).toHaveLength(0)
    const settleMore = await modes.settle(await idOf(shop))
    await runUp(0, 500)
    await runUp(999, 500)
    await expect(tx(world.sql, settleMore)).rejects.toThrow('too many users are in use now')
    expect((await debtsOf(shop)).filter((debt) => debt > 0n)).toHaveLength(1_000)
    await expectRightBooks()
  }, 60_000)

  it('settles each user once, also after a crash between two pages', async () => {
    const shop = await newShop()
    const users = Array.from({ length: 230 }, (_, index) => `user-${index}`)
    await world.ingestBytes(...users.map((user) => small(shop, user)))
    const ledger = createLedger()
    let pages = 0
    const save: typeof ledger.save = async (db, accounts, at) => {
      if ((pages += 1) === 2) throw new Error('the core was killed')
      return ledger.save(db, accounts, at)
    }
    const modes = createModes({ pool: world.sql, now: () => begin, ledger: { ...ledger, save } })
    await expect(modes.settle(await idOf(shop))).rejects.toThrow('killed')
    expect((await debtsOf(shop)).filter((debt) => debt > 0n)).toHaveLength(30)
    await changeTo(shop, 'merchant')
    expect((await debtsOf(shop)).every((debt) => debt === 0n)).toBe(true)
    expect(await settlementsOf(shop)).toEqual([230, 230, 230])
    await expectRightBooks()
  })
})
