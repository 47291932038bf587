import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { CreateKeyRequest } from '../../../proto/gen/ts-proto/tollgate/keys/v1/keys.ts'
import { createIdempotency } from '../../../core/shared/idempotency.ts'
import { createSealing } from '../../../core/shared/sealing/sealing.ts'
import {
  type Rpcs,
  type TestApp,
  type TestCore,
  atOnce,
  bearerOf,
  day,
  outcome,
  refusal,
  second,
  startTestCore,
  lockWaits,
  storedHash,
} from '../support.ts'

let core: TestCore
let app: TestApp
let m2m: Rpcs
beforeAll(async () => {
  core = await startTestCore()
})
afterAll(() => core.stop())
beforeEach(async () => {
  app = await core.newApp()
  m2m = core.as(app.basic)
  await m2m.upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
})

const createKey = (request: Partial<CreateKeyRequest> = {}) =>
  m2m.createKey({ clientId: app.clientId, externalUserId: 'ada', ...request })
const listKeys = (externalUserId = 'ada') =>
  m2m.listKeys({ clientId: app.clientId, externalUserId })
const revoke = (keyId: string, externalUserId = 'ada') =>
  m2m.revokeKey({ clientId: app.clientId, externalUserId, keyId })
const verify = (apiKey: string) => outcome(core.as().verifyApiKey({ apiKey }))
const secretOf = (apiKey: string): string => apiKey.slice(app.clientId.length + 1)

describe('a revoked key', () => {
  const entries = async (keyId: string) => {
    const { rows } = await core.sql.query<{ status: string }>(
      "select status from audit_log where action = 'api_key_refused' and actor = $1",
      [keyId],
    )
    return rows.map(({ status }) => status)
  }

  it('adds at most one audit entry an hour for its uses', async () => {
    const { keyId, apiKey } = await createKey()
    expect(await verify(apiKey)).toBe('OK')
    await revoke(keyId)
    expect(await entries(keyId)).toEqual([])
    await atOnce(5, () => verify(apiKey))
    expect(await verify(apiKey)).toBe('TOKEN_INVALID')
    expect(await entries(keyId)).toEqual(['refused'])
    core.clock.advance(3_601 * second)
    await verify(apiKey)
    expect(await entries(keyId)).toEqual(['refused', 'refused'])
  })
})

describe('a key', () => {
  it('is limited to a hundred per user, also under concurrent calls', async () => {
    await m2m.upsertUser({ clientId: app.clientId, externalUserId: 'bob' })
    const [ada, bob] = await Promise.all([
      atOnce(110, () => outcome(createKey())),
      atOnce(5, () => outcome(createKey({ externalUserId: 'bob' }))),
    ])
    expect(ada.filter((one) => one === 'OK')).toHaveLength(100)
    expect(ada.filter((one) => one === 'CONFLICT')).toHaveLength(10)
    expect(bob).toEqual(bob.map(() => 'OK'))
  })

  it('names its app and is returned only once', async () => {
    const created = await createKey({ label: 'laptop' })
    expect(created.apiKey).toMatch(new RegExp(`^${app.clientId}_svc_ak_[0-9A-Za-z]{49}$`))
    expect(created).toMatchObject({
      clientId: app.clientId,
      externalUserId: 'ada',
      label: 'laptop',
      createdAt: core.clock.now().toISOString(),
    })
    const { keys } = await listKeys()
    expect(keys).toEqual([
      {
        keyId: created.keyId,
        createdAt: created.createdAt,
        status: 'active',
        revokedAt: undefined,
        lastUsedAt: undefined,
        prefix: secretOf(created.apiKey).slice(0, 'svc_ak_'.length + 6),
        label: 'laptop',
      },
    ])
  })

  it('is accepted in all forms', async () => {
    const { apiKey, keyId } = await createKey()
    const secret = secretOf(apiKey)
    const bare = secret.slice('svc_ak_'.length)
    for (const form of [apiKey, secret, bare, `${app.clientId}_${bare}`]) {
      const { identity, access } = await core.as().verifyApiKey({ apiKey: form })
      expect(identity).toMatchObject({ clientId: app.clientId, externalUserId: 'ada', keyId })
      expect(access).toMatchObject({
        active: true,
        userId: identity?.userId,
        remainingUsdAttos: '5000000000000000000',
      })
    }
  })

  it('is rejected with another app, when mistyped, and as another kind of secret', async () => {
    const { apiKey } = await createKey()
    const other = await core.newApp()
    const secret = secretOf(apiKey)
    const refused = [
      `${other.clientId}_${secret}`,
      `app_${'0'.repeat(24)}_${secret}`,
      `${app.m2mClientId}_${secret}`,
      apiKey.slice(0, -1),
      `${apiKey}0`,
      ` ${apiKey}`,
      `${apiKey}\u0000`,
      apiKey.toLowerCase(),
      app.secret,
      `${app.clientId}_${app.secret}`,
      app.secret.slice('svc_cs_'.length),
      '',
      'svc_ak_',
      `${app.clientId}_`,
      'x'.repeat(10_000),
    ]
    for (const form of refused)
      expect([form.slice(0, 90), await verify(form)]).toEqual([form.slice(0, 90), 'TOKEN_INVALID'])
  })

  it('is rejected without a look-up when its checksum is wrong', async () => {
    const { apiKey } = await createKey()
    const last = apiKey.at(-1) === '0' ? '1' : '0'
    // Without the table, any look-up fails.
    await core.sql.query('alter table api_keys rename to api_keys_away')
    try {
      expect(await verify(apiKey.slice(0, -1) + last)).toBe('TOKEN_INVALID')
      expect(await verify('svc_ak_unheard-of')).toBe('TOKEN_INVALID')
      expect(await verify(apiKey)).toBe('INTERNAL')
    } finally {
      await core.sql.query('alter table api_keys_away rename to api_keys')
    }
    expect(await verify(apiKey)).toBe('OK')
  })

  it('records its use at most once a minute', async () => {
    const { apiKey } = await createKey()
    const lastUsed = async () => (await listKeys()).keys[0]?.lastUsedAt
    const first = core.clock.now().toISOString()
    await verify(apiKey)
    core.clock.advance(59 * second)
    await verify(apiKey)
    expect(await lastUsed()).toBe(first)
    core.clock.advance(2 * second)
    await verify(apiKey)
    expect(await lastUsed()).toBe(core.clock.now().toISOString())
  })

  it.each([
    ['a long label, cut', 'x'.repeat(300), 'x'.repeat(100)],
    ['control characters, replaced', 'a\u0000b\nc', 'a b c'],
    ['bidirectional controls, replaced', 'a\u202eb', 'a b'],
    ['half a character, replaced', `${'x'.repeat(99)}😀`, `${'x'.repeat(99)}\ufffd`],
    ['nothing', '', ''],
  ])('stores %s as the label', async (_what, label, stored) => {
    expect((await createKey({ label })).label).toBe(stored)
    expect((await listKeys()).keys[0]?.label).toBe(stored)
  })
})

describe('revokeKey', () => {
  it('ends the key immediately and keeps the first revocation time', async () => {
    const { apiKey, keyId } = await createKey()
    const at = core.clock.now().toISOString()
    const first = await revoke(keyId)
    expect(first).toMatchObject({
      revokedAt: at,
      effectiveBy: new Date(Date.parse(at) + 420 * second).toISOString(),
    })
    expect(await verify(apiKey)).toBe('TOKEN_INVALID')
    expect(
      await outcome(core.as(bearerOf(apiKey)).exchangeApiKey({ clientId: app.clientId })),
    ).toBe('CREDENTIAL_INVALID')
    core.clock.advance(5 * second)
    expect(await revoke(keyId)).toEqual(first)
    expect((await listKeys()).keys).toMatchObject([{ status: 'revoked', revokedAt: at }])
  })

  it('accepts a key of an inactive user and keeps its revocation time', async () => {
    const { keyId } = await createKey()
    await m2m.deactivateUser({ clientId: app.clientId, externalUserId: 'ada' })
    const at = core.clock.now().toISOString()
    core.clock.advance(5 * second)
    expect(await revoke(keyId)).toMatchObject({ revokedAt: at })
  })

  it("returns NOT_FOUND for another user's or app's key and for a malformed id", async () => {
    await m2m.upsertUser({ clientId: app.clientId, externalUserId: 'bob' })
    const other = await core.newApp()
    const theirs = core.as(other.basic)
    await theirs.upsertUser({ clientId: other.clientId, externalUserId: 'ada' })
    const foreign = await theirs.createKey({ clientId: other.clientId, externalUserId: 'ada' })
    const { keyId, apiKey } = await createKey()
    const refusals = await Promise.all([
      refusal(revoke(keyId, 'bob')),
      refusal(revoke(foreign.keyId)),
      refusal(revoke('0197aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee')),
      refusal(revoke('')),
      refusal(revoke('x\u0000')),
    ])
    expect(refusals.map(({ reason }) => reason)).toEqual(refusals.map(() => 'NOT_FOUND'))
    expect(new Set(refusals.map(({ message }) => message)).size).toBe(1)
    expect(await verify(apiKey)).toBe('OK')
    expect(await verify(foreign.apiKey)).toBe('OK')
  })
})

describe('listKeys', () => {
  it("lists one user's keys in order of creation, without secrets", async () => {
    const created = [await createKey()]
    core.clock.advance(1)
    created.push(await createKey())
    await m2m.upsertUser({ clientId: app.clientId, externalUserId: 'bob' })
    expect((await listKeys()).keys.map(({ keyId }) => keyId)).toEqual(
      created.map(({ keyId }) => keyId),
    )
    expect((await listKeys('bob')).keys).toEqual([])
    const listing = JSON.stringify(await listKeys())
    for (const { apiKey } of created) expect(listing).not.toContain(secretOf(apiKey).slice(0, 20))
  })

  it('continues after a cursor', async () => {
    await atOnce(5, () => createKey())
    const first = await m2m.listKeys({ clientId: app.clientId, externalUserId: 'ada', limit: 3 })
    const rest = await m2m.listKeys({
      clientId: app.clientId,
      externalUserId: 'ada',
      limit: 3,
      cursor: first.nextCursor,
    })
    expect(new Set([...first.keys, ...rest.keys].map(({ keyId }) => keyId)).size).toBe(5)
    expect(rest.nextCursor).toBeUndefined()
  })

  it('returns NOT_FOUND for an unknown or inactive user', async () => {
    expect(await outcome(listKeys('nobody'))).toBe('NOT_FOUND')
    await m2m.deactivateUser({ clientId: app.clientId, externalUserId: 'ada' })
    expect(await outcome(listKeys())).toBe('NOT_FOUND')
  })
})

describe('createKey with an Idempotency-Key', () => {
  it('replays the same secret and creates one key', async () => {
    const first = await createKey({ idempotencyKey: 'k-1', label: 'a' })
    core.clock.advance(day - 1)
    expect(await createKey({ idempotencyKey: 'k-1', label: 'a' })).toEqual(first)
    expect((await listKeys()).keys).toHaveLength(1)
  })

  it('creates one key for twenty concurrent calls', async () => {
    const ended = await atOnce(20, () =>
      createKey({ idempotencyKey: 'k-1' }).then(
        ({ apiKey }) => apiKey,
        (error: Error) => ('reason' in error ? error.reason : error),
      ),
    )
    const answers = new Set(ended.filter((answer) => answer !== 'IDEMPOTENCY_CONFLICT'))
    expect(answers.size).toBe(1)
    expect((await listKeys()).keys).toHaveLength(1)
    expect(await verify(String([...answers][0]))).toBe('OK')
  })

  it('rejects a repeat while the first call is running', async () => {
    const blocker = await core.sql.connect()
    await blocker.query('begin')
    await blocker.query(`select 1 from end_users where external_user_id = 'ada' for update`)
    const running = createKey({ idempotencyKey: 'k-1' })
    await expect.poll(async () => (await core.sql.query(lockWaits)).rowCount).toBeGreaterThan(0)
    expect(await outcome(createKey({ idempotencyKey: 'k-1' }))).toBe('IDEMPOTENCY_CONFLICT')
    await blocker.query('commit')
    blocker.release()
    const created = await running
    expect(await createKey({ idempotencyKey: 'k-1' })).toEqual(created)
  })

  it('rejects another body', async () => {
    await m2m.upsertUser({ clientId: app.clientId, externalUserId: 'bob' })
    await createKey({ idempotencyKey: 'k-1' })
    expect(await outcome(createKey({ idempotencyKey: 'k-1', label: 'x' }))).toBe(
      'IDEMPOTENCY_CONFLICT',
    )
    expect(await outcome(createKey({ idempotencyKey: 'k-1', externalUserId: 'bob' }))).toBe(
      'IDEMPOTENCY_CONFLICT',
    )
    expect((await listKeys()).keys).toHaveLength(1)
  })

  it('replays the secret for 24 hours and creates no second key later', async () => {
    const created = await createKey({ idempotencyKey: 'k-1' })
    const idempotency = createIdempotency({
      pool: core.sql,
      sealing: createSealing(['x'.repeat(32)]),
      now: core.clock.now,
    })
    core.clock.advance(day - second)
    await idempotency.forgetOld()
    expect(await createKey({ idempotencyKey: 'k-1' })).toEqual(created)
    core.clock.advance(second)
    expect((await refusal(createKey({ idempotencyKey: 'k-1' }))).message).toMatch(/24 hours/)
    core.clock.advance(second)
    await idempotency.forgetOld()
    const { rows } = await core.sql.query(
      `select sealed_reply from idempotency_keys where scope = $1 and key = 'k-1'`,
      [`${app.m2mClientId}:keys`],
    )
    expect(rows).toEqual([{ sealed_reply: null }])
    expect(await outcome(createKey({ idempotencyKey: 'k-1' }))).toBe('IDEMPOTENCY_CONFLICT')
    expect((await listKeys()).keys).toHaveLength(1)
  })

  it('does not collide with another app or operation', async () => {
    const other = await core.newApp()
    const theirs = core.as(other.basic)
    await theirs.upsertUser({ clientId: other.clientId, externalUserId: 'ada' })
    const mine = await createKey({ idempotencyKey: 'k-1' })
    const foreign = await theirs.createKey({
      clientId: other.clientId,
      externalUserId: 'ada',
      idempotencyKey: 'k-1',
    })
    expect(foreign.keyId).not.toBe(mine.keyId)
    expect(
      await outcome(
        m2m.createGrant({
          clientId: app.clientId,
          externalUserId: 'ada',
          amountUsdMicros: '1',
          idempotencyKey: 'k-1',
        }),
      ),
    ).toBe('OK')
  })

  it('stores nothing for a rejected request', async () => {
    expect(await outcome(createKey({ externalUserId: 'bob', idempotencyKey: 'k-1' }))).toBe(
      'NOT_FOUND',
    )
    await m2m.upsertUser({ clientId: app.clientId, externalUserId: 'bob' })
    expect(await outcome(createKey({ externalUserId: 'bob', idempotencyKey: 'k-1' }))).toBe('OK')
  })

  it.each([
    ['', 'empty'],
    ['x'.repeat(256), 'too long'],
    ['a b', 'with a blank'],
    ['é', 'not ASCII'],
    ['a\u0000', 'with a NUL'],
  ])('rejects the Idempotency-Key %j: %s', async (idempotencyKey) => {
    expect(await outcome(createKey({ idempotencyKey }))).toBe('REQUEST_INVALID')
  })
})

describe('the limit of keys per user', () => {
  it('holds under concurrent calls and frees a place after a revocation', async () => {
    await atOnce(95, () => createKey())
    const ends = await atOnce(20, () => outcome(createKey()))
    expect(ends.filter((end) => end === 'OK')).toHaveLength(5)
    expect(ends.filter((end) => end === 'CONFLICT')).toHaveLength(15)
    const { keys } = await listKeys()
    expect(keys).toHaveLength(100)
    await revoke(keys[0]?.keyId ?? '')
    expect(await outcome(createKey())).toBe('OK')
  })
})

describe('the database', () => {
  it('contains no secret in plain text', async () => {
    const { apiKey } = await createKey({ idempotencyKey: 'k-1' })
    await verify(apiKey)
    const machine = await m2m.issueMachineToken()
    const user = await m2m.mintUserToken({ clientId: app.clientId, externalUserId: 'ada' })
    const { ownerPassword = '' } = await core
      .as()
      .createApp({ name: 'x', ownerEmail: 'secret@example.com' })
    const bare = secretOf(apiKey).slice('svc_ak_'.length)
    const everything = await dump()
    expect(everything).toContain(storedHash(secretOf(apiKey)).toString('hex'))
    // The displayed prefix of a key is public; the rest is not.
    const secrets = [
      bare,
      bare.slice(6, 26),
      app.secret,
      app.secret.slice(20, 40),
      ownerPassword,
      machine.accessToken,
      user.accessToken,
      'PRIVATE KEY',
    ]
    for (const secret of secrets) {
      expect(secret.length).toBeGreaterThan(10)
      expect(everything.includes(secret)).toBe(false)
      expect(everything.includes(Buffer.from(secret).toString('hex'))).toBe(false)
      expect(everything.includes(Buffer.from(secret).toString('base64').replace(/=+$/, ''))).toBe(
        false,
      )
    }
  })
})

/** Returns every row of every table as text, with bytea in hex. */
async function dump(): Promise<string> {
  const { rows: tables } = await core.sql.query<{ name: string }>(
    `select format('%I.%I', schemaname, tablename) as name from pg_tables where schemaname not in ('pg_catalog', 'information_schema')`,
  )
  const texts: string[] = []
  for (const { name } of tables) {
    const { rows } = await core.sql.query<{ row: string }>(`select t::text as row from ${name} t`)
    texts.push(...rows.map(({ row }) => row))
  }
  return texts.join('\n')
}
