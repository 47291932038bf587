import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { ListUsersRequest } from '../../../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import {
  type Rpcs,
  type TestApp,
  type TestCore,
  atOnce,
  bearerOf,
  outcome,
  refusal,
  second,
  startProxy,
  startTestCore,
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
})

const upsert = async (change: Parameters<Rpcs['upsertUser']>[0]) => {
  const { user, created } = await m2m.upsertUser({ clientId: app.clientId, ...change })
  if (!user) throw new Error('no user in the answer')
  return { ...user, created }
}
const list = (request: Partial<ListUsersRequest> = {}) =>
  m2m.listUsers({ clientId: app.clientId, ...request })
const deactivate = (externalUserId: string) =>
  m2m.deactivateUser({ clientId: app.clientId, externalUserId })
const countOf = async (
  table: 'subscriptions' | 'grants' | 'end_users' | 'balances',
  userId: string,
) => {
  const column = table === 'end_users' ? 'id' : 'user_id'
  const { rows } = await core.sql.query<{ count: string }>(
    `select count(*) as count from ${table} where ${column} = $1`,
    [userId],
  )
  return Number(rows[0]?.count)
}

describe('upsertUser', () => {
  it('creates an active user with a version 4 id and returns the app', async () => {
    const user = await upsert({ externalUserId: 'ada', email: ' ada@example.com ' })
    expect(user).toMatchObject({
      created: true,
      clientId: app.clientId,
      externalUserId: 'ada',
      email: 'ada@example.com',
      status: 'active',
      createdAt: core.clock.now().toISOString(),
      deactivatedAt: undefined,
    })
    expect(user.id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
  })

  it('creates and changes users of several apps under concurrent calls', async () => {
    const other = await core.newApp()
    await upsert({ externalUserId: 'old-1', email: 'before@example.com' })
    await upsert({ externalUserId: 'old-2' })
    const asked = [
      { externalUserId: 'old-1', email: 'after@example.com' },
      { externalUserId: 'new-1', email: 'new@example.com' },
      { externalUserId: 'old-2', status: 'inactive' },
      { externalUserId: 'new-2', status: 'inactive' },
      { externalUserId: 'new-3' },
    ]
    const [mine, theirs] = await Promise.all([
      Promise.all(asked.map(upsert)),
      core.as(other.basic).upsertUser({ clientId: other.clientId, externalUserId: 'old-1' }),
    ])
    expect(mine).toMatchObject([
      { externalUserId: 'old-1', created: false, email: 'after@example.com', status: 'active' },
      { externalUserId: 'new-1', created: true, email: 'new@example.com', status: 'active' },
      { externalUserId: 'old-2', created: false, status: 'inactive' },
      { externalUserId: 'new-2', created: true, status: 'inactive' },
      { externalUserId: 'new-3', created: true, email: undefined, status: 'active' },
    ])
    expect(theirs).toMatchObject({ created: true, user: { clientId: other.clientId } })
    for (const { id } of mine)
      expect([await countOf('subscriptions', id), await countOf('balances', id)]).toEqual([1, 1])
    const { rows } = await core.sql.query<{ details: { userId: string } }>(
      `select details from audit_log where action = 'app_user_upserted' and actor = $1`,
      [app.m2mClientId],
    )
    expect(rows.map(({ details }) => details.userId).toSorted()).toEqual(
      [...mine, mine[0], mine[2]].map((user) => user?.id).toSorted(),
    )
  })

  it('creates a user once for twenty concurrent calls', async () => {
    const users = await atOnce(20, () => upsert({ externalUserId: 'ada' }))
    expect(users.filter(({ created }) => created)).toHaveLength(1)
    const ids = new Set(users.map(({ id }) => id))
    expect(ids.size).toBe(1)
    for (const id of ids) {
      expect(await countOf('end_users', id)).toBe(1)
      expect(await countOf('subscriptions', id)).toBe(1)
      expect(await countOf('grants', id)).toBe(1)
      expect(await countOf('balances', id)).toBe(1)
    }
  })

  it('creates a user once when upserts and signing provision it concurrently', async () => {
    const created = await atOnce(20, (index) =>
      index % 2 === 0
        ? upsert({ externalUserId: 'ada' }).then((user) => user.id)
        : core
            .as()
            .getAccess({ clientId: app.clientId, externalUserId: 'ada' })
            .then(({ access }) => access?.userId ?? ''),
    )
    expect(new Set(created).size).toBe(1)
    expect(await countOf('grants', created[0] ?? '')).toBe(1)
  })

  it('keeps fields that are not in the request', async () => {
    await upsert({ externalUserId: 'ada', email: 'ada@example.com' })
    expect(await upsert({ externalUserId: 'ada' })).toMatchObject({
      created: false,
      email: 'ada@example.com',
      status: 'active',
    })
    expect(await upsert({ externalUserId: 'ada', email: 'new@example.com' })).toMatchObject({
      email: 'new@example.com',
    })
  })

  it('clears the e-mail address only on request', async () => {
    await upsert({ externalUserId: 'ada', email: 'ada@example.com' })
    expect(await upsert({ externalUserId: 'ada', clearEmail: true })).toMatchObject({
      email: undefined,
    })
  })

  it('keeps an inactive user inactive unless the request sets active', async () => {
    await upsert({ externalUserId: 'ada' })
    await deactivate('ada')
    expect(await upsert({ externalUserId: 'ada' })).toMatchObject({ status: 'inactive' })
    expect(await upsert({ externalUserId: 'ada', status: ' Active ' })).toMatchObject({
      status: 'active',
      deactivatedAt: undefined,
    })
  })

  it('creates an inactive user on request, with a Starter subscription', async () => {
    const user = await upsert({ externalUserId: 'ada', status: 'inactive' })
    expect(user).toMatchObject({
      created: true,
      status: 'inactive',
      deactivatedAt: core.clock.now().toISOString(),
    })
    expect(await countOf('subscriptions', user.id)).toBe(1)
  })

  it('creates different users for the same id in different apps', async () => {
    const other = await core.newApp()
    const mine = await upsert({ externalUserId: 'ada' })
    const { user } = await core
      .as(other.basic)
      .upsertUser({ clientId: other.clientId, externalUserId: 'ada' })
    expect(user?.id).not.toBe(mine.id)
  })

  it.each([
    ['missing', ''],
    ['blank', '   '],
    ['201 bytes', 'x'.repeat(201)],
    ['201 bytes of 101 characters', `${'é'.repeat(100)}x`],
    ['a NUL', 'a\u0000b'],
    ['a line break', 'a\nb'],
    ['a DEL', 'a\u007fb'],
    ['a C1 control', 'a\u0085b'],
    ['a line separator', 'a\u2028b'],
  ])('rejects an externalUserId: %s', async (_what, externalUserId) => {
    const calls = [
      upsert({ externalUserId }),
      m2m.updateUser({ clientId: app.clientId, externalUserId }),
      deactivate(externalUserId),
      m2m.createKey({ clientId: app.clientId, externalUserId }),
      m2m.listKeys({ clientId: app.clientId, externalUserId }),
      m2m.mintUserToken({ clientId: app.clientId, externalUserId }),
      m2m.getAllowance({ clientId: app.clientId, externalUserId }),
      m2m.getBalance({ clientId: app.clientId, externalUserId }),
      m2m.createGrant({ clientId: app.clientId, externalUserId, amountUsdMicros: '1' }),
    ]
    expect(await Promise.all(calls.map(outcome))).toEqual(calls.map(() => 'REQUEST_INVALID'))
  })

  it.each(['owner:ada', ' user:ada'])(
    'does not let an integrator provision %s',
    async (externalUserId) => {
      expect(await outcome(upsert({ externalUserId }))).toBe('REQUEST_INVALID')
      const others = [
        m2m.updateUser({ clientId: app.clientId, externalUserId }),
        deactivate(externalUserId),
      ]
      expect(await Promise.all(others.map(outcome))).toEqual(['NOT_FOUND', 'NOT_FOUND'])
      expect(await outcome(m2m.createKey({ clientId: app.clientId, externalUserId }))).toBe(
        'NOT_FOUND',
      )
    },
  )

  it.each(['ada\u200b', '--', 'ada (registered with Acme)', 'reg1stered-with'])(
    'accepts %j only for existing users',
    async (externalUserId) => {
      const user = { clientId: app.clientId, externalUserId }
      expect(await outcome(upsert({ externalUserId }))).toBe('REQUEST_INVALID')
      expect(await outcome(m2m.mintUserToken(user))).toBe('NOT_FOUND')
      await upsert({ externalUserId: 'before' })
      await core.sql.query(
        `update end_users set external_user_id = $2
         where external_user_id = 'before' and app_id = (select app_id from clients where client_id = $1)`,
        [app.clientId, externalUserId],
      )
      const calls = [
        upsert({ externalUserId, email: 'ada@example.com' }),
        m2m.updateUser(user),
        m2m.createKey(user),
        m2m.mintUserToken(user),
        m2m.getAllowance(user),
        core.as().getAccess(user),
      ]
      expect(await Promise.all(calls.map(outcome))).toEqual(calls.map(() => 'OK'))
      expect(await outcome(deactivate(externalUserId))).toBe('OK')
    },
  )

  it.each([
    '1%',
    '100%25',
    'a/b',
    '../x',
    'a:b',
    'a+b',
    'a b',
    '😀1',
    'x'.repeat(200),
    `${'😀'.repeat(49)}1234`,
    'Owner:ada',
    'null',
    'app_0123456789abcdef01234567',
    "'; drop table end_users; --",
    '{1}',
    'İ',
    'ada@example.com',
  ])('accepts %s as an externalUserId and finds the user', async (externalUserId) => {
    const user = await upsert({ externalUserId })
    expect(user.externalUserId).toBe(externalUserId)
    const { users } = await list({ externalUserId })
    expect(users.map(({ id }) => id)).toEqual([user.id])
    expect(await outcome(m2m.mintUserToken({ clientId: app.clientId, externalUserId }))).toBe('OK')
    const { user: ended } = await deactivate(` ${externalUserId} `)
    expect(ended?.id).toBe(user.id)
  })

  it.each([
    ['an unknown status', { status: 'deleted' }],
    ['an empty status', { status: '' }],
    ['no address', { email: 'ada' }],
    ['an empty e-mail', { email: '' }],
    ['two @', { email: 'a@b@c' }],
    ['a NUL in the e-mail', { email: 'a\u0000@b.c' }],
    ['a long e-mail', { email: `${'x'.repeat(65)}@example.com` }],
  ])('rejects %s', async (_what, change) => {
    expect(await outcome(upsert({ externalUserId: 'ada', ...change }))).toBe('REQUEST_INVALID')
    expect((await list()).users).toEqual([])
  })
})

describe('updateUser', () => {
  it('never creates a user', async () => {
    expect(await outcome(m2m.updateUser({ clientId: app.clientId, externalUserId: 'ada' }))).toBe(
      'NOT_FOUND',
    )
    expect((await list()).users).toEqual([])
  })

  it('changes the fields in the request', async () => {
    await upsert({ externalUserId: 'ada', email: 'ada@example.com' })
    core.clock.advance(second)
    const { user } = await m2m.updateUser({
      clientId: app.clientId,
      externalUserId: 'ada',
      status: 'inactive',
    })
    expect(user).toMatchObject({
      email: 'ada@example.com',
      status: 'inactive',
      updatedAt: core.clock.now().toISOString(),
    })
  })
})

describe('listUsers', () => {
  it('lists users in order of creation, including inactive ones, and filters', async () => {
    for (const externalUserId of ['c', 'a', 'b']) {
      await upsert({ externalUserId })
      core.clock.advance(1)
    }
    await deactivate('a')
    const names = async (request: Partial<ListUsersRequest>) =>
      (await list(request)).users.map((user) => user.externalUserId)
    expect(await names({})).toEqual(['c', 'a', 'b'])
    expect(await names({ status: 'inactive' })).toEqual(['a'])
    expect(await names({ status: 'ACTIVE' })).toEqual(['c', 'b'])
    expect(await names({ externalUserId: ' b ' })).toEqual(['b'])
    expect(await names({ externalUserId: 'b', status: 'inactive' })).toEqual([])
  })

  it('pages through users of the same time without loss or repetition', async () => {
    await atOnce(25, (index) => upsert({ externalUserId: `u${index}` }))
    const seen: string[] = []
    let cursor: string | undefined
    let pages = 0
    do {
      const page = await list({ limit: 4, cursor })
      expect(page.users.length).toBeLessThanOrEqual(4)
      seen.push(...page.users.map(({ id }) => id))
      cursor = page.nextCursor
      pages += 1
    } while (cursor !== undefined && pages < 20)
    expect(pages).toBe(7)
    expect(seen).toEqual(seen.toSorted())
    expect(new Set(seen).size).toBe(25)
  })

  it('has no next page when the last one is exactly full', async () => {
    await atOnce(4, (index) => upsert({ externalUserId: `u${index}` }))
    expect((await list({ limit: 4 })).nextCursor).toBeUndefined()
  })

  it('lists nothing of another app, even with its cursor', async () => {
    const other = await core.newApp()
    await atOnce(3, (index) =>
      core.as(other.basic).upsertUser({ clientId: other.clientId, externalUserId: `u${index}` }),
    )
    const foreign = await core.as(other.basic).listUsers({ clientId: other.clientId, limit: 1 })
    expect(foreign.nextCursor).toBeDefined()
    expect((await list({ cursor: foreign.nextCursor })).users).toEqual([])
  })

  const id = '0b9f4f3e-7f5a-4f0e-9f5e-2d2f0f1a2b3c'
  const encoded = (text: string): string => Buffer.from(text).toString('base64url')
  it.each([
    ['a limit above the maximum', { limit: 1001 }],
    ['an unknown status', { status: 'gone' }],
    ['an invalid cursor', { cursor: 'x' }],
    ['a cursor without an id', { cursor: encoded('2026-01-01T00:00:00.000Z ') }],
    ['a cursor of another form', { cursor: encoded(`2026 ${id}`) }],
    ['a cursor from before the calendar', { cursor: encoded(`-271821-04-20T00:00:00.000Z ${id}`) }],
    ['a cursor with extra text', { cursor: encoded(`2026-01-01T00:00:00.000Z ${id} x`) }],
    ['a cursor with a NUL', { cursor: encoded(`2026-01-01T00:00:00.000Z ${id}\u0000`) }],
    ['a NUL in the filter', { externalUserId: 'a\u0000' }],
  ])('rejects %s', async (_what, request) => {
    expect(await outcome(list(request))).toBe('REQUEST_INVALID')
  })
})

describe('deactivateUser', () => {
  it('ends the keys, keeps the first time, and returns when caches have expired', async () => {
    await upsert({ externalUserId: 'ada' })
    const { apiKey } = await m2m.createKey({ clientId: app.clientId, externalUserId: 'ada' })
    expect(await outcome(core.as().verifyApiKey({ apiKey }))).toBe('OK')
    const first = await deactivate('ada')
    const at = core.clock.now()
    expect(first.user).toMatchObject({ status: 'inactive', deactivatedAt: at.toISOString() })
    expect(new Date(first.effectiveBy).getTime()).toBe(at.getTime() + 420 * second)
    expect(await outcome(core.as().verifyApiKey({ apiKey }))).toBe('TOKEN_INVALID')
    core.clock.advance(5 * second)
    const again = await deactivate('ada')
    expect(again).toMatchObject({
      effectiveBy: first.effectiveBy,
      user: { deactivatedAt: at.toISOString() },
    })
  })

  it('leaves keys revoked after a reactivation', async () => {
    await upsert({ externalUserId: 'ada' })
    const { apiKey } = await m2m.createKey({ clientId: app.clientId, externalUserId: 'ada' })
    await deactivate('ada')
    await upsert({ externalUserId: 'ada', status: 'active' })
    expect(await outcome(core.as().verifyApiKey({ apiKey }))).toBe('TOKEN_INVALID')
    expect(
      await outcome(core.as(bearerOf(apiKey)).exchangeApiKey({ clientId: app.clientId })),
    ).toBe('CREDENTIAL_INVALID')
    const { keys } = await m2m.listKeys({ clientId: app.clientId, externalUserId: 'ada' })
    expect(keys).toMatchObject([{ status: 'revoked' }])
  })

  it('leaves no valid key when keys are created concurrently', async () => {
    for (let round = 0; round < 5; round++) {
      const externalUserId = `ada${round}`
      await upsert({ externalUserId })
      await Promise.all([
        ...Array.from({ length: 6 }, () =>
          outcome(m2m.createKey({ clientId: app.clientId, externalUserId })),
        ),
        deactivate(externalUserId),
        ...Array.from({ length: 6 }, () =>
          outcome(m2m.createKey({ clientId: app.clientId, externalUserId })),
        ),
      ])
      await upsert({ externalUserId, status: 'active' })
      const { keys } = await m2m.listKeys({ clientId: app.clientId, externalUserId })
      expect(keys.filter(({ status }) => status === 'active')).toEqual([])
    }
  })

  it('revokes tokens of the same second, but not those after a reactivation', async () => {
    await upsert({ externalUserId: 'ada' })
    const mint = async () =>
      (await m2m.mintUserToken({ clientId: app.clientId, externalUserId: 'ada' })).accessToken
    const use = (token: string) => outcome(core.as(bearerOf(token)).getOwnBalance())
    const before = await mint()
    expect(await use(before)).toBe('OK')
    await deactivate('ada')
    expect(await use(before)).toBe('TOKEN_INVALID')
    await upsert({ externalUserId: 'ada', status: 'active' })
    expect(await use(before)).toBe('TOKEN_INVALID')
    const after = await mint()
    expect(await use(after)).toBe('OK')
    core.clock.advance(2 * second)
    expect(await use(before)).toBe('TOKEN_INVALID')
    expect(await use(after)).toBe('OK')
    await deactivate('ada')
    expect(await use(after)).toBe('TOKEN_INVALID')
  })

  it('prevents new tokens, exchanges and keys', async () => {
    await upsert({ externalUserId: 'ada' })
    await deactivate('ada')
    const named = { clientId: app.clientId, externalUserId: 'ada' }
    expect(await outcome(m2m.mintUserToken(named))).toBe('NOT_FOUND')
    expect(await outcome(m2m.createKey(named))).toBe('NOT_FOUND')
    expect(await core.as().getAccess(named)).toMatchObject({ access: { active: false } })
  })

  it("rejects an unknown user and another app's user alike", async () => {
    const other = await core.newApp()
    await core.as(other.basic).upsertUser({ clientId: other.clientId, externalUserId: 'theirs' })
    const [unknown, foreign] = await Promise.all([
      refusal(deactivate('nobody')),
      refusal(deactivate('theirs')),
    ])
    expect(unknown.reason).toBe('NOT_FOUND')
    expect(foreign.message).toBe(unknown.message)
  })

  it('writes the actor into the audit log', async () => {
    const user = await upsert({ externalUserId: 'ada' })
    await deactivate('ada')
    const { rows } = await core.sql.query(
      `select actor, action, status from audit_log where details->>'userId' = $1 order by id`,
      [user.id],
    )
    expect(rows).toEqual(
      expect.arrayContaining([
        { actor: app.m2mClientId, action: 'app_user_upserted', status: 'success' },
        { actor: app.m2mClientId, action: 'app_user_deactivated', status: 'success' },
      ]),
    )
  })

  it('waits only once for an unresponsive Redis', async () => {
    const hanging = await startProxy({ host: '127.0.0.1', port: 1 })
    hanging.mode('hang')
    const slow = await core.startAnother({ REDIS_URL: `redis://127.0.0.1:${hanging.port}` })
    await upsert({ externalUserId: 'ada' })
    await atOnce(8, () => m2m.createKey({ clientId: app.clientId, externalUserId: 'ada' }))
    const begin = performance.now()
    await slow.as(app.basic).deactivateUser({ clientId: app.clientId, externalUserId: 'ada' })
    expect(performance.now() - begin).toBeLessThan(3_000)
    await slow.core.stop()
    hanging.stop()
  })
})
