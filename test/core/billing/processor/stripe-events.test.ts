import { describe, expect, it } from 'vitest'
import { createEventVerifier } from '../../../../core/billing/processor/stripe/events.ts'
import type { StripeConfig } from '../../../../core/billing/processor/config.ts'
import { DomainError } from '../../../../proto/errors.ts'
import { signEvent } from '../../../fakes/stripe/webhooks.ts'

const secrets = {
  old: 'whsec_old_live_secret',
  live: 'whsec_live_secret',
  test: 'whsec_test_secret',
}
const config: StripeConfig = {
  live: { secretKey: 'sk_live_x', webhookSecrets: [secrets.live, secrets.old] },
  test: { secretKey: 'sk_test_x', webhookSecrets: [secrets.test] },
  apiUrl: null,
  timeoutMs: 10_000,
}
const verify = createEventVerifier(config)
const at = new Date('2026-11-26T12:00:00Z')
const seconds = at.getTime() / 1000

const eventOf = (fields: object = {}): object => ({
  id: 'evt_1',
  object: 'event',
  type: 'checkout.session.completed',
  livemode: true,
  account: 'acct_1',
  data: { object: { id: 'cs_live_1', object: 'checkout.session' } },
  ...fields,
})

interface Delivery {
  readonly secret?: string
  readonly timestamp?: number
}

function receive(
  event: object | string,
  { secret = secrets.live, timestamp = seconds }: Delivery = {},
) {
  const text = typeof event === 'string' ? event : JSON.stringify(event)
  return verify(new TextEncoder().encode(text), signEvent(text, secret, timestamp), at)
}

function reasonOf(work: () => unknown): string {
  try {
    work()
  } catch (error) {
    if (error instanceof DomainError) return error.reason
    throw error
  }
  return 'none'
}

describe('verifyEvent', () => {
  it('returns the event with its account and plane', () => {
    expect(receive(eventOf())).toEqual({
      id: 'evt_1',
      at: { plane: 'live', account: 'acct_1' },
      type: 'checkout.session.completed',
      subject: 'checkout',
      objectId: 'cs_live_1',
      payment: null,
      isDeauthorization: false,
    })
  })

  it('accepts each secret of each plane', () => {
    expect(receive(eventOf(), { secret: secrets.old }).at.plane).toBe('live')
    const event = eventOf({ livemode: false })
    expect(receive(event, { secret: secrets.test }).at.plane).toBe('test')
  })

  it('ignores an event of the other plane', () => {
    const testEvent = receive(eventOf({ livemode: false }))
    expect(testEvent).toMatchObject({ subject: null, objectId: '', at: { plane: 'live' } })
    expect(receive(eventOf(), { secret: secrets.test })).toMatchObject({ subject: null })
  })

  it.each([
    ['another secret', () => receive(eventOf(), { secret: 'whsec_of_somebody_else' })],
    ['a time 301 seconds ago', () => receive(eventOf(), { timestamp: seconds - 301 })],
    ['a time in 301 seconds', () => receive(eventOf(), { timestamp: seconds + 301 })],
    [
      'another body',
      () => {
        const signature = signEvent(JSON.stringify(eventOf()), secrets.live, seconds)
        const other = JSON.stringify(eventOf({ account: 'acct_2' }))
        return verify(new TextEncoder().encode(other), signature, at)
      },
    ],
    ...['', 't=', 'v1=00', `t=${seconds}`, `t=${seconds},v1=`, `t=x,v1=00`].map((header) => [
      `the header "${header}"`,
      () => verify(new TextEncoder().encode(JSON.stringify(eventOf())), header, at),
    ]),
  ] as [string, () => unknown][])('refuses %s', (_, deliver) => {
    expect(reasonOf(deliver)).toBe('SIGNATURE_INVALID')
  })

  it('accepts 300 seconds of difference', () => {
    for (const timestamp of [seconds - 300, seconds + 300])
      expect(receive(eventOf(), { timestamp }).subject).toBe('checkout')
  })

  it('refuses every body when there are no secrets', () => {
    const none = createEventVerifier({ ...config, live: null, test: null })
    const text = JSON.stringify(eventOf())
    const signature = signEvent(text, secrets.live, seconds)
    expect(reasonOf(() => none(new TextEncoder().encode(text), signature, at))).toBe(
      'SIGNATURE_INVALID',
    )
  })

  it.each([
    ['text that is not JSON', 'hello'],
    ['another object', JSON.stringify({ object: 'customer', id: 'cus_1' })],
    ['an array', '[]'],
    ['null', 'null'],
    ['a thin event', JSON.stringify({ object: 'v2.core.event', id: 'evt_1' })],
    ['an event without plane', JSON.stringify(eventOf({ livemode: undefined }))],
    ['an event without id', JSON.stringify(eventOf({ id: '' }))],
    ['an account that is no text', JSON.stringify(eventOf({ account: 7 }))],
    ['an object without id', JSON.stringify(eventOf({ data: { object: {} } }))],
    ['an event without object', JSON.stringify(eventOf({ data: null }))],
  ])('refuses %s, although it is signed', (_, text) => {
    expect(reasonOf(() => receive(text))).toBe('REQUEST_INVALID')
  })

  it('refuses bytes that are not UTF-8', () => {
    expect(reasonOf(() => verify(new Uint8Array([0xff, 0xfe]), 't=1,v1=00', at))).toBe(
      'REQUEST_INVALID',
    )
  })

  it('ignores unknown types, those of Object.prototype among them', () => {
    for (const type of ['invoice.paid', 'constructor', '__proto__'])
      expect(receive(eventOf({ type })).subject).toBeNull()
  })

  it("names the platform's own account null", () => {
    expect(receive(eventOf({ account: undefined })).at).toEqual({ plane: 'live', account: null })
  })

  it('names the payment of refunds and disputes', () => {
    const data = { object: { id: 're_1', payment_intent: 'pi_1' } }
    expect(receive(eventOf({ type: 'refund.updated', data }))).toMatchObject({
      subject: 'refund',
      objectId: 're_1',
      payment: 'pi_1',
    })
    const dispute = { object: { id: 'dp_1', payment_intent: 'pi_2' } }
    expect(receive(eventOf({ type: 'charge.dispute.closed', data: dispute }))).toMatchObject({
      subject: 'dispute',
      payment: 'pi_2',
    })
  })

  it('names the customer of a card, also of a removed one', () => {
    const added = { object: { id: 'pm_1', customer: 'cus_1' } }
    expect(receive(eventOf({ type: 'payment_method.attached', data: added }))).toMatchObject({
      subject: 'customer',
      objectId: 'cus_1',
    })
    const removed = {
      object: { id: 'pm_1', customer: null },
      previous_attributes: { customer: 'cus_1' },
    }
    expect(receive(eventOf({ type: 'payment_method.detached', data: removed })).objectId).toBe(
      'cus_1',
    )
    const loose = { object: { id: 'pm_1', customer: null } }
    expect(receive(eventOf({ type: 'payment_method.updated', data: loose })).subject).toBeNull()
  })

  it('names the account when its owner ended the connection', () => {
    const data = { object: { id: 'ca_1', object: 'application' } }
    expect(receive(eventOf({ type: 'account.application.deauthorized', data }))).toMatchObject({
      subject: 'account',
      objectId: 'acct_1',
      isDeauthorization: true,
    })
  })
})
