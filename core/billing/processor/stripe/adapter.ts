import type { Now } from '../../../lib/time.ts'
import type { StripeConfig } from '../config.ts'
import type { PaymentProcessor } from '../port.ts'
import { createAccounts } from './accounts.ts'
import { createCheckouts } from './checkouts.ts'
import { createStripeClient } from './client.ts'
import { createCustomers } from './customers.ts'
import { createEventVerifier } from './events.ts'
import { createMovements } from './movements.ts'
import { createPayments } from './payments.ts'
import { createPayouts } from './payouts.ts'

/**
 * Stripe as the payment processor (docs/stripe.md). Objects of a connected app live in its own
 * account, with direct charges; those of the platform live in the account of the secret key.
 */
export function createStripeProcessor(config: StripeConfig, now: Now): PaymentProcessor {
  const client = createStripeClient(config)
  return {
    kind: 'stripe',
    planes: client.planes,
    ...createAccounts(client),
    ...createCustomers(client, now),
    ...createCheckouts(client),
    ...createPayments(client),
    ...createMovements(client),
    ...createPayouts(client),
    verifyEvent: createEventVerifier(config),
  }
}
