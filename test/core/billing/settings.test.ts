import * as fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { createCuts } from '../../../core/billing/cuts.ts'
import type { AppId } from '../../../core/shared/ids.ts'
import { type CoreClient, connectCore } from '../../../deploy/cli/client.ts'
import { main } from '../../../deploy/main.ts'
import { type TestApp, type TestCore, second, serviceToken, startTestCore } from '../support.ts'

let core: TestCore
let operator: CoreClient
let app: TestApp

beforeAll(async () => {
  core = await startTestCore()
  operator = connectCore({ target: core.core.target, token: serviceToken, tls: undefined })
  app = await core.newApp()
})
afterAll(async () => {
  operator.close()
  await core.stop()
})

/** Delay between setting a cut and its start. */
const noticeMs = 60 * second

const unchanged = {
  billingMode: undefined,
  endUserCap: undefined,
  isPlatformOwned: undefined,
  servesEveryApp: undefined,
  platformCutPercent: undefined,
}
const change = async (values: Partial<typeof unchanged | Record<string, unknown>>) =>
  (
    await operator.billing.updateBillingSettings({
      clientId: app.clientId,
      ...unchanged,
      ...values,
    })
  ).settings
const read = async () =>
  (await operator.billing.getBillingSettings({ clientId: app.clientId })).settings
const appIdOf = async ({ clientId }: TestApp): Promise<AppId> =>
  (
    await core.sql.query<{ app_id: AppId }>('select app_id from clients where client_id = $1', [
      clientId,
    ])
  ).rows[0]?.app_id as AppId

describe('billing settings of an app', () => {
  it('default to those of the deployment', async () => {
    const fresh = await core.newApp()
    expect((await operator.billing.getBillingSettings(fresh)).settings).toEqual({
      clientId: fresh.clientId,
      billingMode: 'owner_rollup',
      endUserCap: 10_000,
      isDefaultCap: true,
      isPlatformOwned: false,
      servesEveryApp: false,
      platformCutPercent: undefined,
      plannedCuts: [],
    })
  })

  it('change one by one and back', async () => {
    expect(await change({ billingMode: 'merchant' })).toMatchObject({ billingMode: 'merchant' })
    expect(await change({ endUserCap: '3', isPlatformOwned: true })).toMatchObject({
      billingMode: 'merchant',
      endUserCap: 3,
      isDefaultCap: false,
      isPlatformOwned: true,
    })
    const back = { billingMode: 'owner_rollup', endUserCap: 'default', isPlatformOwned: false }
    expect(await change(back)).toMatchObject({ endUserCap: 10_000, isDefaultCap: true })
  })

  it('allow servesEveryApp only for a platform-owned app', async () => {
    await expect(change({ servesEveryApp: true })).rejects.toMatchObject({ reason: 'CONFLICT' })
    const both = { isPlatformOwned: true, servesEveryApp: true }
    expect(await change(both)).toMatchObject(both)
    expect(await change({ isPlatformOwned: true })).toMatchObject(both)
    expect(await change({ isPlatformOwned: false })).toMatchObject({ servesEveryApp: false })
    expect(await change({ isPlatformOwned: true })).toMatchObject({ servesEveryApp: false })
    await change({ isPlatformOwned: false })
  })

  it('are audited on each change', async () => {
    await change({ endUserCap: '7', platformCutPercent: '12.5' })
    const { rows } = await core.sql.query<{ details: object }>(
      `select details from audit_log where action = 'billing_settings_changed' and details ? 'endUserCap' and details ? 'since'`,
    )
    expect(rows[0]?.details).toMatchObject({ endUserCap: 7, platformCutPercent: '12.5' })
  })

  it.each([
    { billingMode: 'prepaid' },
    ...['0', '-1', '1000001', '1e3', '1.5', ''].map((endUserCap) => ({ endUserCap })),
    ...['-1', '100.01', '101', '1e1', '.5', '5.', '10.555', '٣', '', ' 5', '9'.repeat(40)].map(
      (platformCutPercent) => ({ platformCutPercent }),
    ),
  ])('reject %o', async (values) => {
    const before = await read()
    await expect(change(values)).rejects.toMatchObject({ reason: 'REQUEST_INVALID' })
    expect(await read()).toEqual(before)
  })

  it('return NOT_FOUND for an unknown app', async () => {
    await expect(
      operator.billing.getBillingSettings({ clientId: 'app_nobody' }),
    ).rejects.toMatchObject({
      reason: 'NOT_FOUND',
    })
  })

  it('are set and shown by tollgate billing', async () => {
    vi.stubEnv('CORE_TARGET', core.core.target)
    vi.stubEnv('CORE_TOKEN', serviceToken)
    const written: string[] = []
    vi.spyOn(process.stdout, 'write').mockImplementation((text) => written.push(String(text)) > 0)
    const target = ['--target', core.core.target, '--app', app.clientId]
    const code = await main(['billing', 'cap', '5', ...target])
    await main(['billing', 'show', ...target])
    vi.restoreAllMocks()
    vi.unstubAllEnvs()
    expect(code).toBe(0)
    expect(written.join('')).toMatch(/active end users +at most 5\n/)
  })
})

describe('platform cut', () => {
  it('begins a minute after it is set, and is listed until then', async () => {
    app = await core.newApp()
    const setAt = core.clock.now().getTime()
    const since = new Date(setAt + noticeMs).toISOString()
    expect(await change({ platformCutPercent: '10' })).toMatchObject({
      platformCutPercent: undefined,
      plannedCuts: [{ since, percent: '10' }],
    })
    core.clock.advance(noticeMs)
    expect(await read()).toMatchObject({ platformCutPercent: '10', plannedCuts: [] })
  })

  it('distinguishes 0 from no cut', async () => {
    for (const [percent, shown] of [
      ['0', '0'],
      ['none', undefined],
    ] as const) {
      await change({ platformCutPercent: percent })
      core.clock.advance(noticeMs)
      expect((await read())?.platformCutPercent).toBe(shown)
    }
  })

  it('is append-only', async () => {
    await expect(core.sql.query('update platform_cuts set percent = 1')).rejects.toThrow(
      'append-only',
    )
    await expect(core.sql.query('delete from platform_cuts')).rejects.toThrow('append-only')
  })

  it('orders cuts set at the same instant', async () => {
    app = await core.newApp()
    await Promise.all(['1', '2', '3'].map((platformCutPercent) => change({ platformCutPercent })))
    const { plannedCuts = [] } = (await read()) ?? {}
    expect(new Set(plannedCuts.map(({ since }) => since)).size).toBe(3)
  })

  it('is the same for a signing time later and without cache', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.record({
            wait: fc.integer({ min: 0, max: 90 }),
            percent: fc.option(fc.integer({ min: 0, max: 10_000 }), { nil: null }),
            // Seconds from now to the signing time.
            signed: fc.integer({ min: -3_600, max: 0 }),
          }),
          { minLength: 1, maxLength: 6 },
        ),
        async (steps) => {
          app = await core.newApp()
          const id = await appIdOf(app)
          const deps = { pool: core.sql, now: core.clock.now }
          const warm = createCuts(deps)
          const answers: { signedAt: Date; cut: bigint | null }[] = []
          for (const { wait, percent, signed } of steps) {
            core.clock.advance(wait * second)
            const signedAt = new Date(core.clock.now().getTime() + signed * second)
            answers.push({ signedAt, cut: await warm.at(id, signedAt) })
            const platformCutPercent = percent === null ? 'none' : String(percent / 100)
            await change({ platformCutPercent })
            answers.push({ signedAt, cut: await warm.at(id, signedAt) })
          }
          for (const { signedAt, cut } of answers)
            expect(await createCuts(deps).at(id, signedAt)).toBe(cut)
        },
      ),
      { numRuns: 25 },
    )
  })
})
