import { DomainError } from '../../../proto/errors.ts'
import type { App } from '../../http/app.ts'
import type { RouteRules } from '../../http/route.ts'

const rules: RouteRules = { guard: { kind: 'none' } }

/**
 * The webhook of the payment processor (docs/stripe.md), which is not part of the API. It forwards
 * the bytes as they came, because the signature covers them. 200 means that the event is stored.
 */
export function processorEventRoutes(app: App): void {
  app.post(
    '/webhooks/stripe',
    { config: { rules }, schema: { hide: true } },
    async ({ body, headers, core }) => {
      const signature = headers['stripe-signature']
      if (typeof signature !== 'string' || signature === '')
        throw new DomainError('SIGNATURE_INVALID', 'the request has no Stripe-Signature header')
      const bytes = Buffer.isBuffer(body) ? body : Buffer.alloc(0)
      await core.payments.receiveProcessorEvent({ body: bytes, signature })
      return { received: true }
    },
  )
}
