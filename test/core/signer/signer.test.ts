import { randomUUID } from 'node:crypto'
import { Metadata, type ServiceError, credentials } from '@grpc/grpc-js'
import { Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { fromServiceError } from '../../../core/lib/grpc.ts'
import { serviceTokenHeader } from '../../../proto/headers.ts'
import {
  SignerServiceClient,
  type WatchInvalidationsResponse,
} from '../../../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import { redisUrl } from '../../support/run/redis.ts'
import {
  type Rpcs,
  type TestApp,
  type TestCore,
  atOnce,
  outcome,
  refusal,
  second,
  serviceToken,
  startProxy,
  startTestCore,
  until,
} from '../support.ts'

let core: TestCore
let app: TestApp
let m2m: Rpcs
const watchers: Watcher[] = []
beforeAll(async () => {
  core = await startTestCore()
})
afterAll(() => core.stop())
beforeEach(async () => {
  app = await core.newApp()
  m2m = core.as(app.basic)
})
afterEach(() => watchers.splice(0).forEach((watcher) => watcher.close()))

interface Watcher {
  readonly heard: WatchInvalidationsResponse[]
  /** How the stream ended: OK or a reason. */
  readonly ended: Promise<string>
  hears(kind: string, id: string): Promise<void>
  close(): void
}

/** Watches like a sidecar. Resolves when core has accepted the call. */
async function watch(target: string = core.core.target): Promise<Watcher> {
  const client = new SignerServiceClient(target, credentials.createInsecure())
  const metadata = new Metadata()
  metadata.set(serviceTokenHeader, serviceToken)
  const stream = client.watchInvalidations({}, metadata)
  const heard: WatchInvalidationsResponse[] = []
  const connected = Promise.withResolvers<void>()
  const ended = Promise.withResolvers<string>()
  stream.on('metadata', () => connected.resolve())
  stream.on('data', (message: WatchInvalidationsResponse) => heard.push(message))
  stream.on('end', () => ended.resolve('OK'))
  stream.on('error', (error: ServiceError) => {
    connected.reject(error)
    ended.resolve(fromServiceError(error).reason)
  })
  await connected.promise
  const watcher = {
    heard,
    ended: ended.promise,
    hears: (kind: string, id: string) =>
      until(() => heard.some((one) => one.kind === kind && one.id === id)),
    close: () => {
      stream.cancel()
      client.close()
    },
  }
  watchers.push(watcher)
  return watcher
}

const access = async (externalUserId: string, clientId = app.clientId) => {
  const { access: given } = await core.as().getAccess({ clientId, externalUserId })
  if (!given) throw new Error('no access in the answer')
  return given
}

describe('getAccess', () => {
  it('provisions an unknown user once, with the Starter allowance', async () => {
    const answers = await atOnce(20, () => access('ada'))
    expect(new Set(answers.map(({ userId }) => userId)).size).toBe(1)
    expect(answers[0]).toEqual({
      active: true,
      tokensValidAfter: 0n,
      remainingUsdAttos: '5000000000000000000',
      consumedUsdAttos: '0',
      canSpend: true,
      spendRefusal: '',
      usdAttosPerEth: '3000000000000000000000',
      userId: expect.any(String),
    })
    const { users } = await m2m.listUsers({ clientId: app.clientId })
    expect(users).toMatchObject([
      { externalUserId: 'ada', status: 'active', id: answers[0]?.userId },
    ])
  })

  it.each(['owner:somebody', 'user:somebody', 'ada\u202e'])(
    'creates no user named %j, but finds an existing one',
    async (name) => {
      const ask = () =>
        outcome(core.as().getAccess({ clientId: app.clientId, externalUserId: name }))
      expect(await ask()).toBe('NOT_FOUND')
      const countUsers = async () =>
        (await core.sql.query('select 1 from end_users where external_user_id = $1', [name]))
          .rowCount
      expect(await countUsers()).toBe(0)
      await core.sql.query(
        `insert into end_users (id, app_id, external_user_id, status, created_at, updated_at)
         select gen_random_uuid(), app_id, $2, 'active', now(), now() from clients where client_id = $1`,
        [app.clientId, name],
      )
      expect(await ask()).toBe('OK')
    },
  )

  it('returns NOT_FOUND for unknown apps, other ids and invalid user ids', async () => {
    const ids = [
      `app_${'0'.repeat(24)}`,
      app.m2mClientId,
      '',
      'x\u0000',
      app.clientId.toUpperCase(),
    ]
    for (const clientId of ids)
      expect(await outcome(core.as().getAccess({ clientId, externalUserId: 'ada' }))).toBe(
        'NOT_FOUND',
      )
    const users = ['', ' ', ' ada', 'a\u0000b', 'a\nb', 'x'.repeat(201)]
    for (const externalUserId of users)
      expect(await outcome(core.as().getAccess({ clientId: app.clientId, externalUserId }))).toBe(
        'NOT_FOUND',
      )
    expect((await m2m.listUsers({ clientId: app.clientId })).users).toEqual([])
  })

  it('reports an inactive user, and the time since which tokens are valid', async () => {
    const { userId } = await access('ada')
    await m2m.deactivateUser({ clientId: app.clientId, externalUserId: 'ada' })
    const next = BigInt(Math.floor(core.clock.now().getTime() / 1000) + 1)
    expect(await access('ada')).toMatchObject({ active: false, tokensValidAfter: next, userId })
    await m2m.upsertUser({ clientId: app.clientId, externalUserId: 'ada', status: 'active' })
    expect(await access('ada')).toMatchObject({ active: true, tokensValidAfter: next, userId })
  })

  it('includes a new grant', async () => {
    await access('ada')
    await m2m.createGrant({ clientId: app.clientId, externalUserId: 'ada', amountUsdMicros: '1' })
    expect(await access('ada')).toMatchObject({ remainingUsdAttos: '5000001000000000000' })
  })
})

describe('verifyApiKey', () => {
  it('returns the user and their access', async () => {
    await m2m.upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
    const { apiKey, keyId } = await m2m.createKey({ clientId: app.clientId, externalUserId: 'ada' })
    const { identity, access: may } = await core.as().verifyApiKey({ apiKey })
    expect(identity).toEqual({
      clientId: app.clientId,
      externalUserId: 'ada',
      userId: may?.userId,
      keyId,
      // The client secret that created the key.
      grants: [expect.any(String)],
    })
    expect(may).toEqual(await access('ada'))
  })

  it('returns one result per key, in order', async () => {
    await m2m.upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
    await m2m.upsertUser({ clientId: app.clientId, externalUserId: 'bob' })
    const ada = await m2m.createKey({ clientId: app.clientId, externalUserId: 'ada' })
    const bob = await m2m.createKey({ clientId: app.clientId, externalUserId: 'bob' })
    await m2m.revokeKey({ clientId: app.clientId, externalUserId: 'bob', keyId: bob.keyId })
    const { answers } = await core
      .as()
      .verifyApiKeys({ apiKeys: [bob.apiKey, ada.apiKey, 'x', ada.apiKey] })
    const answer = await core.as().verifyApiKey({ apiKey: ada.apiKey })
    const nothing = { identity: undefined, access: undefined }
    expect(answers).toEqual([nothing, answer, nothing, answer])
  })

  it('accepts at most 200 keys', async () => {
    const verify = (count: number) =>
      core.as().verifyApiKeys({ apiKeys: Array.from({ length: count }, () => 'x') })
    expect((await verify(200)).answers).toHaveLength(200)
    expect(await refusal(verify(201))).toMatchObject({ reason: 'REQUEST_INVALID' })
  })

  it('rejects all invalid keys with the same error', async () => {
    await m2m.upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
    const { apiKey } = await m2m.createKey({ clientId: app.clientId, externalUserId: 'ada' })
    const unknown = (await core.newApp()).clientId
    await m2m.deactivateUser({ clientId: app.clientId, externalUserId: 'ada' })
    const refusals = await Promise.all(
      [apiKey, 'x', apiKey.replace(app.clientId, unknown), app.secret].map((key) =>
        refusal(core.as().verifyApiKey({ apiKey: key })),
      ),
    )
    expect(new Set(refusals.map(({ reason, message }) => `${reason}: ${message}`))).toEqual(
      new Set(['TOKEN_INVALID: the API key is not valid']),
    )
  })
})

describe('watchInvalidations', () => {
  it('sends revoked keys, deactivated users and changed access, but no earlier events', async () => {
    const { userId } = await access('ada')
    const named = { clientId: app.clientId, externalUserId: 'ada' }
    const [first, other, third] = [
      await m2m.createKey(named),
      await m2m.createKey(named),
      await m2m.createKey(named),
    ]
    await m2m.createGrant({ ...named, amountUsdMicros: '1' })
    const watcher = await watch()
    await m2m.revokeKey({ ...named, keyId: first.keyId })
    await m2m.createGrant({ ...named, amountUsdMicros: '1' })
    await m2m.deactivateUser(named)
    await Promise.all([
      watcher.hears('key', other.keyId),
      watcher.hears('key', third.keyId),
      watcher.hears('user', userId),
    ])
    const heard = watcher.heard.filter(({ id }) =>
      [userId, first.keyId, other.keyId, third.keyId].includes(id),
    )
    const unique = [...new Set(heard.map(({ kind, id }) => `${kind} ${id}`))]
    expect(unique.slice(0, 2)).toEqual([`key ${first.keyId}`, `access ${userId}`])
    expect(unique.slice(2).toSorted()).toEqual(
      [`key ${other.keyId}`, `key ${third.keyId}`, `token ${userId}`, `user ${userId}`].toSorted(),
    )
  })

  it('sends nothing for requests that are rejected or change nothing', async () => {
    const { userId } = await access('ada')
    const named = { clientId: app.clientId, externalUserId: 'ada' }
    const watcher = await watch()
    await outcome(m2m.createGrant({ ...named, amountUsdMicros: '0' }))
    await m2m.upsertUser({ ...named, email: 'ada@example.com' })
    await m2m.deactivateUser(named)
    await watcher.hears('user', userId)
    const before = watcher.heard.length
    await m2m.deactivateUser(named)
    await core.as().getAccess(named)
    const { access: marker } = await core.as().getAccess({ ...named, externalUserId: 'marker' })
    await m2m.deactivateUser({ ...named, externalUserId: 'marker' })
    await watcher.hears('user', marker?.userId ?? '')
    expect(watcher.heard.slice(before).filter(({ id }) => id === userId)).toEqual([])
  })

  it('ends without error within three seconds when core stops', async () => {
    const other = await core.startAnother()
    const streams = await atOnce(5, () => watch(other.core.target))
    const begin = performance.now()
    await other.core.stop()
    expect(performance.now() - begin).toBeLessThan(3_000)
    expect(await Promise.all(streams.map(({ ended }) => ended))).toEqual(streams.map(() => 'OK'))
  })

  it('serves new watchers after others have disconnected', async () => {
    const many = await atOnce(30, () => watch())
    for (const watcher of many) watcher.close()
    expect(await Promise.all(many.map(({ ended }) => ended))).toEqual(many.map(() => 'UNAVAILABLE'))
    const watcher = await watch()
    const { userId } = await access('ada')
    await m2m.deactivateUser({ clientId: app.clientId, externalUserId: 'ada' })
    await watcher.hears('user', userId)
  })
})

// Two cores communicate through Redis, so these tests need one.
describe.each([redisUrl() ?? []].flat())('with Redis at %s', (url) => {
  let shared: TestCore
  let two: Awaited<ReturnType<TestCore['startAnother']>>
  beforeAll(async () => {
    shared = await startTestCore({ REDIS_URL: url })
    two = await shared.startAnother()
  })
  afterAll(() => shared.stop())

  it('reaches watchers of another core, and stores tombstones as long as caches keep identities', async () => {
    const app = await shared.newApp()
    const rpcs = shared.as(app.basic)
    const named = { clientId: app.clientId, externalUserId: 'ada' }
    const { user } = await rpcs.upsertUser(named)
    const { keyId } = await rpcs.createKey(named)
    const watcher = await watch(two.core.target)
    const own = await watch(shared.core.target)
    await rpcs.createGrant({ ...named, amountUsdMicros: '1' })
    await rpcs.deactivateUser(named)
    for (const one of [watcher, own]) {
      await one.hears('access', user?.id ?? '')
      await one.hears('user', user?.id ?? '')
      await one.hears('key', keyId)
    }
    const redis = new Redis(url)
    for (const id of [keyId, user?.id ?? '']) {
      const left = await redis.ttl(`tollgate:revoked:${id}`)
      expect(left).toBeGreaterThan(350)
      expect(left).toBeLessThanOrEqual(420)
    }
    redis.disconnect()
    expect(await shared.core.ready()).toMatchObject({ database: 'ok', redis: 'ok' })
  })

  it('ignores other messages on the channel', async () => {
    const watcher = await watch(two.core.target)
    const redis = new Redis(url)
    const id = randomUUID()
    for (const text of [
      '',
      '{',
      'null',
      '[]',
      '"x"',
      '{"kind":"plan","id":"x"}',
      '{"kind":"key"}',
      '{"kind":"key","id":1}',
      JSON.stringify({ kind: 'key', id }),
    ]) {
      await redis.publish('tollgate:invalidations', text)
    }
    await watcher.hears('key', id)
    expect(watcher.heard.filter((one) => one.id === 'x' || one.kind === 'plan')).toEqual([])
    redis.disconnect()
  })

  it('starts without Redis, and subscribes once it is available', async () => {
    const target = new URL(url)
    const proxy = await startProxy({ host: target.hostname, port: Number(target.port) })
    proxy.mode('refuse')
    const begin = performance.now()
    const late = await shared.startAnother({ REDIS_URL: `redis://127.0.0.1:${proxy.port}` })
    expect(performance.now() - begin).toBeLessThan(5_000)
    expect(await late.core.ready()).toMatchObject({ redis: 'degraded', database: 'ok' })
    const app = await shared.newApp()
    const named = { clientId: app.clientId, externalUserId: 'ada' }
    const watcher = await watch(late.core.target)
    const { user } = await late.as(app.basic).upsertUser(named)
    await late.as(app.basic).createGrant({ ...named, amountUsdMicros: '1' })
    await watcher.hears('access', user?.id ?? '')
    await new Promise((resolve) => setTimeout(resolve, 1_500))

    proxy.mode('pass')
    const before = watcher.heard.length
    // The two connections recover one after the other. Messages until then are lost, within the
    // caches' bound.
    await until(async () => {
      await shared.as(app.basic).createGrant({ ...named, amountUsdMicros: '1' })
      return watcher.heard
        .slice(before)
        .some(({ kind, id }) => kind === 'access' && id === user?.id)
    })
    await until(async () => (await late.core.ready())['redis'] === 'ok')

    proxy.mode('hang')
    const slow = performance.now()
    await late.as(app.basic).upsertUser({ ...named, status: 'active' })
    await late.as(app.basic).deactivateUser(named)
    expect(performance.now() - slow).toBeLessThan(4 * second)
    await late.core.stop()
    proxy.stop()
  })
})
