import type { Stripe } from 'stripe'
import type { Now } from '../../../lib/time.ts'
import type { Card, PaymentProcessor, ProcessorAccount } from '../port.ts'
import { type StripeClient, expectObject } from './client.ts'
import { isMissing, unclearAnswer } from './errors.ts'

/** Seconds at which the checkout began whose card is the default. */
const defaultSince = 'default_card_since'

type Customers = Pick<PaymentProcessor, 'createCustomer' | 'readCard' | 'hasCustomer'>

export const createCustomers = ({ request }: StripeClient, now: Now): Customers => ({
  createCustomer: (at, { reference, description }, key) =>
    request(
      at,
      async (stripe, options) => {
        const params = { description, metadata: { reference } }
        const { id } = expectObject(await stripe.customers.create(params, options), 'customer')
        return { id }
      },
      { key },
    ),

  readCard: (at, customer) =>
    request<Card | null>(
      at,
      async (stripe, options) => {
        const expand = ['invoice_settings.default_payment_method']
        const answer = await stripe.customers.retrieve(customer, { expand }, options)
        const payer: Stripe.Customer | Stripe.DeletedCustomer = expectObject(answer, 'customer')
        if (!isCustomer(payer)) return null
        const method = payer.invoice_settings.default_payment_method
        if (typeof method === 'string') throw unclearAnswer(new Error('the card is not expanded'))
        return method === null ? null : chargeableCard(method, now())
      },
      { recover: (error) => (isMissing(error) ? null : undefined) },
    ),

  hasCustomer: (at, customer) =>
    request<boolean>(
      at,
      async (stripe, options) =>
        isCustomer(
          expectObject(await stripe.customers.retrieve(customer, {}, options), 'customer'),
        ),
      { recover: (error) => (isMissing(error) ? false : undefined) },
    ),
})

/** Whether the field holds an expanded customer that was not deleted. */
export const isCustomer = (
  customer: string | Stripe.Customer | Stripe.DeletedCustomer | null,
): customer is Stripe.Customer =>
  typeof customer === 'object' && customer !== null && customer.deleted !== true

/** Returns null for other payment methods and for a card that has expired. */
function chargeableCard({ id, card }: Stripe.PaymentMethod, at: Date): Card | null {
  if (!card) return null
  // A card is good until the end of its month, in any time zone.
  const until = Date.UTC(card.exp_year, card.exp_month, 2)
  if (!(until > at.getTime())) return null
  return {
    id,
    brand: card.brand.toLowerCase(),
    last4: card.last4,
    expiresMonth: card.exp_month,
    expiresYear: card.exp_year,
  }
}

/**
 * Makes `card` the default of the checkout's customer, unless a later checkout has set it: events
 * of checkouts arrive in any order, and a sweep reads old checkouts again.
 */
export async function keepDefaultCard(
  { request }: StripeClient,
  at: ProcessorAccount,
  checkout: { readonly customer: Stripe.Customer; readonly card: string; readonly since: number },
): Promise<void> {
  const { customer, card, since } = checkout
  if (Number(customer.metadata[defaultSince] ?? 0) >= since) return
  await request(
    at,
    async (stripe, options) => {
      const params = {
        invoice_settings: { default_payment_method: card },
        metadata: { [defaultSince]: String(since) },
      }
      expectObject(await stripe.customers.update(customer.id, params, options), 'customer')
      return true
    },
    // The card or the customer was removed since, so there is nothing to keep. The checkout's own
    // result must not depend on it.
    { recover: ({ statusCode }) => ([400, 402, 404].includes(statusCode ?? 0) ? true : undefined) },
  )
}
