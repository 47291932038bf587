/** Types of the events that webhooks deliver (docs/webhooks.md). */
export const eventTypes = [
  'user.created',
  'user.updated',
  'user.deactivated',
  'key.created',
  'key.revoked',
  'subscription.changed',
  'subscription.canceled',
  'subscription.change_failed',
  'subscription.past_due',
  'balance.low',
  'balance.depleted',
  'access.lost',
  'access.restored',
  'checkout.completed',
  'payment.succeeded',
  'payment.failed',
  'payment.refunded',
  'payment.disputed',
  'invoice.issued',
  'invoice.paid',
  'invoice.payment_failed',
  'invoice.voided',
] as const
export type EventType = (typeof eventTypes)[number]

/** The type of an event that tests one endpoint. No endpoint can leave it out. */
export const pingType = 'webhook.ping'
