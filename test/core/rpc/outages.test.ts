import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createDatabase } from '../../support/run/postgres.ts'
import {
  type TestApp,
  type TestCore,
  createCaller,
  outcome,
  startProxy,
  startTestCore,
  lockWaits,
  until,
} from '../support.ts'

const ada = 'ada'

let core: TestCore
let app: TestApp
beforeAll(async () => {
  core = await startTestCore()
  app = await core.newApp()
  await core.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: ada })
})
afterAll(() => core.stop())

const reasonsOf = (calls: Promise<unknown>[]) => Promise.all(calls.map(outcome))

describe('stopping', () => {
  it('lets a running call finish, rejects new ones, and ends within three seconds', async () => {
    const dying = await startTestCore()
    const made = await dying.newApp()
    await dying.as(made.basic).upsertUser({ clientId: made.clientId, externalUserId: ada })
    const blocker = await dying.sql.connect()
    await blocker.query('begin')
    await blocker.query('select 1 from end_users for update')
    const running = dying
      .as(made.basic)
      .updateUser({ clientId: made.clientId, externalUserId: ada, email: 'late@example.com' })
    await until(async () => ((await dying.sql.query(lockWaits)).rowCount ?? 0) > 0)
    const begin = performance.now()
    const stops = [dying.core.stop(), dying.core.stop()]
    const late = createCaller(dying.core.target)
    expect(await outcome(late.as(made.basic).listUsers({ clientId: made.clientId }))).toBe(
      'UNAVAILABLE',
    )
    late.close()
    await blocker.query('commit')
    blocker.release()
    expect((await running).user?.email).toBe('late@example.com')
    await Promise.all(stops)
    expect(performance.now() - begin).toBeLessThan(3_000)
    await dying.stop()
  })

  it('stops waiting for a call that hangs', async () => {
    const dying = await startTestCore()
    const made = await dying.newApp()
    await dying.as(made.basic).upsertUser({ clientId: made.clientId, externalUserId: ada })
    const blocker = await dying.sql.connect()
    await blocker.query('begin')
    await blocker.query('select 1 from end_users for update')
    const hanging = outcome(
      dying.as(made.basic).updateUser({ clientId: made.clientId, externalUserId: ada }),
    )
    await until(async () => ((await dying.sql.query(lockWaits)).rowCount ?? 0) > 0)
    const begin = performance.now()
    await dying.core.stop()
    expect(await hanging).toBe('UNAVAILABLE')
    // The call had its time and was then ended. The database would have let it wait for ten
    // seconds.
    expect(performance.now() - begin).toBeGreaterThan(2_000)
    expect(performance.now() - begin).toBeLessThan(8_000)
    await blocker.query('rollback')
    blocker.release()
    await dying.stop()
  })

  it('resolves a second stop with the first', async () => {
    const dying = await startTestCore()
    const order: string[] = []
    await Promise.all([
      dying.core.stop().then(() => order.push('first')),
      dying.core.stop().then(() => order.push('second')),
    ])
    expect(order).toEqual(['first', 'second'])
    expect(await dying.core.ready()).toMatchObject({ database: 'unavailable' })
    await dying.stop()
  })
})

describe('when PostgreSQL is unavailable', () => {
  it('returns UNAVAILABLE, and recovers without a restart', async () => {
    const database = await createDatabase()
    const url = new URL(database.url)
    const proxy = await startProxy({ host: url.hostname, port: Number(url.port) })
    const through = Object.assign(new URL(database.url), {
      hostname: '127.0.0.1',
      port: String(proxy.port),
    }).href
    const remote = await startTestCore({ DATABASE_URL: through, REDIS_URL: '' })
    const made = await remote.newApp()
    const rpcs = remote.as(made.basic)
    const calls = (): Promise<unknown>[] => [
      rpcs.listUsers({ clientId: made.clientId }),
      rpcs.upsertUser({ clientId: made.clientId, externalUserId: ada }),
      rpcs.getBalance({ clientId: made.clientId, externalUserId: ada }),
      rpcs.createGrant({
        clientId: made.clientId,
        externalUserId: ada,
        amountUsdMicros: '1',
        idempotencyKey: 'k',
      }),
      remote.as().verifyApiKey({ apiKey: 'x' }),
      remote.as().getAccess({ clientId: made.clientId, externalUserId: ada }),
    ]
    await rpcs.upsertUser({ clientId: made.clientId, externalUserId: ada })
    expect(await reasonsOf(calls())).toEqual(['OK', 'OK', 'OK', 'OK', 'TOKEN_INVALID', 'OK'])

    // Cut running calls, then keep the database unavailable.
    const cut = reasonsOf(calls())
    proxy.mode('refuse')
    for (const end of await cut) expect(['OK', 'UNAVAILABLE', 'TOKEN_INVALID']).toContain(end)
    for (let i = 0; i < 3; i++) {
      expect(await reasonsOf(calls())).toEqual([
        'UNAVAILABLE',
        'UNAVAILABLE',
        'UNAVAILABLE',
        'UNAVAILABLE',
        'TOKEN_INVALID',
        'UNAVAILABLE',
      ])
    }
    expect(await remote.core.ready()).toMatchObject({ database: 'unavailable' })
    expect((await remote.as().getJwks()).keys).toHaveLength(2)

    proxy.mode('pass')
    await until(async () => (await outcome(rpcs.listUsers({ clientId: made.clientId }))) === 'OK')
    expect(await reasonsOf(calls())).toEqual(['OK', 'OK', 'OK', 'OK', 'TOKEN_INVALID', 'OK'])
    expect(await remote.core.ready()).toMatchObject({ database: 'ok' })
    await remote.stop()
    proxy.stop()
    await database.drop()
  })

  it('survives a connection that breaks inside a transaction', async () => {
    const blocker = await core.sql.connect()
    await blocker.query('begin')
    await blocker.query('select 1 from end_users for update')
    const calls = Array.from({ length: 8 }, () =>
      outcome(core.as(app.basic).updateUser({ clientId: app.clientId, externalUserId: ada })),
    )
    const waiting = `application_name = 'tollgate-core' and wait_event_type = 'Lock' and datname = current_database()`
    await until(
      async () =>
        (await core.sql.query(`select 1 from pg_stat_activity where ${waiting}`)).rowCount === 8,
    )
    await core.sql.query(`select pg_terminate_backend(pid) from pg_stat_activity where ${waiting}`)
    expect(await Promise.all(calls)).toEqual(calls.map(() => 'UNAVAILABLE'))
    await blocker.query('rollback')
    blocker.release()
    expect(await outcome(core.as(app.basic).listUsers({ clientId: app.clientId }))).toBe('OK')
  })

  it('ends a call in limited time when connections hang', async () => {
    const database = await createDatabase()
    const url = new URL(database.url)
    const proxy = await startProxy({ host: url.hostname, port: Number(url.port) })
    const remote = await startTestCore({
      DATABASE_URL: Object.assign(new URL(database.url), {
        hostname: '127.0.0.1',
        port: String(proxy.port),
      }).href,
    })
    const made = await remote.newApp()
    proxy.mode('hang')
    const begin = performance.now()
    expect(await outcome(remote.as(made.basic).listUsers({ clientId: made.clientId }))).toBe(
      'UNAVAILABLE',
    )
    expect(performance.now() - begin).toBeLessThan(8_000)
    proxy.mode('refuse')
    await remote.stop()
    proxy.stop()
    await database.drop()
  })
})
