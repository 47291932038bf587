import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { WalletTransaction } from '../../../proto/gen/ts-proto/tollgate/billing/v1/wallet.ts'
import { listTransactions } from '../../../core/billing/wallet/transactions.ts'
import { appId, userId } from '../../../core/shared/ids.ts'
import { second } from '../support.ts'
import { type CollectionWorld, type Payer, startCollections, usd } from './collection/world.ts'

let world: CollectionWorld
beforeAll(async () => {
  world = await startCollections()
})
afterAll(() => world.stop())

async function listAll(payer: Payer, limit: number): Promise<WalletTransaction[]> {
  const items: WalletTransaction[] = []
  for (let cursor: string | undefined; ;) {
    const page = await world.operator.wallets.listWalletTransactions({
      clientId: payer.merchant.clientId,
      externalUserId: payer.name,
      limit,
      cursor,
    })
    expect(page.degraded).toBe(false)
    expect(page.items.length).toBeLessThanOrEqual(limit)
    items.push(...page.items)
    cursor = page.nextCursor
    if (cursor === undefined) return items
  }
}

/** Expects that each balance is the one before plus the delta, from 0 on. */
function expectRunningBalances(items: readonly WalletTransaction[]): void {
  let balance = 0n
  for (const item of items.toReversed()) {
    balance += BigInt(item.creditDeltaUsdMicros)
    expect([item.id, item.balanceUsdMicros]).toEqual([item.id, String(balance)])
  }
}

/** A user with a paid invoice of 10 USD: 5 tickets of 3 USD, of which Starter's 5 USD paid a part. */
async function invoiced(): Promise<Payer> {
  const ada = await world.payer(await world.merchant(), { threshold: usd(1_000) })
  await world.spend(ada, 5)
  await world.settled(ada.user)
  return ada
}

describe('transactions of a wallet', () => {
  it('have invoices and payments, which leave the balance unchanged', async () => {
    const ada = await invoiced()
    world.clock.advance(second)
    const items = await listAll(ada, 100)
    const [row] = await world.rows('select id, total_cents from invoices where user_id = $1', [
      ada.user.userId,
    ])
    const micros = String(BigInt(row?.['total_cents'] ?? '') * 10_000n)
    expect(items.slice(0, 2)).toMatchObject([
      {
        type: 'payment',
        description: 'Payment of invoice INV-000001',
        amountUsdMicros: micros,
        creditDeltaUsdMicros: '0',
        balanceUsdMicros: '0',
        invoiceId: row?.['id'],
      },
      {
        type: 'invoice',
        description: 'Invoice INV-000001',
        amountUsdMicros: micros,
        creditDeltaUsdMicros: '0',
        balanceUsdMicros: '0',
        invoiceId: row?.['id'],
      },
    ])
    expect(items.at(-1)?.type).toBe('credit_granted')
    expectRunningBalances(items)
  })

  it('have what went back of a payment, and its credit note', async () => {
    const ada = await invoiced()
    const [row] = await world.rows('select processor_id from payments where user_id = $1', [
      ada.user.userId,
    ])
    world.clock.advance(second)
    world.stripe.refundPayment(ada.at, row?.['processor_id'] ?? '', 400)
    const types = async () => (await listAll(ada, 100)).slice(0, 2).map(({ type }) => type)
    await expect.poll(types, { timeout: 10_000 }).toEqual(['credit_note', 'refund'])
    const items = await listAll(ada, 100)
    expect(items.slice(0, 2).map(({ amountUsdMicros }) => amountUsdMicros)).toEqual([
      '4000000',
      '4000000',
    ])
    expectRunningBalances(items)
  })

  it('are the same on pages of any size', async () => {
    const ada = await invoiced()
    world.clock.advance(86_400 * second)
    await world.spend(ada, 4)
    await world.settled(ada.user)
    const all = await listAll(ada, 100)
    expect(all.filter(({ type }) => type === 'payment')).toHaveLength(2)
    expect(new Set(all.map(({ id }) => id)).size).toBe(all.length)
    for (const limit of [1, 2, 3, 7]) expect(await listAll(ada, limit)).toEqual(all)
    expectRunningBalances(all)
  })

  it('date payments by the clock of a test app', async () => {
    const shop = await world.merchant({ isTest: true })
    const ada = await world.payer(shop, { card: 'card_declined' })
    await world.spend(ada, 3)
    const states = async () => (await world.collections(ada.user)).map(({ state }) => state)
    await expect.poll(states, { timeout: 10_000 }).toEqual(['retrying'])
    for (const { id } of world.stripe.world(ada.at).list('payment_method'))
      world.stripe.setCard(ada.at, id, 'good')
    await world.operator.testClocks.advanceTestClock({
      clientId: shop.clientId,
      move: { to: undefined, advanceSeconds: 86_400 },
    })
    await expect.poll(states, { timeout: 10_000 }).toEqual(['paid'])
    const items = await listAll(ada, 100)
    const dates = items.map(({ date }) => date)
    expect(dates).toEqual([...dates].sort().toReversed())
    const [payment, invoice] = items
    expect([payment?.type, invoice?.type]).toEqual(['payment', 'invoice'])
    const later = Date.parse(payment?.date ?? '') - Date.parse(invoice?.date ?? '')
    expect(later).toBeGreaterThanOrEqual(86_400 * second)
    for (const limit of [1, 2]) expect(await listAll(ada, limit)).toEqual(items)
  })

  it("have the application fees that users' payments brought the owner", async () => {
    const ada = await invoiced()
    const [owner] = await world.rows(
      `select e.app_id, e.user_id, p.fee_cents from ledger_entries e
       join payments p on p.id = e.cause_id and p.app_id <> e.app_id where p.user_id = $1`,
      [ada.user.userId],
    )
    const user = { appId: appId(owner?.['app_id'] ?? ''), userId: userId(owner?.['user_id'] ?? '') }
    const { items } = await listTransactions(world.sql, user, { limit: 100, cursor: undefined })
    expect(items[0]).toMatchObject({
      type: 'payment',
      description: 'Application fee of a payment by a user',
      change: 0n,
      amount: BigInt(owner?.['fee_cents'] ?? '') * 10n ** 16n,
    })
  })

  it('refuse a cursor of another list', async () => {
    const ada = await world.payer(await world.merchant())
    const list = (cursor: string) =>
      world.operator.wallets.listWalletTransactions({
        clientId: ada.merchant.clientId,
        externalUserId: ada.name,
        limit: 1,
        cursor,
      })
    await expect(list('2')).rejects.toMatchObject({ reason: 'REQUEST_INVALID' })
    await expect(list('LSAxIDI')).rejects.toMatchObject({ reason: 'REQUEST_INVALID' })
  })
})
