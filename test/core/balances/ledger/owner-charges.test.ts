import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectCore } from '../../../../deploy/cli/client.ts'
import { tollgate } from '../../books/support.ts'
import { begin, serviceToken } from '../../support.ts'
import {
  type OwnedApp,
  type OwnersWorld,
  differences,
  dollar,
  expectRightBooks,
  perTicket,
  startOwners,
  ticketOf,
} from './owner-world.ts'

/** Owner charges at core's RPCs (decision 59). */

let world: OwnersWorld
let operator: OwnersWorld['operator']
let ownedApp: OwnersWorld['ownedApp']
let accountOf: OwnersWorld['accountOf']

beforeAll(async () => {
  world = await startOwners()
  ;({ operator, ownedApp, accountOf } = world)
})
afterAll(() => world.stop())

const settle = (clientId: string, billingMode: string) =>
  operator.billing.updateBillingSettings({
    clientId,
    billingMode,
    endUserCap: undefined,
    isPlatformOwned: undefined,
    servesEveryApp: undefined,
    platformCutPercent: undefined,
  })

describe('an owner of a customer app', () => {
  it('pays network cost and platform fee of all users, once per batch and app', async () => {
    const shop = await ownedApp()
    expect(await accountOf(shop)).toBeNull()
    await world.ingestBytes(ticketOf(shop), ticketOf(shop, 'bob'), ticketOf(shop))
    await world.ingestBytes(ticketOf(shop))
    const { clientId } = shop
    // The platform app's Starter includes 5 USD.
    expect(await accountOf(shop)).toEqual({
      consumed: 4n * perTicket,
      balance: 0n,
      overage: 4n * perTicket - 5n * dollar,
      charges: [
        { clientId, amount: 3n * perTicket, tickets: 3 },
        { clientId, amount: perTicket, tickets: 1 },
      ],
    })
    await expectRightBooks()
  })

  it('pays once for a batch that is delivered twice', async () => {
    const shop = await ownedApp()
    const batch = [ticketOf(shop), ticketOf(shop, 'bob')]
    await world.ingestBytes(...batch)
    expect(await world.ingestBytes(...batch)).toMatchObject({ duplicates: 2 })
    expect((await accountOf(shop))?.charges).toHaveLength(1)
  })

  it('has one account for all apps', async () => {
    const shop = await ownedApp()
    const other = await ownedApp({ email: shop.email })
    await world.ingestBytes(ticketOf(shop), ticketOf(other), ticketOf(other))
    const account = await accountOf(shop)
    expect(account?.charges.map(({ clientId }) => clientId)).toEqual(
      expect.arrayContaining([shop.clientId, other.clientId]),
    )
    expect(account?.consumed).toBe(3n * perTicket)
  })

  it('pays nothing for a platform-owned app', async () => {
    const own = await ownedApp({ isCustomer: false })
    await world.ingestBytes(ticketOf(own))
    expect(await accountOf(own)).toBeNull()
    await expectRightBooks()
  })

  it('pays in the billing mode merchant as in owner_rollup', async () => {
    const shop = await ownedApp()
    await settle(shop.clientId, 'merchant')
    await world.ingestBytes(ticketOf(shop), ticketOf(shop, 'bob'))
    const { clientId } = shop
    expect(await accountOf(shop)).toMatchObject({
      consumed: 2n * perTicket,
      charges: [{ clientId, amount: 2n * perTicket, tickets: 2 }],
    })
    await expectRightBooks()
  })

  it('pays for a ticket that was priced late, when it is priced', async () => {
    const shop = await ownedApp()
    const early = new Date(begin.getTime() - 3_600_000)
    await world.ingestBytes(ticketOf(shop, 'ada', { current_time: early.toISOString() }))
    expect(await accountOf(shop)).toBeNull()
    await operator.metering.recordRate({
      usdPerEth: '3000',
      source: 'late',
      observedAt: early.toISOString(),
    })
    await expect.poll(async () => (await accountOf(shop))?.consumed).toBe(perTicket)
    await expectRightBooks()
  })

  it('pays by the account that owns the app when the batch is booked', async () => {
    const [shop, other] = [await ownedApp(), await ownedApp()]
    await world.ingestBytes(ticketOf(shop))
    await world.sql.query(
      `update members set account_id = (select id from accounts where email = $1)
       where app_id = (select app_id from clients where client_id = $2)`,
      [other.email, shop.clientId],
    )
    await world.ingestBytes(ticketOf(shop), ticketOf(shop))
    expect((await accountOf(shop))?.consumed).toBe(perTicket)
    expect((await accountOf(other))?.consumed).toBe(2n * perTicket)
    await expectRightBooks()
  })

  it('keeps the charge when a ticket is given back to its user', async () => {
    const shop = await ownedApp()
    const eventId = randomUUID()
    await world.ingestBytes(ticketOf(shop, 'ada', { id: eventId }))
    await operator.allowances.createAdjustment({
      clientId: shop.clientId,
      externalUserId: 'ada',
      eventId,
      reason: 'refund',
      author: 'ada',
      amountUsdMicros: '3000000',
      uncovered: undefined,
      idempotencyKey: undefined,
    })
    expect((await accountOf(shop))?.consumed).toBe(perTicket)
    await expectRightBooks()
  })
})

describe('many collectors', () => {
  it('charge each owner exactly, whichever order they lock accounts in', async () => {
    const { core, as } = await world.startAnother()
    const second = connectCore({ target: core.target, token: serviceToken, tls: undefined })
    const [a, b] = [await ownedApp(), await ownedApp()]
    const shops = [a, b, await ownedApp({ email: a.email }), await ownedApp({ email: b.email })]
    const rounds = 20
    expect(as).toBeDefined()
    await Promise.all(
      Array.from({ length: rounds }, async (_, i) => {
        const batch = shops.flatMap((shop, k) => [
          ticketOf(shop, `user-${(i + k) % 5}`),
          ticketOf(shop, `user-${(i * 3 + k) % 5}`),
        ])
        const envelopes = i % 2 ? batch : batch.toReversed()
        await (i % 2 ? second : operator).metering.ingestEvents({ envelopes })
      }),
    )
    second.close()
    for (const owner of [a, b]) {
      const account = await accountOf(owner)
      expect(account?.consumed).toBe(BigInt(rounds * 4) * perTicket)
      expect(account?.charges.reduce((sum, { tickets }) => sum + tickets, 0)).toBe(rounds * 4)
    }
    await expectRightBooks()
  })
})

describe('a core that loses its database in the middle of a batch', () => {
  it('charges owner and users together or not at all, and each ticket once', async () => {
    const shop = await ownedApp()
    const batches = Array.from({ length: 12 }, (_, i) =>
      Array.from({ length: 5 }, () => ticketOf(shop, `user-${i % 3}`)),
    )
    const deliver = async (envelopes: readonly Buffer[]): Promise<void> => {
      for (let tries = 0; tries < 50; tries++) {
        const isDelivered = await world.ingestBytes(...envelopes).then(
          () => true,
          () => false,
        )
        if (isDelivered) return
      }
      throw new Error('a batch was never accepted')
    }
    const stop = new AbortController()
    let killed = 0
    const killing = (async () => {
      while (!stop.signal.aborted) {
        const { rowCount } = await world.sql.query(
          `select pg_terminate_backend(pid) from pg_stat_activity
           where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null
             and backend_type = 'client backend' and query ilike any (array['%ledger_entries%', '%update balances%', '%lock-accounts%', 'commit'])`,
        )
        killed += rowCount ?? 0
        await new Promise((resolve) => setTimeout(resolve, 15))
        if (killed > 20) stop.abort()
      }
    })()
    await Promise.all(batches.map(deliver))
    stop.abort()
    await killing
    expect((await accountOf(shop))?.consumed).toBe(60n * perTicket)
    await expectRightBooks()
  })
})

describe('verify', () => {
  it.each([
    [
      'an altered amount',
      `update ledger_entries set overage_attos = overage_attos + 1 where charged_app_id = APP`,
    ],
    [
      'an altered app',
      `update ledger_entries set charged_app_id = OTHER where charged_app_id = APP`,
    ],
    [
      'an altered number of tickets',
      `update ledger_entries set ticket_count = ticket_count + 1 where charged_app_id = APP`,
    ],
    ['a removed charge', `delete from ledger_entries where charged_app_id = APP`],
    [
      "an altered share in a user's charge",
      `update ledger_entries set owner_attos = owner_attos + 1 where app_id = APP and owner_attos is not null`,
    ],
    [
      "a share removed from a user's charge",
      `update ledger_entries set owner_attos = null, owner_user_id = null where app_id = APP and owner_attos is not null`,
    ],
    [
      "a share of another owner in a user's charge",
      `update ledger_entries set owner_user_id = user_id where app_id = APP and owner_attos is not null`,
    ],
  ])('finds %s', async (_, damage) => {
    const [shop, other] = [await ownedApp(), await ownedApp()]
    await world.ingestBytes(ticketOf(shop), ticketOf(shop, 'bob'))
    const idOf = ({ clientId }: OwnedApp): string =>
      `(select app_id from clients where client_id = '${clientId}')`
    await world.damage('create table kept as select * from ledger_entries')
    await world.damage(damage.replaceAll('APP', idOf(shop)).replaceAll('OTHER', idOf(other)))
    const { text } = await tollgate('verify')
    await world.damage(
      'delete from ledger_entries; insert into ledger_entries select * from kept; drop table kept',
    )
    expect(differences(text).some((line) => line.includes('DIFFERENCE owner_charges'))).toBe(true)
    await expectRightBooks()
  })
})
