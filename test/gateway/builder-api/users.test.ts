import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectCore } from '../../../deploy/cli/client.ts'
import { basicOf, serviceToken, storedHash } from '../../core/support.ts'
import { logInTo, manage } from '../../support/web/people.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { type Builder, type Tenant, startBuilder, verdictOf } from './support.ts'

let builder: Builder
let mine: Tenant
let theirs: Tenant
beforeAll(async () => {
  builder = await startBuilder()
  mine = await builder.newTenant('mine')
  theirs = await builder.newTenant('theirs')
})
afterAll(() => builder.stop())

const usersOf = (clientId: string): string => `/api/v1/apps/${clientId}/users`
const unknownApp = (): string => `app_${randomBytes(12).toString('hex')}`
let count = 0
const someone = (): string => `someone-${++count}`

const create = (json: unknown, authorization: string | null = mine.tenantBasic) =>
  builder.ask('POST', usersOf(mine.clientId), { authorization, json })

describe('authorization to create users', () => {
  it.each([
    ['the tenant', () => mine.tenantBasic],
    ["the app's M2M client", () => mine.basic],
  ])('accepts %s', async (_who, authorization) => {
    const { status, headers, body } = await create({ externalUserId: someone() }, authorization())
    expect(status).toBe(201)
    expect(headers.get('cache-control')).toBe('no-store')
    registerSecret(String(body['apiKey']))
  })

  it('accepts the M2M client of a platform-owned app that serves every app', async () => {
    const platform = await builder.real.core.newApp({ isCustomer: false })
    const json = { externalUserId: someone(), issueApiKey: false }
    expect(verdictOf(await create(json, platform.basic))).toBe('404 not_found')
    const target = builder.real.core.core.target
    const operator = connectCore({ target, token: serviceToken, tls: undefined })
    const { clientId } = platform
    const same = {
      billingMode: undefined,
      endUserCap: undefined,
      isPlatformOwned: undefined,
      servesEveryApp: undefined,
      platformCutPercent: undefined,
    }
    await operator.billing.updateBillingSettings({ ...same, clientId, isPlatformOwned: true })
    expect(verdictOf(await create(json, platform.basic))).toBe('404 not_found')
    await operator.billing.updateBillingSettings({ ...same, clientId, servesEveryApp: true })
    operator.close()
    expect(verdictOf(await create(json, platform.basic))).toBe('201')
    const unknown = await builder.ask('POST', usersOf(unknownApp()), {
      authorization: platform.basic,
      json,
    })
    expect(verdictOf(unknown)).toBe('404 not_found')
  })

  it.each([
    ['nobody', () => null],
    ['a wrong secret', () => basicOf(mine.clientId, 'svc_ts_wrong')],
    ['an unknown tenant', () => basicOf(unknownApp(), 'svc_ts_wrong')],
    ["the M2M client's secret under the tenant's name", () => swapped()],
    ['a machine token', () => mine.machineToken],
    ['a user token', () => mine.userToken],
    ['an API key', () => mine.apiKey],
  ])('returns 401 for any path and body: %s', async (_who, authorization) => {
    for (const clientId of [mine.clientId, theirs.clientId, unknownApp(), mine.m2mClientId]) {
      const answer = await builder.ask('POST', usersOf(clientId), {
        authorization: authorization(),
        json: [],
      })
      expect(verdictOf(answer)).toBe('401 credential_invalid')
      expect(answer.headers.get('www-authenticate')).toMatch(/^Basic /)
    }
  })

  it('answers another app like an unknown one, before reading the body', async () => {
    for (const authorization of [mine.tenantBasic, mine.basic])
      for (const clientId of [theirs.clientId, unknownApp(), mine.m2mClientId]) {
        const answer = await builder.ask('POST', usersOf(clientId), { authorization, text: '{' })
        expect(verdictOf(answer)).toBe('404 not_found')
        expect(answer.body['detail']).toBe('no such app for this credential')
      }
  })

  it('requires users:write of an M2M client, after checking the app and before the body', async () => {
    const app = await builder.newTenant('scopeless')
    await builder.real.core.sql.query(
      "update clients set scopes = '{users:read}' where client_id = $1",
      [app.m2mClientId],
    )
    const ask = { authorization: app.basic, text: '{' }
    expect(verdictOf(await builder.ask('POST', usersOf(app.clientId), ask))).toBe(
      '403 scope_missing',
    )
    expect(verdictOf(await builder.ask('POST', usersOf(mine.clientId), ask))).toBe('404 not_found')
  })
})

const swapped = (): string => {
  const [, secret = ''] = Buffer.from(mine.basic.slice(6), 'base64').toString().split(':')
  return basicOf(mine.clientId, secret)
}

describe('creating a user', () => {
  it('returns 201 with the user and its key, then 200 without a key', async () => {
    const externalUserId = someone()
    const first = await create({ externalUserId, email: 'Ada@Example.com' })
    expect(first.status).toBe(201)
    expect(first.body).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      clientId: mine.clientId,
      externalUserId,
      email: 'ada@example.com',
      status: 'active',
      apiKey: expect.stringMatching(/^sk_[0-9A-Za-z]{49}$/),
    })
    const { apiKey, ...user } = first.body
    registerSecret(String(apiKey))
    const second = await create({ externalUserId })
    expect(second.status).toBe(200)
    expect(second.body).toEqual(user)
  })

  it('issues no key with issueApiKey false, and one key when later requested', async () => {
    const externalUserId = someone()
    expect((await create({ externalUserId, issueApiKey: false })).body).not.toHaveProperty('apiKey')
    expect((await create({ externalUserId })).body).not.toHaveProperty('apiKey')
    const { status, body } = await create({ externalUserId, issueApiKey: true })
    expect(status).toBe(200)
    expect(registerSecret(String(body['apiKey']))).toMatch(/^sk_/)
    expect((await create({ externalUserId, issueApiKey: true })).body).not.toHaveProperty('apiKey')
  })

  it('issues no key to an inactive user and does not reactivate it', async () => {
    const externalUserId = someone()
    await create({ externalUserId, issueApiKey: false })
    await builder.real.core.as(mine.basic).deactivateUser({
      clientId: mine.clientId,
      externalUserId,
    })
    const { status, body } = await create({ externalUserId, issueApiKey: true })
    expect(status).toBe(200)
    expect(body).toMatchObject({ status: 'inactive' })
    expect(body).not.toHaveProperty('apiKey')
  })

  it('keeps the address when a later request omits it', async () => {
    const externalUserId = someone()
    const issueApiKey = false
    await create({ externalUserId, issueApiKey, email: 'one@example.com' })
    expect((await create({ externalUserId })).body['email']).toBe('one@example.com')
    const { body } = await create({ externalUserId, email: 'two@example.com' })
    expect(body['email']).toBe('two@example.com')
  })

  it('creates one user and one key for 200 concurrent requests, with one 201', async () => {
    const externalUserId = someone()
    const answers = await Promise.all(
      Array.from({ length: 200 }, (_, index) =>
        create(
          index % 2 === 0 ? { externalUserId } : { externalUserId, issueApiKey: true },
          index % 3 === 0 ? mine.basic : mine.tenantBasic,
        ),
      ),
    )
    const statuses = Map.groupBy(answers, ({ status }) => status)
    expect(statuses.get(201)).toHaveLength(1)
    expect(statuses.get(200)).toHaveLength(199)
    expect(new Set(answers.map(({ body }) => body['id'])).size).toBe(1)
    const keys = answers.flatMap(({ body }) => body['apiKey'] ?? [])
    expect(keys).toHaveLength(1)
    registerSecret(String(keys[0]))
    const { rows } = await builder.real.core.sql.query(
      `select count(*)::int as keys from api_keys k join end_users u on u.id = k.user_id
       where u.external_user_id = $1`,
      [externalUserId],
    )
    expect(rows).toEqual([{ keys: 1 }])
  }, 60_000)

  it('replays the answer to a repeated Idempotency-Key, including the key', async () => {
    const externalUserId = someone()
    const ask = {
      authorization: mine.tenantBasic,
      json: { externalUserId },
      headers: { 'idempotency-key': 'one' },
    }
    const first = await builder.ask('POST', usersOf(mine.clientId), ask)
    registerSecret(String(first.body['apiKey']))
    const second = await builder.ask('POST', usersOf(mine.clientId), ask)
    expect([second.status, second.body]).toEqual([201, first.body])
    const other = { ...ask, json: { externalUserId: someone() } }
    const conflict = await builder.ask('POST', usersOf(mine.clientId), other)
    expect(verdictOf(conflict)).toBe('409 idempotency_conflict')
  })

  it.each([
    ['no body', undefined, 'externalUserId is required'],
    ['an empty body', {}, 'externalUserId is required'],
    ['a blank id', { externalUserId: ' ' }, 'externalUserId is required'],
    ['null', null, 'the body must be a JSON object'],
    ['a list', [], 'the body must be a JSON object'],
    ['a number', 7, 'the body must be a JSON object'],
    ['an id that is not a string', { externalUserId: 7 }, 'externalUserId must be a string'],
    [
      'a reserved id',
      { externalUserId: 'owner:x' },
      'must not start with owner:, user: or account:',
    ],
    ['a malformed address', { externalUserId: 'x', email: 'ada' }, 'email must be'],
    ['an empty address', { externalUserId: 'x', email: null }, 'email must be'],
    [
      'a string instead of a boolean',
      { externalUserId: 'x', issueApiKey: 'yes' },
      'issueApiKey must be',
    ],
    ['a blank connection', { externalUserId: 'x', connection: ' ' }, 'connection must have'],
  ])('refuses %s', async (_what, json, detail) => {
    const answer = await builder.ask('POST', usersOf(mine.clientId), {
      authorization: mine.tenantBasic,
      ...(json === undefined ? {} : { json }),
    })
    expect(verdictOf(answer)).toBe('400 request_invalid')
    expect(answer.body['detail']).toContain(detail)
  })

  it('rejects malformed JSON, another type and a body over 1 MiB', async () => {
    const authorization = mine.tenantBasic
    const post = (options: object) =>
      builder.ask('POST', usersOf(mine.clientId), { authorization, ...options })
    expect(
      verdictOf(await post({ text: '{', headers: { 'content-type': 'application/json' } })),
    ).toBe('400 request_invalid')
    expect(verdictOf(await post({ form: 'externalUserId=x' }))).toBe('415 media_type_unsupported')
    const packed = { json: { externalUserId: 'x' }, headers: { 'content-encoding': 'gzip' } }
    expect(verdictOf(await post(packed))).toBe('415 media_type_unsupported')
    const parts = { text: 'x', headers: { 'content-type': 'multipart/form-data; boundary=x' } }
    expect(verdictOf(await post(parts))).toBe('415 media_type_unsupported')
    expect(verdictOf(await post({ ...parts, authorization: null }))).toBe('401 credential_invalid')
    const json = { externalUserId: 'x', email: 'x'.repeat(1_100_000) }
    expect(verdictOf(await post({ json }))).toBe('413 body_too_large')
  })
})

describe('tenant', () => {
  const operator = () => builder.real.core.as()

  it('can be created once per app, and is listed with its secrets', async () => {
    const { clientId } = mine
    await expect(operator().createTenant({ clientId })).rejects.toMatchObject({
      reason: 'CONFLICT',
    })
    await expect(operator().createTenant({ clientId: unknownApp() })).rejects.toMatchObject({
      reason: 'NOT_FOUND',
    })
    const { tenants } = await operator().listTenants({ limit: 100 })
    expect(tenants).toContainEqual({
      clientId,
      appName: 'mine',
      status: 'active',
      createdAt: expect.any(String),
      secrets: 1,
    })
  })

  it('accepts old and new secrets during the overlap', async () => {
    const tenant = await builder.newTenant('rotated')
    const { clientId } = tenant
    const { secret } = await operator().rotateTenantSecret({ clientId, overlapSeconds: 60 })
    const renewed = basicOf(clientId, registerSecret(secret))
    const status = async (authorization: string) => {
      const json = { externalUserId: 'ada', issueApiKey: false }
      return (await builder.ask('POST', usersOf(clientId), { authorization, json })).status
    }
    expect([await status(tenant.tenantBasic), await status(renewed)]).toEqual([200, 200])
    // A second rotation does not extend the old secret.
    registerSecret(
      (await operator().rotateTenantSecret({ clientId, overlapSeconds: 3_600 })).secret,
    )
    builder.real.core.clock.advance(60_000)
    expect([await status(tenant.tenantBasic), await status(renewed)]).toEqual([401, 200])
  })

  it('loses keys issued with an immediately ended secret, unless they are kept', async () => {
    const tenant = await builder.newTenant('leaked')
    const { clientId } = tenant
    const keyOf = async (authorization: string) => {
      const ask = { authorization, json: { externalUserId: someone() } }
      const { body } = await builder.ask('POST', usersOf(clientId), ask)
      return registerSecret(String(body['apiKey']))
    }
    const works = async (key: string) =>
      (
        await builder.ask('GET', `/api/v1/apps/${clientId}/usage?meter=fee_wei`, {
          authorization: `Bearer ${key}`,
        })
      ).status
    const key = await keyOf(tenant.tenantBasic)
    expect(await works(key)).toBe(200)
    const first = await operator().rotateTenantSecret({ clientId, overlapSeconds: 0 })
    expect(first.revokedKeys).toBe(1)
    expect(await works(key)).toBe(401)
    // Keys do not expire, so the record of their end never expires either.
    const { rows } = await builder.real.core.sql.query<{ expires_at: Date | null }>(
      `select e.expires_at from grant_ends e
       where exists (select from api_keys k where k.secret_hash = $1 and e.id = any(k.grants))`,
      [storedHash(key)],
    )
    expect(rows).toEqual([{ expires_at: null }])
    const kept = await keyOf(basicOf(clientId, registerSecret(first.secret)))
    const second = await operator().rotateTenantSecret({
      clientId,
      overlapSeconds: 0,
      keepKeys: true,
    })
    registerSecret(second.secret)
    expect(second.revokedKeys).toBe(0)
    expect(await works(kept)).toBe(200)
  })

  it('is refused like a stranger while disabled', async () => {
    const tenant = await builder.newTenant('paused')
    const { clientId, tenantBasic: authorization } = tenant
    const json = { externalUserId: 'ada', issueApiKey: false }
    const ask = () => builder.ask('POST', usersOf(clientId), { authorization, json })
    const { tenant: disabled } = await operator().disableTenant({ clientId })
    expect(disabled?.status).toBe('disabled')
    expect(verdictOf(await ask())).toBe('401 credential_invalid')
    await operator().enableTenant({ clientId })
    expect((await ask()).status).toBe(200)
  })

  it('ends with its app', async () => {
    const { clientId, tenantBasic: authorization, ...app } = await builder.newTenant('closed')
    const { core } = builder.real
    const owner = manage(core, {
      session: (await logInTo(core, { ...app, clientId }, 'owner')).token,
    })
    await owner.deleteApp({ clientId })
    const json = { externalUserId: 'ada', issueApiKey: false }
    const answer = await builder.ask('POST', usersOf(clientId), { authorization, json })
    expect(verdictOf(answer)).toBe('401 credential_invalid')
  })

  it("records each change in the app's audit log", async () => {
    const { rows } = await builder.real.core.sql.query(
      `select distinct action from audit_log where action like 'tenant%' order by action`,
    )
    expect(rows.map(({ action }) => action)).toEqual([
      'tenant_created',
      'tenant_disabled',
      'tenant_enabled',
      'tenant_secret_rotated',
    ])
  })

  it('keeps at most five secrets, and old ones at most a month', async () => {
    const { clientId } = await builder.newTenant('hoarder')
    for (let made = 1; made < 5; made++)
      registerSecret(
        (await operator().rotateTenantSecret({ clientId, overlapSeconds: 3_600 })).secret,
      )
    await expect(
      operator().rotateTenantSecret({ clientId, overlapSeconds: 3_600 }),
    ).rejects.toMatchObject({ reason: 'CONFLICT' })
    await expect(
      operator().rotateTenantSecret({ clientId, overlapSeconds: 2_592_001 }),
    ).rejects.toMatchObject({ reason: 'REQUEST_INVALID' })
  })
})
