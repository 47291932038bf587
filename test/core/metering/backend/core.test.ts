import { afterEach, describe, expect, it } from 'vitest'
import { readCoreConfig } from '../../../../core/config.ts'
import { createEnvReader } from '../../../../core/lib/env.ts'
import { type FakeOpenMeter, startOpenMeter } from '../../../fakes/openmeter/openmeter.ts'
import {
  type TestApp,
  type TestCore,
  configOf,
  outcome,
  refusal,
  startTestCore,
  until,
} from '../../support.ts'

const stops: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0).toReversed()) await stop()
})

async function start(
  env: (fake: FakeOpenMeter) => Record<string, string>,
  apiKey: string | null = null,
): Promise<{ fake: FakeOpenMeter; core: TestCore; app: TestApp }> {
  const fake = await startOpenMeter()
  fake.apiKey = apiKey
  stops.push(fake.stop)
  const core = await startTestCore(env(fake))
  stops.push(core.stop)
  return { fake, core, app: await core.newApp() }
}

const withKey = (fake: FakeOpenMeter) => ({
  OPENMETER_URL: fake.urls.v1,
  OPENMETER_API_KEY: 'the-right-key',
})
const problemsOf = (env: Record<string, string>): string[] => {
  const reader = createEnvReader({
    DATABASE_URL: 'postgres://x',
    CORE_TOKEN: 'x'.repeat(32),
    KEY_ENCRYPTION_KEY: 'x'.repeat(32),
    SECRET_PEPPERS: `a:${'x'.repeat(32)}`,
    ...env,
  })
  readCoreConfig(reader)
  return reader.problems
}

describe('metering backend settings', () => {
  it('choose OpenMeter if it has an address, otherwise our own tables', () => {
    const base = { DATABASE_URL: 'postgres://x' }
    expect(configOf(base).backend).toEqual({ name: 'embedded' })
    expect(
      configOf({ ...base, METERING_BACKEND: 'none', OPENMETER_URL: 'http://om:8888' }).backend,
    ).toEqual({ name: 'none' })
    expect(configOf({ ...base, OPENMETER_URL: 'http://om:8888/' }).backend).toEqual({
      name: 'openmeter',
      openMeter: {
        url: 'http://om:8888',
        apiKey: expect.any(Function),
        timeoutMs: 10_000,
        batchSize: 1_000,
      },
    })
  })

  it('report each mistake in one line', () => {
    expect(problemsOf({ OPENMETER_URL: 'openmeter.example:8888' })).toEqual([
      'OPENMETER_URL must be a URL that starts with http:// or https://',
    ])
    expect(problemsOf({ METERING_BACKEND: 'openmeter' })).toEqual([
      'OPENMETER_URL is required when METERING_BACKEND is openmeter',
    ])
    expect(problemsOf({ METERING_BACKEND: 'clickhouse' })).toEqual([
      'METERING_BACKEND must be one of embedded, openmeter, none',
    ])
    expect(problemsOf({ OPENMETER_URL: 'http://user:pass@om' })).toEqual([
      expect.stringContaining('without user, query and fragment'),
    ])
    expect(problemsOf({ OPENMETER_URL: 'http://om', OPENMETER_API_KEY: 'two words' })).toEqual([
      'OPENMETER_API_KEY must be visible ASCII characters',
    ])
    expect(problemsOf({ OPENMETER_URL: 'http://om', OPENMETER_BATCH_SIZE: '0' })).toEqual([
      'OPENMETER_BATCH_SIZE must be a whole number from 1 to 1000',
    ])
  })
})

describe('core with OpenMeter', () => {
  it('prepares meters, sends users, and serves queries', async () => {
    const { fake, core, app } = await start(withKey, 'the-right-key')
    const rpcs = core.as(app.basic)
    await rpcs.upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
    await until(() => fake.state.customers.length === 1)
    expect(fake.state.meters).toHaveLength(6)
    expect(fake.state.customers).toMatchObject([
      { body: { name: 'ada', metadata: { client_id: app.clientId } } },
    ])
    expect(await core.core.ready()).toMatchObject({ database: 'ok', openmeter: 'ok' })
    expect(await outcome(rpcs.queryUsage({ clientId: app.clientId }))).toBe('OK')
    expect(
      await outcome(rpcs.getAllowance({ clientId: app.clientId, externalUserId: 'ada' })),
    ).toBe('OK')
    expect(await outcome(rpcs.getBalance({ clientId: app.clientId, externalUserId: 'ada' }))).toBe(
      'OK',
    )
  })

  it('starts with a wrong key, reports degraded health, and recovers with the right key', async () => {
    const { fake, core, app } = await start(withKey, 'another-key')
    const rpcs = core.as(app.basic)
    expect(await core.core.ready()).toMatchObject({ database: 'ok', openmeter: 'degraded' })
    expect((await refusal(rpcs.queryUsage({ clientId: app.clientId }))).message).toBe(
      'the metering backend does not answer now',
    )
    expect(await outcome(rpcs.getAllowance({ clientId: app.clientId, externalUserId: 'x' }))).toBe(
      'METERING_UNREACHABLE',
    )
    expect(
      await outcome(
        rpcs.createGrant({ clientId: app.clientId, externalUserId: 'x', amountUsdMicros: 'x' }),
      ),
    ).toBe('METERING_UNREACHABLE')
    // An unauthenticated caller learns nothing about the backend.
    expect(await outcome(core.as('Basic eDp5').queryUsage({ clientId: app.clientId }))).toBe(
      'CREDENTIAL_INVALID',
    )
    // Authorisation does not depend on the backend, and the user is sent later.
    expect(await outcome(rpcs.upsertUser({ clientId: app.clientId, externalUserId: 'ada' }))).toBe(
      'OK',
    )
    const access = await core.as().getAccess({ clientId: app.clientId, externalUserId: 'ada' })
    expect(BigInt(access.access?.remainingUsdAttos ?? 0)).toBeGreaterThan(0n)
    fake.apiKey = 'the-right-key'
    await until(() => fake.state.customers.length === 1)
    await until(async () => (await outcome(rpcs.queryUsage({ clientId: app.clientId }))) === 'OK')
    expect(await core.core.ready()).toMatchObject({ openmeter: 'ok' })
  })

  it('rejects queries while OpenMeter is unreachable', async () => {
    const { core, app } = await start(() => ({
      OPENMETER_URL: 'http://127.0.0.1:1',
      OPENMETER_TIMEOUT_MS: '500',
    }))
    expect(await outcome(core.as(app.basic).queryUsage({ clientId: app.clientId }))).toBe(
      'METERING_UNREACHABLE',
    )
    expect(await core.core.ready()).toMatchObject({ openmeter: 'degraded' })
  })

  it('rejects with METERING_NOT_CONFIGURED without a backend', async () => {
    const { core, app } = await start(() => ({ METERING_BACKEND: 'none' }))
    expect(await outcome(core.as(app.basic).queryUsage({ clientId: app.clientId }))).toBe(
      'METERING_NOT_CONFIGURED',
    )
    expect(Object.keys(await core.core.ready())).not.toContain('openmeter')
  })
})
