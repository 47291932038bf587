import { Type } from 'typebox'
import { text } from '../schemas.ts'

/** The members of a body that opens a page of the payment processor. */
export const returnUrls = {
  successUrl: Type.Optional(
    text(
      'Where the page leads afterwards: https, or http on this machine. Any other address is replaced by a page of the service.',
    ),
  ),
  cancelUrl: Type.Optional(text('Where the page leads when the payer leaves it.')),
}

/** Refusals of routes that open a page of the payment processor. */
export const processorReasons = [
  'PROCESSOR_NOT_CONFIGURED',
  'PROCESSOR_UNREACHABLE',
  'PROCESSOR_REFUSED',
  'STRIPE_CONNECT_REQUIRED',
  'STRIPE_CONNECT_PENDING',
  'CONFLICT',
] as const
