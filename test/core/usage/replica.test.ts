import { Client } from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { createPool } from '../../../core/lib/sql.ts'
import { openReplica } from '../../../core/shared/database/replica.ts'
import {
  type ReplicatedPostgres,
  debianPostgres,
  startReplicated,
} from '../../support/run/replica.ts'
import { eventually } from '../../support/waiting.ts'
import { envelope } from '../metering/harness.ts'
import { type TestApp, type TestCore, startTestCore } from '../support.ts'

/** The tests share a replica, which the last one stops. */
describe.runIf(debianPostgres)('usage from DATABASE_READ_URL', () => {
  let databases: ReplicatedPostgres
  let core: TestCore
  let replica: Client
  let app: TestApp
  let booked = 0n
  beforeAll(async () => {
    databases = await startReplicated()
    core = await startTestCore({
      DATABASE_URL: databases.url,
      DATABASE_READ_URL: databases.replicaUrl,
      DATABASE_READ_MAX_LAG_SECONDS: '4',
    })
    replica = new Client({ connectionString: databases.replicaUrl })
    replica.on('error', () => {})
    await replica.connect()
    app = await core.newApp()
    await core.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
  }, 120_000)
  afterAll(async () => {
    await replica?.end().catch(() => {})
    await core?.stop()
    await databases?.stop()
  })

  /** Books one ticket of ada. */
  async function book(): Promise<void> {
    booked += 1n
    await core.as().ingestEvents({
      envelopes: [
        envelope({
          auth_id: `${app.clientId}:ada`,
          current_time: core.clock.now().toISOString(),
          sequence_number: Number(booked),
          request_id: `r${booked}`,
        }),
      ],
    })
  }

  const counted = async (): Promise<string> => {
    const { usage } = await core.as(app.basic).queryUsage({ clientId: app.clientId })
    return String(usage?.totals?.requestCount)
  }

  async function readsFrom(source: 'replica' | 'primary', at = core): Promise<number> {
    const text = await at.metrics.getSingleMetricAsString('tollgate_core_reads_total')
    return Number(new RegExp(`source="${source}".* (\\d+)$`, 'm').exec(text)?.[1] ?? 0)
  }

  /** Queries until an answer comes from `source`, and returns that answer. */
  async function countedAt(source: 'replica' | 'primary'): Promise<string> {
    const before = await readsFrom(source)
    return eventually(counted, () => true).then(async (first) => {
      if ((await readsFrom(source)) > before) return first
      return eventually(
        async () => {
          const answer = await counted()
          return (await readsFrom(source)) > before ? answer : ''
        },
        (answer) => answer !== '',
      )
    })
  }

  it('is answered by the replica while it is fresh', async () => {
    await book()
    expect(await countedAt('replica')).toMatch(/^[01]$/)
    expect(
      await eventually(
        () => countedAt('replica'),
        (count) => count === '1',
      ),
    ).toBe('1')
  })

  it('is answered by the primary when the replica is older than allowed, and again by the replica later', async () => {
    await replica.query('select pg_wal_replay_pause()')
    await book()
    // The balance never comes from the replica.
    const { balance } = await core
      .as(app.basic)
      .getBalance({ clientId: app.clientId, externalUserId: 'ada' })
    expect(BigInt(balance?.consumedUsdMicros ?? '0')).toBeGreaterThan(0n)
    expect(await countedAt('replica')).toBe('1')
    expect(await countedAt('primary')).toBe('2')
    await replica.query('select pg_wal_replay_resume()')
    expect(await countedAt('replica')).toBe('2')
  })

  it('stays with an idle replica', async () => {
    const primary = await readsFrom('primary')
    const until = Date.now() + 6_000
    while (Date.now() < until) expect(await counted()).toBe('2')
    expect(await readsFrom('primary')).toBe(primary)
  })

  it.each([
    ['40001', 2, 'a conflict with its replay'],
    ['57014', 1, 'a lack of time'],
  ])('is repeated at the primary after %s %i times in all: %s', async (code, times) => {
    const primary = createPool({
      url: databases.url,
      max: 1,
      name: 'primary',
      statementTimeoutMs: 10_000,
    })
    const config = { url: databases.replicaUrl, maxLagSeconds: 60 }
    const metrics = createMetrics('test')
    const reads = openReplica(config, { primary, poolMax: 1, log: silentLog(), metrics })
    const lag = async () => metrics.getSingleMetricAsString('tollgate_core_replica_lag_seconds')
    await eventually(lag, (text) => /\} [0-9.]+$/m.test(text))
    const pools = new Set<unknown>()
    const failing = reads.read(async (pool) => {
      pools.add(pool)
      throw Object.assign(new Error('canceled'), { code })
    })
    await expect(failing).rejects.toThrow('canceled')
    expect(pools.size).toBe(times)
    await reads.stop()
    await primary.end()
  })

  it('is answered by the primary, without a failure, when the replica stops', async () => {
    const primary = await readsFrom('primary')
    await databases.stopReplica()
    for (let i = 0; i < 20; i++) expect(await counted()).toBe('2')
    expect(await readsFrom('primary')).toBe(primary + 20)
  })

  it('is not answered by a database that is no replica', async () => {
    const other = await startTestCore({
      DATABASE_URL: databases.url,
      DATABASE_READ_URL: databases.url,
    })
    await other.as(app.basic).queryUsage({ clientId: app.clientId })
    expect([await readsFrom('primary', other), await readsFrom('replica', other)]).toEqual([1, 0])
    await other.stop()
  })
})
