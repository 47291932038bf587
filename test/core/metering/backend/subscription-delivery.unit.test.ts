import { describe, expect, it } from 'vitest'
import { createSubscriptionsDestination } from '../../../../core/metering/backend/openmeter/delivery.ts'
import type { Failure } from '../../../../core/metering/backend/openmeter/http.ts'
import type { Subscriber } from '../../../../core/metering/backend/subscribers.ts'
import { DomainError } from '../../../../proto/errors.ts'

describe('delivery of a subscription', () => {
  const entry = {
    id: 1n,
    payload: Buffer.from(
      JSON.stringify({
        appId: '0198c2a4-7d1e-7b3a-9c5f-000000000001',
        userId: '7c0e5b1e-5a0d-4a53-9a3c-5c8f2f6f0001',
      }),
    ),
    itemCount: 1,
    attempts: 0,
  }
  const subscriberOn = (planKey: string): Subscriber => ({
    externalUserId: 'ada',
    clientId: 'app_1',
    subscriptionId: `of ${planKey}`,
    planKey,
    offer: async () => true,
  })
  async function deliver(
    plans: readonly (string | null)[],
    subscribe: (planKey: string) => Promise<Failure | null> = async () => null,
    payload = entry.payload,
  ) {
    const sent: string[] = []
    const reads = plans.values()
    const destination = createSubscriptionsDestination({
      ready: () => true,
      findSubscriber: async () => {
        const planKey = reads.next().value ?? null
        return planKey === null ? null : subscriberOn(planKey)
      },
      subscribe: async (customer, { planKey }) => {
        sent.push(`${customer.key} ${planKey}`)
        return subscribe(planKey)
      },
    })
    const signal = new AbortController().signal
    const [delivery] = await destination.deliver([{ ...entry, payload }], signal)
    return { sent: sent.map((line) => line.split(' ')[1]), delivery }
  }
  const rejecting = (reason: DomainError['reason']) => async () => {
    throw new DomainError(reason, 'why')
  }

  it('sends it again if it changed during delivery', async () => {
    expect(await deliver(['starter', 'pro', 'pro'])).toEqual({
      sent: ['starter', 'pro'],
      delivery: { kind: 'delivered' },
    })
    expect((await deliver(['a', 'b', 'c', 'd', 'd'])).delivery).toMatchObject({ kind: 'later' })
  })

  it('drops it for a user without one', async () => {
    expect(await deliver([null])).toEqual({ sent: [], delivery: { kind: 'delivered' } })
  })

  it.each([
    ['METERING_UNREACHABLE', 'later'],
    ['CONFLICT', 'later'],
    ['METERING_FAILED', 'failed'],
    ['PLAN_UNSYNCABLE', 'refused'],
  ] as const)('after sync error %s is %s', async (reason, kind) => {
    const { delivery } = await deliver(['pro', 'pro'], rejecting(reason))
    expect(delivery).toEqual({ kind, why: 'why' })
  })

  it('rejects an unreadable row', async () => {
    const { delivery } = await deliver(['pro'], undefined, Buffer.from('{"appId":"x"}'))
    expect(delivery).toEqual({ kind: 'refused', why: 'the row cannot be read' })
  })
})
