import type { Pool } from 'pg'
import { describe, expect, it } from 'vitest'
import { createPayouts } from '../../../../core/billing/processor/payouts.ts'
import type { PaymentProcessor, PayoutPage } from '../../../../core/billing/processor/port.ts'
import { appId } from '../../../../core/shared/ids.ts'
import { DomainError } from '../../../../proto/errors.ts'
import { reasonOf } from './port-contract.ts'

const app = appId('0199b0c2-7c1e-7a42-9f51-d4f1a1b2c3d4')
const at = { plane: 'live', account: 'acct_1' } as const

/** Payouts of a processor whose answers a test gives itself, in the order of the requests. */
function open() {
  const requests: PromiseWithResolvers<PayoutPage>[] = []
  const listPayouts = (): Promise<PayoutPage> => {
    const request = Promise.withResolvers<PayoutPage>()
    requests.push(request)
    return request.promise
  }
  const processor: Pick<PaymentProcessor, 'listPayouts' | 'readBalance'> = {
    listPayouts,
    readBalance: async () => [],
  }
  const payouts = createPayouts({
    pool: {} as Pool,
    now: () => new Date('2026-05-01T10:00:00Z'),
    connections: { findAccount: async () => at },
    processor,
  })
  const list = (limit: number) => payouts.list(app, { limit, after: null })
  const answer = async (): Promise<void> => {
    await expect.poll(() => requests.length).toBeGreaterThan(0)
    requests.shift()?.resolve({ payouts: [], hasMore: false })
  }
  return { requests, list, answer }
}

describe('payouts', () => {
  it('are asked for one request at a time, and few wait', async () => {
    const { requests, list, answer } = open()
    const asked = [1, 2, 3, 4, 5].map(list)
    await expect.poll(() => requests.length).toBe(1)
    expect(await reasonOf(list(6))).toBe('PROCESSOR_UNREACHABLE')
    // An equal request shares the answer of the first, and takes no place.
    const same = list(1)
    for (const request of asked) {
      await answer()
      expect((await request).value.hasMore).toBe(false)
    }
    expect(await same).toEqual(await asked[0])
    expect(requests).toEqual([])
  })

  it('are asked for again after a failure, which all equal requests get', async () => {
    const { requests, list, answer } = open()
    const asked = [list(1), list(1)]
    await expect.poll(() => requests.length).toBe(1)
    requests.shift()?.reject(new DomainError('PROCESSOR_UNREACHABLE', 'no answer'))
    for (const request of asked) expect(await reasonOf(request)).toBe('PROCESSOR_UNREACHABLE')
    const again = list(1)
    await answer()
    expect((await again).value.payouts).toEqual([])
  })
})
