import { describe, expect, it, onTestFinished } from 'vitest'
import { createLog } from '../../../core/lib/log.ts'
import { startCoreDouble } from '../../fakes/sidecar-core.ts'
import { firstCall } from '../signer-bodies.ts'
import { type Harness, startHarness, until } from '../support.ts'

const job = (SequenceNumber: number, StateID = '9f86d081', key?: string) =>
  firstCall({
    ...(key !== undefined && { key }),
    state: { Type: 'fixed', InitialPricePerUnit: 10 ** 12, SequenceNumber, StateID },
  })
const statusOf = async (harness: Harness, body: object) =>
  (await harness.authorize(body)).json['status']
const away = async ({ metrics }: Harness) =>
  /^tollgate_sidecar_core_away(?:\{.*\})? 1$/m.test(await metrics.metrics())

describe('while core hangs', () => {
  it('pays from leases, and refuses other calls at once when core is known to be unavailable', async () => {
    const harness = await startHarness()
    expect(await statusOf(harness, job(0))).toBe(200)
    harness.core.script.frozen = true
    expect(await statusOf(harness, job(1))).toBe(200)
    await until(() => away(harness))
    expect(await statusOf(harness, job(2))).toBe(200)
    const started = performance.now()
    const replies = [
      await harness.authorize(job(0, 'other', 'sk_live_tenant')),
      await harness.authorize(
        firstCall({ state: { InitialPricePerUnit: 10 ** 15, StateID: 'dear' } }),
      ),
    ]
    expect(performance.now() - started).toBeLessThan(1_000)
    expect(replies.map(({ json }) => [json['status'], json['code']])).toEqual([
      [503, 'authorization_unavailable'],
      [503, 'billing_unavailable'],
    ])
    harness.core.script.frozen = false
    await until(async () => (await statusOf(harness, job(0, 'other', 'sk_live_tenant'))) === 200)
    expect(await away(harness)).toBe(false)
    await until(() => harness.core.escrow.authorisations.length === 4)
  })
})

describe('while core is down', () => {
  it('survives a restart between renewals, and reports each call once', async () => {
    const core = await startCoreDouble()
    const harness = await startHarness({ core })
    expect(await statusOf(harness, job(0))).toBe(200)
    await until(() => core.escrow.authorisations.length === 1)
    core.stop()
    expect(await statusOf(harness, job(1))).toBe(200)
    const again = await startCoreDouble(core.port)
    onTestFinished(again.stop)
    for (const [name, user] of core.users) again.users.set(name, user)
    for (const [name, key] of core.keys) again.keys.set(name, key)
    await until(() => again.escrow.authorisations.length === 1)
    await until(async () => (await statusOf(harness, job(2))) === 200)
    await until(() => again.escrow.authorisations.length >= 2)
    const numbers = again.escrow.authorisations.map(({ sequence }) => Number(sequence))
    expect(new Set(numbers).size).toBe(numbers.length)
  })
})

describe('the offline budget', () => {
  it('pays for known users beyond their leases, within both budgets, and reports it as offline', async () => {
    const harness = await startHarness({
      env: { OFFLINE_BUDGET_USER_USD: '0.0075', OFFLINE_BUDGET_USD: '0.0135' },
    })
    const { core } = harness
    core.escrow.lendsNothing = true
    for (const key of ['sk_live_alice', 'sk_live_tenant'])
      expect(await statusOf(harness, job(0, key, key))).toBe(200)
    core.script.frozen = true
    await until(() => away(harness))
    const statuses = []
    for (let n = 1; n < 4; n++) statuses.push(await statusOf(harness, job(n, 'a', 'sk_live_alice')))
    for (let n = 1; n < 4; n++)
      statuses.push(await statusOf(harness, job(n, 't', 'sk_live_tenant')))
    expect(statuses).toEqual([200, 200, 503, 200, 200, 503])
    core.script.frozen = false
    await until(() => core.escrow.authorisations.length === 6)
    const offline = core.escrow.authorisations.filter((call) => call.offline)
    expect(offline.map(({ leaseId }) => leaseId)).toEqual(['', '', '', ''])
    await until(async () => !(await away(harness)))
    core.script.frozen = true
    await until(() => away(harness))
    expect(await statusOf(harness, job(4, 'a', 'sk_live_alice'))).toBe(200)
  })

  it('is disabled by default', async () => {
    const harness = await startHarness()
    harness.core.escrow.lendsNothing = true
    expect(await statusOf(harness, job(0))).toBe(200)
    harness.core.script.frozen = true
    await until(() => away(harness))
    expect((await harness.authorize(job(1))).json).toMatchObject({
      status: 503,
      code: 'billing_unavailable',
    })
  })
})

describe('a sidecar whose id another process has', () => {
  it('allows nothing, is not ready, logs an error, and recovers once the id is free', async () => {
    const lines: string[] = []
    const log = createLog(
      { level: 'info', name: 'sidecar' },
      { write: (line: string) => void lines.push(line) },
    )
    const harness = await startHarness({ log })
    expect(await statusOf(harness, job(0))).toBe(200)
    harness.core.escrow.isTaken = true
    await until(async () => (await harness.sidecar.ready())['escrow'] === 'unavailable')
    expect((await harness.authorize(job(1))).json).toMatchObject({
      status: 503,
      code: 'authorization_unavailable',
    })
    const complaints = () => lines.filter((line) => line.includes('SIDECAR_ID')).length
    // Core keeps the id of a killed process for three seconds: no error before that.
    expect(complaints()).toBe(0)
    harness.clock.seconds += 6
    await until(() => complaints() === 1)
    await new Promise((resolve) => setTimeout(resolve, 600))
    expect(complaints()).toBe(1)
    harness.core.escrow.isTaken = false
    await until(async () => (await harness.sidecar.ready())['escrow'] === 'ok')
    await until(async () => (await statusOf(harness, job(1))) === 200)
  })
})
