import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { type Harness, basic, startHarness } from '../support.ts'

const users = '/api/v1/apps/app_0123456789abcdef01234567/users'
const metrics = createMetrics('gateway')
let harness: Harness
beforeAll(async () => {
  harness = await startHarness({ metrics })
})
afterAll(() => harness.stop())

/** Returns the counted responses by result. */
async function counts(): Promise<Record<string, number>> {
  const text = await metrics.getSingleMetricAsString('tollgate_gateway_responses_total')
  const lines = text.matchAll(/result="(\w+)"[^}]*\} (\d+)/g)
  return Object.fromEntries([...lines].map(([, result, count]) => [result, Number(count)]))
}

describe('the count of responses', () => {
  it('begins at 0, and separates outages, faults and refusals', async () => {
    // The harness has read the description of the API.
    const { ok = 0, ...others } = await counts()
    expect(others).toEqual({ refused: 0, unavailable: 0, failed: 0 })
    const list = () => harness.ask('GET', users, { headers: { authorization: basic } })
    await harness.ask('GET', '/health')
    await harness.ask('GET', '/nowhere')
    harness.core.refuse('listUsers', 'UNAVAILABLE')
    expect((await list()).status).toBe(503)
    harness.core.refuse('listUsers', 'INTERNAL', 'broken')
    expect((await list()).status).toBe(500)
    await expect.poll(counts).toEqual({ ok: ok + 1, refused: 1, unavailable: 1, failed: 1 })
  })
})
