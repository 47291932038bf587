import { Stripe } from 'stripe'
import { DomainError } from '../../../../proto/errors.ts'
import { type JsonObject, isObject } from '../../../lib/json.ts'
import { currentValue } from '../../../lib/settings/reloadable.ts'
import type { StripeConfig } from '../config.ts'
import type { EventSubject, PaymentProcessor, Plane, ProcessorEvent } from '../port.ts'

const toleranceSeconds = 300
const idMax = 255

/** Subjects by type. The docs page lists the same types for the endpoint at Stripe. */
export const eventSubjects: Readonly<Record<string, EventSubject>> = {
  'checkout.session.completed': 'checkout',
  'checkout.session.async_payment_succeeded': 'checkout',
  'checkout.session.async_payment_failed': 'checkout',
  'checkout.session.expired': 'checkout',
  'payment_intent.succeeded': 'payment',
  'payment_intent.payment_failed': 'payment',
  'payment_intent.processing': 'payment',
  'payment_intent.requires_action': 'payment',
  'payment_intent.canceled': 'payment',
  'refund.created': 'refund',
  'refund.updated': 'refund',
  'refund.failed': 'refund',
  'charge.dispute.created': 'dispute',
  'charge.dispute.updated': 'dispute',
  'charge.dispute.closed': 'dispute',
  'charge.dispute.funds_withdrawn': 'dispute',
  'charge.dispute.funds_reinstated': 'dispute',
  'account.updated': 'account',
  'account.application.deauthorized': 'account',
  'customer.updated': 'customer',
  'customer.deleted': 'customer',
  'payment_method.attached': 'customer',
  'payment_method.detached': 'customer',
  'payment_method.updated': 'customer',
  'payment_method.automatically_updated': 'customer',
}

type VerifyEvent = PaymentProcessor['verifyEvent']

export function createEventVerifier(config: StripeConfig): VerifyEvent {
  const secrets = () =>
    (['live', 'test'] as const).flatMap((plane) =>
      (currentValue(config[plane]?.webhookSecrets) ?? []).map((secret) => ({ plane, secret })),
    )

  return (body, signature, at) => {
    const text = decode(body)
    const isRecent = Math.abs(signedAt(signature) - at.getTime() / 1000) <= toleranceSeconds
    const fitting = isRecent
      ? secrets().find(({ secret }) => fits(text, { signature, secret, at }))
      : undefined
    if (fitting === undefined)
      throw new DomainError(
        'SIGNATURE_INVALID',
        'the signature fits no webhook secret, or its time differs by more than five minutes',
      )
    return parseEvent(parseJson(text), fitting.plane)
  }
}

/** Decodes without any loss, so that the signature is checked over exactly these bytes. */
function decode(body: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body)
  } catch {
    throw notAnEvent('the body is not UTF-8')
  }
}

/** The SDK rejects times in the past only, so the caller compares this one. */
function signedAt(signature: string): number {
  const [, seconds = ''] = /(?:^|,)t=(\d{1,12})(?:,|$)/.exec(signature) ?? []
  return seconds === '' ? Number.NaN : Number(seconds)
}

function fits(
  text: string,
  { signature, secret, at }: { signature: string; secret: string; at: Date },
): boolean {
  try {
    const isValid = Stripe.webhooks.signature?.verifyHeader(
      text,
      signature,
      secret,
      toleranceSeconds,
      undefined,
      at.getTime(),
    )
    return isValid === true
  } catch {
    // Some malformed headers make the SDK throw other errors than its own for signatures.
    return false
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw notAnEvent('the body is not JSON')
  }
}

function parseEvent(event: unknown, plane: Plane): ProcessorEvent {
  if (!isObject(event) || event['object'] !== 'event')
    throw notAnEvent('send events of the snapshot form, not thin ones')
  const { id, type, livemode } = event
  if (!isId(id) || !isId(type) || typeof livemode !== 'boolean')
    throw notAnEvent('id, type or livemode is missing')
  const at = { plane, account: accountOf(event) }
  const isOurPlane = livemode === (plane === 'live')
  const about = isOurPlane ? subjectOf(type, event, at.account) : ignored
  const isDeauthorization = about.subject !== null && type === deauthorized
  return { id, at, type, ...about, isDeauthorization }
}

/** The connected account; null for the platform's own. */
function accountOf({ account }: JsonObject): string | null {
  if (account === undefined || account === null) return null
  if (!isId(account)) throw notAnEvent('the account has an unknown form')
  return account
}

type About = Pick<ProcessorEvent, 'subject' | 'objectId' | 'payment'>

const ignored: About = { subject: null, objectId: '', payment: null }

function subjectOf(type: string, event: JsonObject, account: string | null): About {
  const subject = Object.hasOwn(eventSubjects, type) ? eventSubjects[type] : undefined
  if (subject === undefined) return ignored
  const data = objectIn(event, 'data')
  const object = objectIn(data, 'object')
  const objectId = objectIdOf(type, data, { object, account })
  if (!isId(objectId)) {
    // A payment method without customer is of no interest.
    if (type.startsWith('payment_method.')) return ignored
    throw notAnEvent('the object has no id')
  }
  const payment = subject === 'refund' || subject === 'dispute' ? object['payment_intent'] : null
  return { subject, objectId, payment: isId(payment) ? payment : null }
}

function objectIdOf(
  type: string,
  data: JsonObject,
  { object, account }: { object: JsonObject; account: string | null },
): unknown {
  // The object is the platform's application here, not the account.
  if (type === deauthorized) return account
  if (!type.startsWith('payment_method.')) return object['id']
  return object['customer'] ?? objectIn(data, 'previous_attributes')['customer']
}

const deauthorized = 'account.application.deauthorized'

function objectIn(parent: JsonObject, name: string): JsonObject {
  const value = parent[name]
  return isObject(value) ? value : {}
}

const isId = (value: unknown): value is string =>
  typeof value === 'string' && value !== '' && value.length <= idMax

const notAnEvent = (why: string): DomainError =>
  new DomainError('REQUEST_INVALID', `the body is no event of Stripe: ${why}`)
