import {
  type Payment,
  type PaymentProcessor,
  type ProcessorAccount,
  type Refund,
  usdCents,
} from '../port.ts'
import { chargeCard, isExpired, testCards } from './cards.ts'
import * as store from './store.ts'
import type { Contents, SimulatedObject } from './store.ts'
import {
  type SimulatedDeps,
  type Write,
  type Writes,
  findIn,
  read,
  refused,
  requireAccount,
  requireCustomer,
  requireIn,
} from './writes.ts'

const amountMin = 50n
const amountMax = 99_999_999n
const pageMax = 100
const refundsMax = 1_000

/** Throws PROCESSOR_REFUSED for an amount that the processor does not take. */
export function requireAmount({ amount, fee }: { amount: bigint; fee: bigint }): void {
  if (amount < amountMin) throw refused('the amount is below the minimum of 0.50 USD')
  if (amount > amountMax) throw refused('the amount is above the maximum of 999,999.99 USD')
  if (fee < 0n || fee > amount) throw refused('the fee must be between zero and the amount')
}

type PaymentCalls = Pick<
  PaymentProcessor,
  | 'createCustomer'
  | 'readCard'
  | 'hasCustomer'
  | 'pay'
  | 'readPayment'
  | 'findPayment'
  | 'refund'
  | 'listRefunds'
  | 'listMovements'
>

/** Customers, payments, refunds and movements of the simulated processor: the calls of the port. */
export function createPayments({ pool, now }: SimulatedDeps, { createOnce }: Writes): PaymentCalls {
  return {
    createCustomer: async (at, customer, key) => {
      const request = { at, key, request: customer }
      const { id } = await createOnce('customer', request, async ({ db }) => {
        await requireAccount(db, at, { charges: false })
        return { ...customer, card: null }
      })
      return { id }
    },

    readCard: async (at, id) => {
      const customer = await read(findIn(pool, 'customer', { at, id }))
      if (!customer?.data.card) return null
      const card = await read(requireIn(pool, 'card', { at, id: customer.data.card }))
      const { expiresMonth, expiresYear } = card.data
      const { brand, last4 } = testCards[card.data.card]
      if (isExpired(card.data, now())) return null
      return { id: card.id, brand, last4, expiresMonth, expiresYear }
    },

    hasCustomer: async (at, id) => {
      const customer = await read(findIn(pool, 'customer', { at, id }))
      return customer !== null && customer.data.isDeleted !== true
    },

    pay: async (at, { amount, fee, ...payment }, key) => {
      requireAmount({ amount, fee })
      const request = { amount, fee, ...payment }
      const paid = await createOnce('payment', { at, key, request }, async (write, id) => {
        await requireAccount(write.db, at, { charges: true })
        await requireCustomer(write.db, { at, id: payment.customer })
        const card = await requireIn(write.db, 'card', { at, id: payment.card })
        if (card.data.customer !== payment.customer) throw refused('no such card of this customer')
        const charge = chargeCard(card.data, now())
        const data = { ...payment, ...charge, amount: `${amount}`, fee: `${fee}`, refunded: '0' }
        await recordPayment(write, { id, at, data }, now())
        return data
      })
      return toPayment(paid)
    },

    readPayment: async (at, id) => {
      const payment = await read(findIn(pool, 'payment', { at, id }))
      return payment && toPayment(payment)
    },

    findPayment: async (at, lost) => {
      const payment = await read(store.findPaymentBy(pool, at, lost))
      return payment && toPayment(payment)
    },

    refund: async (at, refund, key) => {
      const { amount, payment, reference, returnsFee = false } = refund
      const request = { amount, payment, reference, ...(returnsFee && { returnsFee }) }
      const refunded = await createOnce('refund', { at, key, request }, async (write, id) => {
        await takeBack(write, { id, at, payment, amount, returnsFee }, now())
        return { payment, amount: `${amount}`, reference }
      })
      return toRefund(refunded)
    },

    listRefunds: async (at, id) => {
      await read(requireIn(pool, 'payment', { at, id }))
      return (await read(store.listRefunds(pool, id, refundsMax))).map(toRefund)
    },

    listMovements: async (at, range) => {
      const page = { ...range, limit: pageMax }
      const movements = await read(store.listMovements(pool, at, page))
      const last = movements.length === pageMax ? movements.at(-1) : undefined
      return { movements, after: last?.id ?? null }
    },
  }
}

/** What people do with customers on the processor's own pages. */
export const createCustomerPage = ({ write }: Writes) => ({
  /** Deletes a customer. Its cards can be charged no more; its payments stay. */
  remove: (at: ProcessorAccount, id: string): Promise<void> =>
    write(async ({ db, emit }) => {
      await requireCustomer(db, { at, id })
      const customer = await store.lockObject(db, 'customer', id)
      if (customer === null) throw refused('no such customer in this account')
      const data = { ...customer.data, card: null, isDeleted: true }
      await store.updateObject<'customer'>(db, { id, data })
      await emit({ at, subject: 'customer', type: 'customer.deleted', objectId: id })
    }),
})

/** Books the movements of a payment, if it succeeded, and emits its event. */
export async function recordPayment(
  { db, emit }: Write,
  { id, at, data }: SimulatedObject<'payment'>,
  createdAt: Date,
): Promise<void> {
  const isPaid = data.state === 'succeeded'
  const type = isPaid ? 'payment.succeeded' : `payment.${data.state}`
  await emit({ at, subject: 'payment', type, objectId: id })
  if (!isPaid) return
  const [amount, fee] = [BigInt(data.amount), BigInt(data.fee)]
  const movement = { source: id, createdAt }
  await store.insertMovement(db, { ...movement, at, kind: 'payment', amount, fee })
  if (fee === 0n || at.account === null) return
  const platform = { ...at, account: null }
  await store.insertMovement(db, { ...movement, at: platform, kind: 'fee', amount: fee, fee: 0n })
}

interface NewRefund {
  readonly id: string
  readonly at: ProcessorAccount
  readonly payment: string
  readonly amount: bigint
  readonly returnsFee: boolean
}

async function takeBack({ db, emit }: Write, refund: NewRefund, createdAt: Date): Promise<void> {
  const { at, amount } = refund
  await requireIn(db, 'payment', { at, id: refund.payment })
  const payment = await store.lockObject(db, 'payment', refund.payment)
  if (payment?.data.state !== 'succeeded') throw refused('this payment did not succeed')
  const left = BigInt(payment.data.amount) - BigInt(payment.data.refunded)
  if (amount <= 0n || amount > left)
    throw refused(`of this payment at most ${left} cents can be refunded`)
  const refunded = `${BigInt(payment.data.refunded) + amount}`
  await store.updateObject<'payment'>(db, { id: payment.id, data: { ...payment.data, refunded } })
  const source = refund.id
  const movement = { at, kind: 'refund', amount: -amount, fee: 0n, source, createdAt } as const
  await store.insertMovement(db, movement)
  if (refund.returnsFee) await returnFee(db, { ...movement, ...payment })
  const type = 'refund.succeeded'
  await emit({ at, subject: 'refund', type, objectId: source, payment: payment.id })
}

/** Moves the fee of the refunded part from the platform's own account. */
async function returnFee(
  db: Write['db'],
  {
    id,
    at,
    data,
    amount,
    createdAt,
  }: SimulatedObject<'payment'> & { readonly amount: bigint; readonly createdAt: Date },
): Promise<void> {
  const fee = (BigInt(data.fee) * amount) / BigInt(data.amount)
  if (fee === 0n || at.account === null) return
  const platform = { ...at, account: null }
  const movement = {
    at: platform,
    kind: 'fee',
    amount: fee,
    fee: 0n,
    source: id,
    createdAt,
  } as const
  await store.insertMovement(db, movement)
}

const toRefund = ({ id, data }: { id: string; data: Contents['refund'] }): Refund => ({
  id,
  payment: data.payment,
  reference: data.reference,
  amount: usdCents(BigInt(data.amount)),
  state: 'succeeded',
})

const toPayment = ({ id, data }: { id: string; data: Contents['payment'] }): Payment => ({
  id,
  reference: data.reference,
  customer: data.customer,
  state: data.state,
  amount: usdCents(BigInt(data.amount)),
  currency: 'usd',
  refunded: usdCents(BigInt(data.refunded)),
  failure: data.failure,
  disputed: usdCents(0n),
})
