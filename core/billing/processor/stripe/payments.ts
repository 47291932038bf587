import type { Stripe } from 'stripe'
import {
  type NewPayment,
  type Payment,
  type PaymentProcessor,
  type Refund,
  type UsdCents,
  usdCents,
} from '../port.ts'
import { type StripeClient, expectObject, readId, readPages } from './client.ts'
import { errorCode, isMissing, unclearAnswer } from './errors.ts'

/** How far this host's clock may be ahead of Stripe's without hiding a payment. */
const clockSkewSeconds = 300

type Payments = Pick<
  PaymentProcessor,
  'pay' | 'readPayment' | 'findPayment' | 'refund' | 'listRefunds'
>

export const createPayments = ({ request }: StripeClient): Payments => ({
  pay: (at, payment, key) =>
    request<Payment>(
      at,
      async (stripe, options) =>
        parsePayment(await stripe.paymentIntents.create(intentParams(payment), options)),
      { key, recover: declinedPayment },
    ),

  readPayment: (at, id) =>
    request<Payment | null>(
      at,
      async (stripe, options) => {
        const expand = ['latest_charge']
        const intent = await stripe.paymentIntents.retrieve(id, { expand }, options)
        return withDisputes(intent, stripe, options)
      },
      { recover: (error) => (isMissing(error) ? null : undefined) },
    ),

  findPayment: (at, { customer, reference, since }) =>
    request(at, async (stripe, options) => {
      const created = { gte: Math.floor(since.getTime() / 1000) - clockSkewSeconds }
      const expand = ['data.latest_charge']
      const intents = await readPages((page) =>
        stripe.paymentIntents.list({ customer, created, expand, ...page }, options),
      )
      const intent = intents.find(({ metadata }) => metadata['reference'] === reference)
      return intent === undefined ? null : withDisputes(intent, stripe, options)
    }),

  refund: (at, { payment, amount, reference, returnsFee = false }, key) =>
    request(
      at,
      async (stripe, options) => {
        const params = {
          payment_intent: payment,
          amount: Number(amount),
          metadata: { reference },
          ...(returnsFee ? { refund_application_fee: true } : {}),
        }
        return parseRefund(await stripe.refunds.create(params, options))
      },
      { key },
    ),

  listRefunds: (at, payment) =>
    request(at, async (stripe, options) => {
      const refunds = await readPages((page) =>
        stripe.refunds.list({ payment_intent: payment, ...page }, options),
      )
      return refunds.map(parseRefund)
    }),
})

function intentParams(payment: NewPayment): Stripe.PaymentIntentCreateParams {
  const { customer, card, amount, fee, description, reference } = payment
  return {
    customer,
    payment_method: card,
    allowed_payment_method_types: ['card'],
    amount: Number(amount),
    currency: 'usd',
    description,
    metadata: { reference },
    off_session: true,
    confirm: true,
    expand: ['latest_charge'],
    ...(fee > 0n ? { application_fee_amount: Number(fee) } : {}),
  }
}

/** Stripe reports a decline as an error that holds the payment. */
function declinedPayment(error: Stripe.errors.StripeError): Payment | undefined {
  const intent = error.payment_intent
  if (error.statusCode !== 402 || intent === undefined) return undefined
  const { state } = parsePayment(intent)
  const failure = errorCode(error)
  return { ...parsePayment(intent), state: failedState(state, failure), failure }
}

async function withDisputes(
  intent: Stripe.PaymentIntent,
  stripe: Stripe,
  options: Stripe.RequestOptions,
): Promise<Payment> {
  const payment = parsePayment(intent)
  const charge = intent.latest_charge
  if (charge === null || typeof charge === 'string' || !charge.disputed) return payment
  const disputes = await readPages((page) =>
    stripe.disputes.list({ payment_intent: intent.id, ...page }, options),
  )
  return { ...payment, disputed: sumOf(disputes.filter(isWithdrawn)) }
}

const notWithdrawn = /^(warning_|won$|prevented$)/

/** Inquiries take no money; a won dispute has returned it. */
const isWithdrawn = ({ status }: Stripe.Dispute): boolean => !notWithdrawn.test(status)

const sumOf = (disputes: readonly Stripe.Dispute[]): UsdCents =>
  usdCents(disputes.reduce((sum, { amount }) => sum + BigInt(amount), 0n))

function parsePayment(intent: Stripe.PaymentIntent): Payment {
  const { id, metadata, customer, amount, currency } = expectObject(intent, 'payment_intent')
  const failure = intent.last_payment_error ? errorCode(intent.last_payment_error) : null
  const state = failedState(stateOf(intent.status), failure)
  return {
    id,
    reference: metadata['reference'] ?? null,
    customer: readId(customer),
    state,
    amount: usdCents(BigInt(amount)),
    currency,
    refunded: refundedOf(intent),
    failure: state === 'succeeded' ? null : failure,
    disputed: usdCents(0n),
  }
}

function stateOf(status: Stripe.PaymentIntent.Status): Payment['state'] {
  switch (status) {
    case 'succeeded':
      return 'succeeded'
    case 'canceled':
      return 'canceled'
    case 'requires_action':
      return 'action_required'
    case 'requires_payment_method':
      return 'failed'
    default:
      return 'processing'
  }
}

const failedState = (state: Payment['state'], failure: string | null): Payment['state'] =>
  state === 'failed' && failure === 'authentication_required' ? 'action_required' : state

function refundedOf({ status, latest_charge: charge }: Stripe.PaymentIntent): UsdCents {
  if (charge === null || status !== 'succeeded') return usdCents(0n)
  if (typeof charge === 'string') throw unclearAnswer(new Error('the charge is not expanded'))
  return usdCents(BigInt(charge.amount_refunded))
}

const refundStates: Readonly<Record<string, Refund['state']>> = {
  succeeded: 'succeeded',
  pending: 'pending',
  requires_action: 'pending',
}

function parseRefund(refund: Stripe.Refund): Refund {
  const { id, payment_intent, metadata, amount, status } = expectObject(refund, 'refund')
  const payment = readId(payment_intent)
  if (payment === null) throw unclearAnswer(new Error('a refund without payment'))
  return {
    id,
    payment,
    reference: metadata?.['reference'] ?? null,
    amount: usdCents(BigInt(amount)),
    state: refundStates[status ?? ''] ?? 'failed',
  }
}
