import type { Stripe } from 'stripe'
import {
  type Checkout,
  type NewCheckout,
  type OpenCheckout,
  type PaymentProcessor,
  type ProcessorAccount,
  usdCents,
} from '../port.ts'
import { type StripeClient, expectObject, readId } from './client.ts'
import { isCustomer, keepDefaultCard } from './customers.ts'
import { isMissing, unclearAnswer } from './errors.ts'

type Checkouts = Pick<PaymentProcessor, 'openCheckout' | 'readCheckout' | 'expireCheckout'>

const expand = ['customer', 'payment_intent', 'setup_intent']

export function createCheckouts(client: StripeClient): Checkouts {
  const { request } = client

  const openCheckout: Checkouts['openCheckout'] = (at, checkout, key) =>
    request<OpenCheckout>(
      at,
      async (stripe, options) => {
        const params = sessionParams(checkout)
        const session = expectSession(await stripe.checkout.sessions.create(params, options))
        if (typeof session.url !== 'string') throw unclearAnswer(new Error('no pay page'))
        return { id: session.id, url: session.url, expiresAt: new Date(session.expires_at * 1000) }
      },
      { key },
    )

  const readSession = (at: ProcessorAccount, id: string): Promise<Stripe.Checkout.Session | null> =>
    request<Stripe.Checkout.Session | null>(
      at,
      async (stripe, options) =>
        expectSession(await stripe.checkout.sessions.retrieve(id, { expand }, options)),
      { recover: (error) => (isMissing(error) ? null : undefined) },
    )

  const readCheckout: Checkouts['readCheckout'] = async (at, id) => {
    const session = await readSession(at, id)
    if (session === null) return null
    const checkout = parseCheckout(session)
    const { customer, created: since } = session
    const card = readId(intentOf(session)?.payment_method)
    if (checkout.state === 'paid' && card !== null && isCustomer(customer))
      await keepDefaultCard(client, at, { customer, card, since })
    return checkout
  }

  const expireCheckout: Checkouts['expireCheckout'] = async (at, id) => {
    const isExpired = await request(
      at,
      async (stripe, options) => {
        expectSession(await stripe.checkout.sessions.expire(id, {}, options))
        return true
      },
      // Stripe refuses to expire a session that has ended, with no code of its own.
      {
        recover: ({ statusCode }) => (statusCode === 400 || statusCode === 404 ? false : undefined),
      },
    )
    if (isExpired) return
    const session = await readSession(at, id)
    if (session?.status === 'open') throw unclearAnswer(new Error('the session is still open'))
  }

  return { openCheckout, readCheckout, expireCheckout }
}

/** Card payments only, in US dollars: other methods cannot be charged later without the user. */
function sessionParams(checkout: NewCheckout): Stripe.Checkout.SessionCreateParams {
  const { customer, description, reference, successUrl, cancelUrl, amount, fee } = checkout
  const metadata = { reference }
  const common = {
    customer,
    client_reference_id: reference,
    metadata,
    success_url: successUrl,
    cancel_url: cancelUrl,
    allowed_payment_method_types: ['card'],
  }
  if (checkout.mode === 'card' || amount === null)
    return {
      ...common,
      mode: 'setup',
      currency: 'usd',
      setup_intent_data: { description, metadata },
    }
  return {
    ...common,
    mode: 'payment',
    line_items: [
      {
        quantity: 1,
        price_data: {
          currency: 'usd',
          unit_amount: Number(amount),
          product_data: { name: description },
        },
      },
    ],
    // Otherwise Stripe may show and take the price in the payer's own currency.
    adaptive_pricing: { enabled: false },
    payment_intent_data: {
      setup_future_usage: 'off_session',
      description,
      metadata,
      ...(fee > 0n ? { application_fee_amount: Number(fee) } : {}),
    },
  }
}

const expectSession = (session: Stripe.Checkout.Session): Stripe.Checkout.Session =>
  expectObject(session, 'checkout.session')

type Intent = Stripe.PaymentIntent | Stripe.SetupIntent

/** The expanded intent of the session; null while there is none. */
function intentOf({ payment_intent, setup_intent }: Stripe.Checkout.Session): Intent | null {
  const intent = payment_intent ?? setup_intent
  if (typeof intent === 'string') throw unclearAnswer(new Error('the intent is not expanded'))
  return intent
}

function parseCheckout(session: Stripe.Checkout.Session): Checkout {
  const mode = session.mode === 'setup' ? 'card' : 'payment'
  const isPayment = mode === 'payment'
  return {
    id: session.id,
    reference: session.client_reference_id,
    customer: readId(session.customer),
    mode,
    state: stateOf(session),
    amount:
      isPayment && session.amount_total !== null ? usdCents(BigInt(session.amount_total)) : null,
    currency: isPayment ? session.currency : null,
    payment: readId(session.payment_intent),
  }
}

function stateOf(session: Stripe.Checkout.Session): Checkout['state'] {
  if (session.status === 'open') return 'open'
  if (session.status === 'expired') return 'expired'
  if (session.status !== 'complete') throw unclearAnswer(new Error('a session without status'))
  const intent = intentOf(session)
  if (session.mode === 'payment' && session.payment_status === 'paid') return 'paid'
  if (intent?.status === 'succeeded') return 'paid'
  return intent?.status === 'processing' ? 'processing' : 'failed'
}
