import type { Pool } from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ProcessorEvent } from '../../../../core/billing/processor/port.ts'
import { createSimulatedProcessor } from '../../../../core/billing/processor/simulated/simulated.ts'
import { silentLog } from '../../../../core/lib/log.ts'
import { createPool } from '../../../../core/lib/sql.ts'
import { createDatabase } from '../../../support/run/postgres.ts'
import { atOnce, createClock, day } from '../../support.ts'
import {
  type Behaviour,
  type ProcessorDriver,
  cardOnly,
  cents,
  collection,
  connect,
  customerAt,
  describePort,
  live,
  newKey,
  payerAt,
  reasonOf,
  test,
  topUp,
} from './port-contract.ts'

let database: Awaited<ReturnType<typeof createDatabase>>
let pool: Pool
beforeAll(async () => {
  database = await createDatabase()
  pool = createPool({ url: database.url, max: 12, name: 'test', statementTimeoutMs: 60_000 })
  pool.on('error', () => {})
})
afterAll(async () => {
  await pool.end()
  await database.drop()
})

const hour = 3_600_000
const laterCards = {
  good: 'works',
  declined: 'declined_later',
  confirmation: 'confirmation',
} as const

function open({
  now = () => new Date(),
  receive = async () => {},
}: { now?: () => Date; receive?: (event: ProcessorEvent) => Promise<void> } = {}) {
  const publicUrl = 'https://svc.example'
  const simulated = createSimulatedProcessor({ pool, now, log: silentLog(), publicUrl, receive })
  const { processor, pages } = simulated

  const urls = { returnUrl: 'https://svc.example/back', refreshUrl: 'https://svc.example/again' }
  const linkTo = async (at: Parameters<ProcessorDriver['onboard']>[0]) => {
    const { url } = await processor.createOnboardingUrl(at, urls)
    return new URL(url).searchParams.get('link') ?? ''
  }
  const driver: ProcessorDriver = {
    processor,
    onboard: async (at) => {
      await pages.onboarding.act(at.account ?? '', await linkTo(at), 'complete')
    },
    deleteCustomer: pages.customers.remove,
    payCheckout: async (_, id, card: Behaviour) => {
      const { mode } = await pages.checkouts.find(id)
      const isDeclined = mode === 'payment' && card === 'declined'
      const { state } = await pages.checkouts.pay(id, isDeclined ? 'declined' : laterCards[card])
      if (state === 'expired') throw new Error('the checkout has expired')
      if (card === 'confirmation') await pages.checkouts.confirm(id, true)
    },
  }
  return { ...simulated, driver, linkTo }
}

describePort('simulated', async () => {
  await pool.query(
    'truncate simulated_objects, simulated_requests, simulated_movements, simulated_events',
  )
  return open().driver
})

describe('pay page', () => {
  async function checkout(clock = createClock(new Date())) {
    const opened = open({ now: clock.now })
    const customer = await customerAt(opened.driver, test)
    const { id } = await opened.processor.openCheckout(test, topUp(customer), newKey())
    return { ...opened, clock, customer, id, pay: opened.pages.checkouts }
  }

  it('pays once for simultaneous clicks', async () => {
    const { id, pay, processor } = await checkout()
    const results = await atOnce(10, () => pay.pay(id, 'works'))
    expect(results.every(({ state }) => state === 'paid')).toBe(true)
    const { payment } = (await processor.readCheckout(test, id)) ?? {}
    const { rows } = await pool.query(
      `select 1 from simulated_movements where source = $1 and kind = 'payment'`,
      [payment],
    )
    expect(rows).toHaveLength(1)
  })

  it('asks for a confirmation, and may go back to the choice of a card', async () => {
    const { id, pay, processor } = await checkout()
    expect((await pay.pay(id, 'confirmation')).state).toBe('open')
    expect((await pay.find(id)).isConfirming).toBe(true)
    await pay.confirm(id, false)
    expect((await pay.find(id)).isConfirming).toBe(false)
    // A confirmation without a card that waits for it changes nothing.
    expect((await pay.confirm(id, true)).state).toBe('open')
    await pay.pay(id, 'confirmation')
    expect((await pay.confirm(id, true)).state).toBe('paid')
    expect(await processor.readCheckout(test, id)).toMatchObject({ state: 'paid' })
  })

  it('ends after 24 hours', async () => {
    const { id, pay, processor, clock, customer } = await checkout()
    clock.advance(24 * hour)
    expect(await pay.pay(id, 'works')).toEqual({ state: 'expired', failure: null })
    expect(await processor.readCheckout(test, id)).toMatchObject({
      state: 'expired',
      payment: null,
    })
    expect(await processor.readCard(test, customer)).toBeNull()
  })

  it('is unknown with another id', async () => {
    const { pay } = await checkout()
    for (const id of ['', 'cs_sim_none']) expect(await reasonOf(pay.find(id))).toBe('NOT_FOUND')
  })
})

describe('card that expires soon', () => {
  it('is charged until the end of the month, and then is no card', async () => {
    const clock = createClock(new Date('2026-03-10T12:00:00Z'))
    const { driver, processor, pages } = open({ now: clock.now })
    const customer = await customerAt(driver, live)
    const { id } = await processor.openCheckout(live, cardOnly(customer), newKey())
    await pages.checkouts.pay(id, 'expires_soon')
    const card = await processor.readCard(live, customer)
    expect(card).toMatchObject({ brand: 'mastercard', expiresMonth: 3, expiresYear: 2026 })
    const charge = collection(customer, card?.id ?? '')
    clock.set(new Date('2026-03-31T23:59:59.999Z'))
    expect(await processor.pay(live, charge, newKey())).toMatchObject({ state: 'succeeded' })
    clock.set(new Date('2026-04-01T00:00:00Z'))
    expect(await processor.readCard(live, customer)).toBeNull()
    expect(await processor.pay(live, charge, newKey())).toMatchObject({
      state: 'failed',
      failure: 'expired_card',
    })
  })
})

describe('account', () => {
  it('takes no payment before it is complete and after its owner ended it', async () => {
    const { driver, processor, pages, linkTo } = open()
    const reference = { reference: 'app_1', email: null }
    const { id: account } = await processor.createAccount('live', reference, newKey())
    const at = { plane: 'live', account } as const
    const customer = await customerAt(driver, at)
    const checkout = () => processor.openCheckout(at, topUp(customer), newKey())
    expect(await reasonOf(checkout())).toBe('PROCESSOR_REFUSED')
    await pages.onboarding.act(account, await linkTo(at), 'submit')
    expect(await reasonOf(checkout())).toBe('PROCESSOR_REFUSED')
    await driver.onboard(at)
    const { id } = await checkout()
    await pages.onboarding.act(account, await linkTo(at), 'end')
    expect(await reasonOf(driver.payCheckout(at, id, 'good'))).toBe('PROCESSOR_REFUSED')
    expect(await reasonOf(linkTo(at))).toBe('PROCESSOR_REFUSED')
    expect(await processor.readAccount(at)).toBeNull()
  })

  it('is changed only by a link to it that has not expired', async () => {
    const clock = createClock(new Date())
    const { driver, processor, pages, linkTo } = open({ now: clock.now })
    const mine = await connect(driver)
    const other = await connect(driver)
    const link = await linkTo(mine)
    const end = (account: string | null, by: string) =>
      pages.onboarding.act(account ?? '', by, 'end')
    expect(await reasonOf(end(other.account, link))).toBe('NOT_FOUND')
    expect(await reasonOf(end(mine.account, 'link_sim_none'))).toBe('NOT_FOUND')
    clock.advance(5 * 60_000)
    expect(await end(mine.account, link)).toEqual({ url: 'https://svc.example/again' })
    expect(await processor.readAccount(mine)).toMatchObject({ chargesEnabled: true })
  })
})

describe('fee of the platform', () => {
  it('leaves the account and arrives in the platform', async () => {
    const from = new Date()
    const { driver, processor } = open()
    const at = await connect(driver)
    const { customer, card } = await payerAt(driver, at)
    const request = collection(customer, card.id, { fee: cents(75) })
    const { id } = await processor.pay(at, request, newKey())
    const range = { from, to: new Date(Date.now() + hour), after: null }
    const own = await processor.listMovements(at, range)
    expect(own.movements).toMatchObject([
      { kind: 'payment', amount: 500n, platformFee: 75n, payment: id, feeReference: id },
    ])
    const ours = (await processor.listMovements(live, range)).movements
    expect(ours.find(({ feeReference }) => feeReference === id)).toMatchObject({
      kind: 'fee',
      amount: 75n,
    })
    expect(
      await reasonOf(
        processor.pay(at, collection(customer, card.id, { fee: cents(501) }), newKey()),
      ),
    ).toBe('PROCESSOR_REFUSED')
  })
})

describe('payouts', () => {
  it('are made at midnight of what is available, less what was refunded since', async () => {
    const clock = createClock(new Date('2026-05-01T10:00:00Z'))
    const { driver, processor } = open({ now: clock.now })
    const at = await connect(driver)
    const { customer, card } = await payerAt(driver, at)
    const pay = async (amount: number, fee = 0) => {
      const request = collection(customer, card.id, { amount: cents(amount), fee: cents(fee) })
      return (await processor.pay(at, request, newKey())).id
    }
    const balance = async () => (await processor.readBalance(at))[0]?.available
    const list = (limit = 50, after: string | null = null) =>
      processor.listPayouts(at, { limit, after })

    const first = await pay(1_000, 100)
    await pay(500)
    expect(await balance()).toBe(1_400n)
    expect(await list()).toEqual({ payouts: [], hasMore: false })

    clock.advance(day)
    expect(await balance()).toBe(0n)
    await processor.refund(
      at,
      { payment: first, amount: cents(300), reference: 'refund-1' },
      newKey(),
    )
    expect(await balance()).toBe(-300n)
    // A debt is covered by later payments before the next payout.
    clock.advance(day)
    await pay(700)
    expect(await balance()).toBe(400n)
    clock.advance(day)
    await pay(200)
    clock.advance(day)
    const amounts = (await list())?.payouts.map(({ id, amount, state }) => [id, amount, state])
    expect(amounts).toEqual([
      ['po_sim_20260505', 200n, 'paid'],
      ['po_sim_20260504', 400n, 'paid'],
      ['po_sim_20260502', 1_400n, 'paid'],
    ])
    const page = await list(2)
    expect(page?.hasMore).toBe(true)
    const rest = await list(2, page?.payouts.at(-1)?.id)
    expect(rest).toMatchObject({ payouts: [{ id: 'po_sim_20260502' }], hasMore: false })
    expect(rest?.payouts[0]?.arrivesAt).toEqual(new Date('2026-05-02T00:00:00Z'))
    // No day, a day to come, and a day without a payout.
    for (const day of ['20269999', '20260506', '20260503'])
      expect(await list(2, `po_sim_${day}`)).toBeNull()
  })
})

describe('amount', () => {
  it.each([49, 100_000_000])('of %i cents is refused', async (amount) => {
    const { driver, processor } = open()
    const { customer, card } = await payerAt(driver, live)
    const request = collection(customer, card.id, { amount: cents(amount) })
    expect(await reasonOf(processor.pay(live, request, newKey()))).toBe('PROCESSOR_REFUSED')
  })
})

describe('idempotency key', () => {
  it('acts once for simultaneous requests of two cores', async () => {
    const [one, two] = [open(), open()]
    const { customer, card } = await payerAt(one.driver, live)
    const [key, request] = [newKey(), collection(customer, card.id)]
    const paid = await atOnce(16, (i) => (i % 2 ? one : two).processor.pay(live, request, key))
    expect(new Set(paid.map(({ id }) => id)).size).toBe(1)
    const { rows } = await pool.query('select 1 from simulated_movements where source = $1', [
      paid[0]?.id,
    ])
    expect(rows).toHaveLength(1)
  })

  it('is separate per account and plane', async () => {
    const { driver, processor } = open()
    const key = newKey()
    const customer = { reference: 'user-1', description: 'ada' }
    const places = [live, test, await connect(driver), await connect(driver, 'test')]
    const made = await Promise.all(places.map((at) => processor.createCustomer(at, customer, key)))
    expect(new Set(made.map(({ id }) => id)).size).toBe(4)
  })
})

describe('events', () => {
  it('name account, plane and object, and follow each change once', async () => {
    const events: ProcessorEvent[] = []
    const { driver, processor } = open({ receive: async (event) => void events.push(event) })
    const at = await connect(driver, 'test')
    const { customer, card } = await payerAt(driver, at)
    const [key, request] = [newKey(), collection(customer, card.id)]
    const { id } = await processor.pay(at, request, key)
    await processor.pay(at, request, key)
    const refund = { payment: id, amount: cents(100), reference: 'refund-1' }
    const { id: refundId } = await processor.refund(at, refund, newKey())
    expect(events.every((event) => event.at.account === at.account)).toBe(true)
    expect(events.every((event) => event.at.plane === 'test')).toBe(true)
    expect(events.map(({ type }) => type)).toEqual([
      'account.updated',
      'checkout.completed',
      'payment.succeeded',
      'refund.succeeded',
    ])
    expect(events.at(-1)).toMatchObject({ subject: 'refund', objectId: refundId, payment: id })
  })

  it('are delivered again until they are accepted', async () => {
    const clock = createClock(new Date(Date.now() + 400 * day))
    const seen: string[] = []
    let isDown = true
    const receive = async ({ id }: ProcessorEvent) => {
      if (isDown) throw new Error('down')
      seen.push(id)
    }
    const { driver, upkeep } = open({ now: clock.now, receive })
    const round = async () => {
      for (const step of upkeep) await step()
    }
    await connect(driver)
    await round()
    expect(seen).toEqual([])
    clock.advance(60_000)
    await round()
    expect(seen).toEqual([])
    isDown = false
    clock.advance(60 * 60_000)
    await round()
    const delivered = seen.length
    expect(delivered).toBeGreaterThan(0)
    clock.advance(60 * 60_000)
    await round()
    expect(seen).toHaveLength(delivered)
  })

  it('come with no webhook', () => {
    const { processor } = open()
    expect(() => processor.verifyEvent(Buffer.from('{}'), 't=1,v1=a', new Date())).toThrow(
      'sends no webhooks',
    )
  })
})
