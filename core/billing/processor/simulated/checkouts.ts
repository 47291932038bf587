import { DomainError } from '../../../../proto/errors.ts'
import { later } from '../../../shared/clocks/clocks.ts'
import { type Checkout, type PaymentProcessor, usdCents } from '../port.ts'
import { type TestCard, computeExpiry } from './cards.ts'
import { recordPayment, requireAmount } from './payments.ts'
import * as store from './store.ts'
import type { SimulatedObject } from './store.ts'
import {
  type SimulatedDeps,
  type Write,
  type Writes,
  findIn,
  newId,
  read,
  refused,
  requireAccount,
  requireCustomer,
  requireIn,
} from './writes.ts'

const openMs = 24 * 3_600_000

type CheckoutCalls = Pick<PaymentProcessor, 'openCheckout' | 'readCheckout' | 'expireCheckout'>

/** Checkouts of the simulated processor: the calls of the port. */
export function createCheckouts(
  { pool, now, publicUrl }: SimulatedDeps,
  { createOnce, write }: Writes,
): CheckoutCalls {
  return {
    openCheckout: async (at, checkout, key) => {
      const { amount, fee, mode } = checkout
      if ((mode === 'payment') !== (amount !== null))
        throw refused('a checkout has an amount exactly in mode payment')
      if (amount !== null) requireAmount({ amount, fee })
      const opened = await createOnce(
        'checkout',
        { at, key, request: checkout },
        async ({ db }) => {
          await requireAccount(db, at, { charges: true })
          await requireCustomer(db, { at, id: checkout.customer })
          return {
            ...checkout,
            amount: amount === null ? null : `${amount}`,
            fee: `${fee}`,
            expiresAt: later(now(), openMs).toISOString(),
            state: 'open' as const,
            isConfirming: false,
            payment: null,
          }
        },
      )
      const { expiresAt } = opened.data
      return {
        id: opened.id,
        url: `${publicUrl}/pay/${opened.id}`,
        expiresAt: new Date(expiresAt),
      }
    },

    readCheckout: async (at, id) => {
      const checkout = await read(findIn(pool, 'checkout', { at, id }))
      return checkout && toCheckout(checkout, now())
    },

    expireCheckout: (at, id) =>
      write(async ({ db, emit }) => {
        await requireIn(db, 'checkout', { at, id })
        const checkout = await store.lockObject(db, 'checkout', id)
        if (checkout === null || stateOf(checkout, now()) !== 'open') return
        await store.updateObject(db, { id, data: { ...checkout.data, state: 'expired' as const } })
        await emit({ at, subject: 'checkout', type: 'checkout.expired', objectId: id })
      }),
  }
}

const stateOf = ({ data }: SimulatedObject<'checkout'>, at: Date): Checkout['state'] =>
  data.state === 'open' && new Date(data.expiresAt) <= at ? 'expired' : data.state

const toCheckout = (checkout: SimulatedObject<'checkout'>, at: Date): Checkout => {
  const { id, data } = checkout
  return {
    id,
    reference: data.reference,
    customer: data.customer,
    mode: data.mode,
    state: stateOf(checkout, at),
    amount: data.amount === null ? null : usdCents(BigInt(data.amount)),
    currency: data.amount === null ? null : 'usd',
    payment: data.payment,
  }
}

/** What the user sees of a checkout on the pay page. */
export interface PayPage extends Checkout {
  readonly description: string
  readonly plane: 'live' | 'test'
  readonly isConfirming: boolean
  readonly successUrl: string
  readonly cancelUrl: string
}

export interface PayResult {
  /** `open`: the user must do something else, such as choose another card. */
  readonly state: Checkout['state']
  /** The reason why the card was declined; null otherwise. */
  readonly failure: 'card_declined' | null
}

/** The pay page of a checkout, for the holder of its id. */
export function createPayPage({ pool, now }: SimulatedDeps, { write }: Writes) {
  /** Throws NOT_FOUND for an unknown checkout. */
  async function find(id: string): Promise<PayPage> {
    const checkout = await read(store.findObject(pool, 'checkout', id))
    if (checkout === null) throw new DomainError('NOT_FOUND', 'there is no such checkout')
    const { description, isConfirming, successUrl, cancelUrl } = checkout.data
    const { plane } = checkout.at
    const checked = toCheckout(checkout, now())
    return { ...checked, description, plane, isConfirming, successUrl, cancelUrl }
  }

  /**
   * Pays with a card, and keeps it as the customer's default card. Does nothing if the checkout has
   * ended.
   */
  async function pay(id: string, card: TestCard): Promise<PayResult> {
    return write(async (current) => {
      const checkout = await lock(current, id)
      const state = stateOf(checkout, now())
      if (state !== 'open') return { state, failure: null }
      if (card === 'declined') return { state, failure: 'card_declined' }
      if (card !== 'confirmation') return complete(current, { checkout, card, at: now() })
      const data = { ...checkout.data, isConfirming: true }
      await store.updateObject(current.db, { id, data })
      return { state, failure: null }
    })
  }

  /** Confirms the card that needs it, or returns to the choice of a card. */
  async function confirm(id: string, isConfirmed: boolean): Promise<PayResult> {
    return write(async (current) => {
      const checkout = await lock(current, id)
      const state = stateOf(checkout, now())
      if (state !== 'open' || !checkout.data.isConfirming) return { state, failure: null }
      if (isConfirmed) return complete(current, { checkout, card: 'confirmation', at: now() })
      await store.updateObject(current.db, { id, data: { ...checkout.data, isConfirming: false } })
      return { state, failure: null }
    })
  }

  return { find, pay, confirm }
}

async function lock({ db }: Write, id: string): Promise<SimulatedObject<'checkout'>> {
  const checkout = await store.lockObject(db, 'checkout', id)
  if (checkout === null) throw new DomainError('NOT_FOUND', 'there is no such checkout')
  return checkout
}

interface Completion {
  readonly checkout: SimulatedObject<'checkout'>
  readonly card: TestCard
  readonly at: Date
}

/** Keeps the card, makes the payment and ends the locked checkout. */
async function complete(
  write: Write,
  { checkout: { id, at, data }, card, at: paidAt }: Completion,
): Promise<PayResult> {
  const { db, emit } = write
  await requireAccount(db, at, { charges: true })
  await requireCustomer(db, { at, id: data.customer })
  const { customer, amount, reference, fee, description } = data
  const { month: expiresMonth, year: expiresYear } = computeExpiry(card, paidAt)
  const cardId = newId('card')
  const kept = { customer, card, expiresMonth, expiresYear }
  await store.insertObject(db, 'card', { id: cardId, at, data: kept, createdAt: paidAt })
  const payer = await store.lockObject(db, 'customer', customer)
  if (payer === null) throw refused('no such customer')
  await store.updateObject(db, { id: customer, data: { ...payer.data, card: cardId } })
  const payment = amount === null ? null : newId('payment')
  if (payment !== null && amount !== null) {
    const charge = { state: 'succeeded', failure: null, refunded: '0' } as const
    const payload = { reference, customer, card: cardId, amount, fee, description, ...charge }
    const object = { id: payment, at, data: payload }
    await store.insertObject(db, 'payment', { ...object, createdAt: paidAt })
    await recordPayment(write, object, paidAt)
  }
  const paid = { ...data, state: 'paid' as const, isConfirming: false, payment }
  await store.updateObject(db, { id, data: paid })
  await emit({ at, subject: 'checkout', type: 'checkout.completed', objectId: id })
  return { state: 'paid', failure: null }
}
