import { describe, expect, it } from 'vitest'
import {
  type Card,
  type Checkout,
  type NewCheckout,
  type NewPayment,
  type PaymentProcessor,
  type ProcessorAccount,
  type UsdCents,
  usdCents,
} from '../../../../core/billing/processor/port.ts'
import { type Reason, DomainError } from '../../../../proto/errors.ts'

export type Behaviour = 'good' | 'declined' | 'confirmation'

/** What users and owners do at a processor, apart from the port. */
export interface ProcessorDriver {
  readonly processor: PaymentProcessor
  /** The owner of a created account completes it. */
  readonly onboard: (at: ProcessorAccount) => Promise<void>
  /** Somebody deletes the customer on the processor's own pages. */
  readonly deleteCustomer: (at: ProcessorAccount, id: string) => Promise<void>
  /** The user pays on the pay page with a card that later behaves like this. */
  readonly payCheckout: (at: ProcessorAccount, id: string, card: Behaviour) => Promise<void>
}

export const live: ProcessorAccount = { plane: 'live', account: null }
export const test: ProcessorAccount = { plane: 'test', account: null }
export const cents = (value: number): UsdCents => usdCents(BigInt(value))

let keys = 0
export const newKey = (): string => `test:app_1:${++keys}`

export const topUp = (customer: string, fields: Partial<NewCheckout> = {}): NewCheckout => ({
  customer,
  mode: 'payment',
  amount: cents(2_000),
  fee: cents(0),
  description: 'Credit for app_1',
  successUrl: 'https://app.example/paid',
  cancelUrl: 'https://app.example/left',
  reference: 'checkout-1',
  ...fields,
})

export const cardOnly = (customer: string): NewCheckout =>
  topUp(customer, { mode: 'card', amount: null })

export const collection = (
  customer: string,
  card: string,
  fields: Partial<NewPayment> = {},
): NewPayment => ({
  customer,
  card,
  amount: cents(500),
  fee: cents(0),
  description: 'Usage of November',
  reference: 'collection-1',
  ...fields,
})

/** Resolves with the reason of the port's error. */
export async function reasonOf(work: Promise<unknown>): Promise<Reason> {
  try {
    await work
  } catch (error) {
    if (error instanceof DomainError) return error.reason
    throw error
  }
  throw new Error('nothing was refused')
}

export async function connect(driver: ProcessorDriver, plane: 'live' | 'test' = 'live') {
  const created = await driver.processor.createAccount(
    plane,
    { reference: 'app_1', email: 'owner@example.com' },
    newKey(),
  )
  const at: ProcessorAccount = { plane, account: created.id }
  await driver.onboard(at)
  return at
}

export async function customerAt(driver: ProcessorDriver, at: ProcessorAccount): Promise<string> {
  const customer = { reference: 'user-1', description: 'ada of app_1' }
  return (await driver.processor.createCustomer(at, customer, newKey())).id
}

/** A customer whose card was kept by a checkout. */
export async function payerAt(
  driver: ProcessorDriver,
  at: ProcessorAccount,
  behaviour: Behaviour = 'good',
): Promise<{ customer: string; card: Card }> {
  const customer = await customerAt(driver, at)
  const { id } = await driver.processor.openCheckout(at, cardOnly(customer), newKey())
  await driver.payCheckout(at, id, behaviour)
  await driver.processor.readCheckout(at, id)
  const card = await driver.processor.readCard(at, customer)
  if (card === null) throw new Error('no card was kept')
  return { customer, card }
}

/** The promises of the port, which every adapter must keep. */
export function describePort(name: string, open: () => Promise<ProcessorDriver>): void {
  describe(`${name}: accounts`, () => {
    it('creates an account once per key and reports its progress', async () => {
      const driver = await open()
      const { processor } = driver
      const [key, request] = [newKey(), { reference: 'app_1', email: null }]
      const { id } = await processor.createAccount('live', request, key)
      expect(await processor.createAccount('live', request, key)).toMatchObject({ id })
      const at = { plane: 'live', account: id } as const
      expect(await processor.readAccount(at)).toMatchObject({ chargesEnabled: false })
      const urls = {
        returnUrl: 'https://core.example/back',
        refreshUrl: 'https://core.example/again',
      }
      expect((await processor.createOnboardingUrl(at, urls)).url).toMatch(/^https?:\/\//)
      await driver.onboard(at)
      expect(await processor.readAccount(at)).toEqual({
        chargesEnabled: true,
        payoutsEnabled: true,
        detailsSubmitted: true,
      })
    })

    it('returns null for an account of the other plane and for an unknown one', async () => {
      const driver = await open()
      const { account } = await connect(driver)
      expect(await driver.processor.readAccount({ plane: 'test', account })).toBeNull()
      expect(await driver.processor.readAccount({ plane: 'live', account: 'acct_none' })).toBeNull()
    })
  })

  describe(`${name}: checkouts`, () => {
    it('takes a payment, keeps the card and reports both', async () => {
      const driver = await open()
      const { processor } = driver
      const at = await connect(driver)
      const customer = await customerAt(driver, at)
      expect(await processor.readCard(at, customer)).toBeNull()
      const opened = await processor.openCheckout(
        at,
        topUp(customer, { fee: cents(100) }),
        newKey(),
      )
      expect(opened.expiresAt.getTime()).toBeGreaterThan(Date.now())
      expect(await processor.readCheckout(at, opened.id)).toMatchObject({ state: 'open' })
      await driver.payCheckout(at, opened.id, 'good')
      const checkout = await processor.readCheckout(at, opened.id)
      expect(checkout).toMatchObject<Partial<Checkout>>({
        reference: 'checkout-1',
        customer,
        mode: 'payment',
        state: 'paid',
        amount: cents(2_000),
        currency: 'usd',
      })
      expect(await processor.readPayment(at, checkout?.payment ?? '')).toMatchObject({
        state: 'succeeded',
        amount: cents(2_000),
        refunded: 0n,
        disputed: 0n,
        failure: null,
        customer,
      })
      expect((await processor.readCard(at, customer))?.last4).toMatch(/^\d{4}$/)
    })

    it('keeps a card without a payment', async () => {
      const driver = await open()
      const { customer, card } = await payerAt(driver, test)
      expect(card.brand).toBe(card.brand.toLowerCase())
      expect(card.expiresYear).toBeGreaterThan(2_000)
      expect(await driver.processor.readCard(test, customer)).toEqual(card)
    })

    it('stays open after a declined card', async () => {
      const driver = await open()
      const customer = await customerAt(driver, test)
      const { id } = await driver.processor.openCheckout(test, topUp(customer), newKey())
      await driver.payCheckout(test, id, 'declined')
      expect(await driver.processor.readCheckout(test, id)).toMatchObject({ state: 'open' })
      await driver.payCheckout(test, id, 'good')
      expect(await driver.processor.readCheckout(test, id)).toMatchObject({ state: 'paid' })
    })

    it('cannot be paid after it expired, and is not harmed by a second end', async () => {
      const driver = await open()
      const customer = await customerAt(driver, test)
      const { id } = await driver.processor.openCheckout(test, topUp(customer), newKey())
      await driver.processor.expireCheckout(test, id)
      await driver.processor.expireCheckout(test, id)
      expect(await driver.processor.readCheckout(test, id)).toMatchObject({ state: 'expired' })
      await expect(driver.payCheckout(test, id, 'good')).rejects.toThrow(/expired/)
    })

    it('leaves a paid checkout unchanged by a request to end it', async () => {
      const driver = await open()
      const customer = await customerAt(driver, test)
      const { id } = await driver.processor.openCheckout(test, topUp(customer), newKey())
      await driver.payCheckout(test, id, 'good')
      await driver.processor.expireCheckout(test, id)
      expect(await driver.processor.readCheckout(test, id)).toMatchObject({ state: 'paid' })
    })

    it('returns null for an unknown checkout', async () => {
      const { processor } = await open()
      expect(await processor.readCheckout(live, 'cs_live_none')).toBeNull()
    })

    it('opens one checkout per key, and refuses the key with another amount', async () => {
      const driver = await open()
      const customer = await customerAt(driver, live)
      const key = newKey()
      const { id } = await driver.processor.openCheckout(live, topUp(customer), key)
      expect((await driver.processor.openCheckout(live, topUp(customer), key)).id).toBe(id)
      const other = topUp(customer, { amount: cents(3_000) })
      expect(await reasonOf(driver.processor.openCheckout(live, other, key))).toBe(
        'PROCESSOR_REFUSED',
      )
    })
  })

  describe(`${name}: payments`, () => {
    it('charges a card once per key', async () => {
      const driver = await open()
      const at = await connect(driver)
      const { customer, card } = await payerAt(driver, at)
      const key = newKey()
      const request = collection(customer, card.id, { fee: cents(50) })
      const payment = await driver.processor.pay(at, request, key)
      expect(payment).toMatchObject({ state: 'succeeded', amount: cents(500), currency: 'usd' })
      expect(payment).toMatchObject({ reference: 'collection-1', customer, failure: null })
      expect(await driver.processor.pay(at, request, key)).toEqual(payment)
      expect(await driver.processor.readPayment(at, payment.id)).toEqual(payment)
    })

    it('reports a decline as a result, also for a repeated key', async () => {
      const driver = await open()
      const { customer, card } = await payerAt(driver, live, 'declined')
      const key = newKey()
      const payment = await driver.processor.pay(live, collection(customer, card.id), key)
      expect(payment).toMatchObject({ state: 'failed', failure: 'card_declined', refunded: 0n })
      const again = await driver.processor.pay(live, collection(customer, card.id), key)
      expect(again).toEqual(payment)
      expect(await driver.processor.readPayment(live, payment.id)).toMatchObject({
        state: 'failed',
        failure: 'card_declined',
      })
    })

    it('reports that the bank wants the user', async () => {
      const driver = await open()
      const { customer, card } = await payerAt(driver, live, 'confirmation')
      const payment = await driver.processor.pay(live, collection(customer, card.id), newKey())
      expect(payment).toMatchObject({
        state: 'action_required',
        failure: 'authentication_required',
      })
    })

    it("refuses another customer's card and an unknown one", async () => {
      const driver = await open()
      const { card } = await payerAt(driver, live)
      const other = await customerAt(driver, live)
      for (const id of [card.id, 'pm_none'])
        expect(await reasonOf(driver.processor.pay(live, collection(other, id), newKey()))).toBe(
          'PROCESSOR_REFUSED',
        )
    })

    it('finds a payment by its reference, and only there', async () => {
      const driver = await open()
      const since = new Date(Date.now() - 60_000)
      const { customer, card } = await payerAt(driver, live)
      const lost = { customer, reference: 'collection-7', since }
      expect(await driver.processor.findPayment(live, lost)).toBeNull()
      const request = collection(customer, card.id, { reference: 'collection-7' })
      const payment = await driver.processor.pay(live, request, newKey())
      expect(await driver.processor.findPayment(live, lost)).toEqual(payment)
      const other = await customerAt(driver, live)
      expect(await driver.processor.findPayment(live, { ...lost, customer: other })).toBeNull()
    })

    it('takes nothing more of a customer that was deleted, and reports it', async () => {
      const driver = await open()
      const { processor } = driver
      const at = await connect(driver)
      const { customer, card } = await payerAt(driver, at)
      const { id } = await processor.pay(at, collection(customer, card.id), newKey())
      expect(await processor.hasCustomer(at, customer)).toBe(true)
      expect(await processor.hasCustomer(live, customer)).toBe(false)
      await driver.deleteCustomer(at, customer)
      expect(await processor.hasCustomer(at, customer)).toBe(false)
      expect(await processor.readCard(at, customer)).toBeNull()
      for (const refused of [
        processor.pay(at, collection(customer, card.id), newKey()),
        processor.openCheckout(at, topUp(customer), newKey()),
      ])
        expect(await reasonOf(refused)).toBe('PROCESSOR_REFUSED')
      expect(await processor.readPayment(at, id)).toMatchObject({ state: 'succeeded', customer })
    })

    it('keeps accounts and planes apart', async () => {
      const driver = await open()
      const at = await connect(driver)
      const { customer, card } = await payerAt(driver, at)
      const { id } = await driver.processor.pay(at, collection(customer, card.id), newKey())
      for (const elsewhere of [live, test, await connect(driver), await connect(driver, 'test')]) {
        expect(await driver.processor.readPayment(elsewhere, id)).toBeNull()
        expect(await driver.processor.readCard(elsewhere, customer)).toBeNull()
        expect(
          await reasonOf(driver.processor.pay(elsewhere, collection(customer, card.id), newKey())),
        ).toBe('PROCESSOR_REFUSED')
      }
    })
  })

  describe(`${name}: refunds`, () => {
    it('returns money once per key and lists what was returned', async () => {
      const driver = await open()
      const { processor } = driver
      const { customer, card } = await payerAt(driver, live)
      const { id: payment } = await processor.pay(live, collection(customer, card.id), newKey())
      const key = newKey()
      const request = { payment, amount: cents(200), reference: 'refund-1' }
      const refund = await processor.refund(live, request, key)
      expect(refund).toMatchObject({ payment, amount: cents(200), reference: 'refund-1' })
      expect(await processor.refund(live, request, key)).toEqual(refund)
      const second = { payment, amount: cents(300), reference: 'refund-2' }
      await processor.refund(live, second, newKey())
      expect(await processor.readPayment(live, payment)).toMatchObject({ refunded: cents(500) })
      const listed = await processor.listRefunds(live, payment)
      expect(listed.map(({ reference }) => reference)).toEqual(['refund-2', 'refund-1'])
    })

    it('refuses more than is left', async () => {
      const driver = await open()
      const { processor } = driver
      const { customer, card } = await payerAt(driver, live)
      const { id: payment } = await processor.pay(live, collection(customer, card.id), newKey())
      const request = { payment, amount: cents(501), reference: 'refund-1' }
      expect(await reasonOf(processor.refund(live, request, newKey()))).toBe('PROCESSOR_REFUSED')
      expect(await processor.listRefunds(live, payment)).toEqual([])
    })
  })

  describe(`${name}: balance and payouts`, () => {
    it('hold payments less the platform fee, until they are paid out', async () => {
      const driver = await open()
      const { processor } = driver
      const account = await connect(driver)
      const { customer, card } = await payerAt(driver, account)
      await processor.pay(account, collection(customer, card.id, { fee: cents(120) }), newKey())
      const [balance, ...others] = await processor.readBalance(account)
      expect(others).toEqual([])
      expect(balance).toMatchObject({ currency: 'usd', decimals: 2 })
      const held = (balance?.available ?? 0n) + (balance?.pending ?? 0n)
      // The processor may withhold its own fee, too.
      expect(held).toBeLessThanOrEqual(380n)
      expect(held).toBeGreaterThan(300n)
      const page = await processor.listPayouts(account, { limit: 50, after: null })
      expect(page).toEqual({ payouts: [], hasMore: false })
    })

    it('know no payout of another id', async () => {
      const driver = await open()
      const account = await connect(driver)
      const page = { limit: 50, after: 'po_none' }
      expect(await driver.processor.listPayouts(account, page)).toBeNull()
    })
  })

  describe(`${name}: movements`, () => {
    it("gives a payment's platform fee the reference under which the platform gets it", async () => {
      const driver = await open()
      const account = await connect(driver)
      const { customer, card } = await payerAt(driver, account)
      const request = collection(customer, card.id, { fee: cents(120) })
      const { id } = await driver.processor.pay(account, request, newKey())
      const range = { from: new Date(Date.now() - 60_000), to: new Date(Date.now() + 60_000) }
      const list = async (at: ProcessorAccount) =>
        (await driver.processor.listMovements(at, { ...range, after: null })).movements
      const [payment] = await list(account)
      expect(payment).toMatchObject({ kind: 'payment', payment: id, platformFee: 120n })
      expect(payment?.feeReference).toBeTruthy()
      const [earning] = await list({ plane: account.plane, account: null })
      const { feeReference } = payment ?? {}
      expect(earning).toMatchObject({ kind: 'fee', amount: 120n, payment: null, feeReference })
    })

    it("returns the fee of a refund's part when asked to, under the same reference", async () => {
      const driver = await open()
      const { processor } = driver
      const account = await connect(driver)
      const { customer, card } = await payerAt(driver, account)
      const request = collection(customer, card.id, { fee: cents(120) })
      const { id: payment } = await processor.pay(account, request, newKey())
      const kept = { payment, amount: cents(100), reference: 'refund-1' }
      await processor.refund(account, kept, newKey())
      const returned = { payment, amount: cents(250), reference: 'refund-2', returnsFee: true }
      await processor.refund(account, returned, newKey())
      const range = { from: new Date(Date.now() - 60_000), to: new Date(Date.now() + 60_000) }
      const list = async (at: ProcessorAccount) =>
        (await processor.listMovements(at, { ...range, after: null })).movements
      const paid = (await list(account)).find(({ kind }) => kind === 'payment')
      const feeReference = paid?.feeReference ?? ''
      expect(await list({ plane: account.plane, account: null })).toMatchObject([
        { kind: 'fee', amount: -60n, payment: null, feeReference },
        { kind: 'fee', amount: 120n, payment: null, feeReference },
      ])
      expect((await list(account)).map(({ platformFee }) => platformFee)).toEqual([0n, 0n, 120n])
    })

    it('lists every movement once, newest first, within the range', async () => {
      const driver = await open()
      const { processor } = driver
      const from = new Date(Date.now() - 60_000)
      const to = new Date(Date.now() + 60_000)
      const account = await connect(driver)
      const { customer, card } = await payerAt(driver, account)
      const payments: string[] = []
      for (let at = 0; at < 105; at++) {
        const request = collection(customer, card.id, { reference: `collection-${at}` })
        payments.push((await processor.pay(account, request, newKey())).id)
      }
      const [refunded = ''] = payments
      const returned = { payment: refunded, amount: cents(100), reference: 'refund-1' }
      await processor.refund(account, returned, newKey())
      const movements = []
      let after: string | null = null
      do {
        const page: Awaited<ReturnType<PaymentProcessor['listMovements']>> =
          await processor.listMovements(account, { from, to, after })
        expect(page.movements.length).toBeLessThanOrEqual(100)
        movements.push(...page.movements)
        after = page.after
      } while (after !== null)
      expect(movements[0]).toMatchObject({ kind: 'refund', amount: -100n, currency: 'usd' })
      const taken = movements.filter(({ kind }) => kind === 'payment')
      expect(taken.map(({ payment }) => payment)).toEqual(payments.toReversed())
      expect(taken[0]).toMatchObject({ reference: 'collection-104', platformFee: 0n })
      expect(movements[0]).toMatchObject({ payment: refunded, reference: null })
      expect(taken.every(({ amount }) => amount === 500n)).toBe(true)
      const later = { from: to, to: new Date(to.getTime() + 1_000), after: null }
      expect(await processor.listMovements(account, later)).toEqual({ movements: [], after: null })
    })
  })
}
