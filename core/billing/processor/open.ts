import type { Now } from '../../lib/time.ts'
import type { ProcessorConfig } from './config.ts'
import type { PaymentProcessor } from './port.ts'

/**
 * Returns the adapter of a processor outside; null if the deployment has none, or the simulated one,
 * which billing creates itself.
 */
export async function openProcessor(
  config: ProcessorConfig,
  now: Now,
): Promise<PaymentProcessor | null> {
  if (config.kind !== 'stripe') return null
  // Loaded only where it is used: Stripe's package takes a third of a second.
  const { createStripeProcessor } = await import('./stripe/adapter.ts')
  return createStripeProcessor(config.stripe, now)
}
