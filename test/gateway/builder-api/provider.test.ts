import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type FakeAuth0, startAuth0 } from '../../fakes/auth0.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { type Builder, type Tenant, startBuilder, verdictOf } from './support.ts'

let auth0: FakeAuth0
let builder: Builder
let tenant: Tenant
beforeAll(async () => {
  auth0 = await startAuth0()
  builder = await startBuilder({
    ...auth0.env,
    ACTIVATION_GATE_MODE: 'enforce',
    AUTH0_CONNECTION: 'Username-Password-Authentication,mail-only',
  })
  tenant = await builder.newTenant('with-a-provider')
})
afterAll(async () => {
  await builder.stop()
  await auth0.stop()
})
beforeEach(() => {
  auth0.faults = () => 'none'
})

const create = (json: object) =>
  builder.ask('POST', `/api/v1/apps/${tenant.clientId}/users`, {
    authorization: tenant.tenantBasic,
    json,
  })

const rowsOf = async (externalUserId: string): Promise<number> => {
  const { rowCount } = await builder.real.core.sql.query(
    'select from end_users where external_user_id = $1',
    [externalUserId],
  )
  return rowCount ?? 0
}

describe('creating a user with an identity provider', () => {
  it('creates one user there, one here and one key for 200 concurrent requests, with one 201', async () => {
    const answers = await Promise.all(
      Array.from({ length: 200 }, () =>
        create({ externalUserId: 'many', email: 'many@example.com' }),
      ),
    )
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(1)
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(199)
    const keys = answers.flatMap(({ body }) => body['apiKey'] ?? [])
    expect(keys).toHaveLength(1)
    registerSecret(String(keys[0]))
    expect(auth0.users.size).toBe(1)
    expect(await rowsOf('many')).toBe(1)
  }, 60_000)

  it('returns 502 when the provider fails, stores nothing and succeeds when repeated', async () => {
    auth0.faults = () => 403
    const json = { externalUserId: 'later', email: 'later@example.com' }
    expect(verdictOf(await create(json))).toBe('502 provider_unavailable')
    expect(await rowsOf('later')).toBe(0)
    const usage = `/api/v1/apps/${tenant.clientId}/usage?meter=fee_wei`
    const meanwhile = await builder.ask('GET', usage, { authorization: tenant.userToken })
    expect(meanwhile.status).toBe(200)
    const form = {
      grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
      subject_token: tenant.userToken.slice('Bearer '.length),
      subject_token_type: 'urn:ietf:params:oauth:token-type:access_token',
    }
    const exchange = `/api/v1/apps/${tenant.clientId}/oidc/token`
    const session = await builder.ask('POST', exchange, { authorization: null, form })
    expect(session.status).toBe(200)
    auth0.faults = () => 'none'
    const { status, body } = await create(json)
    expect(status).toBe(201)
    registerSecret(String(body['apiKey']))
  }, 60_000)

  it('checks caller, app and body before calling the provider', async () => {
    const before = auth0.calls.length
    const post = (clientId: string, authorization: string, json: object) =>
      builder.ask('POST', `/api/v1/apps/${clientId}/users`, { authorization, json })
    const known = { externalUserId: 'nobody' }
    expect((await post(tenant.clientId, tenant.userToken, known)).status).toBe(401)
    expect((await post(tenant.m2mClientId, tenant.tenantBasic, known)).status).toBe(404)
    expect((await create({})).status).toBe(400)
    expect((await create({ externalUserId: 'owner:x' })).status).toBe(400)
    expect((await create({ ...known, email: 'x' })).status).toBe(400)
    expect(auth0.calls).toHaveLength(before)
  })

  it('replays or refuses an Idempotency-Key before calling the provider', async () => {
    const post = (externalUserId: string, email: string) =>
      builder.ask('POST', `/api/v1/apps/${tenant.clientId}/users`, {
        authorization: tenant.tenantBasic,
        headers: { 'idempotency-key': 'once' },
        json: { externalUserId, email },
      })
    const first = await post('once', 'once@example.com')
    registerSecret(String(first.body['apiKey']))
    expect((await create({ externalUserId: 'once', email: 'new@example.com' })).status).toBe(200)
    const before = auth0.calls.length
    const again = await post('once', 'once@example.com')
    expect([again.status, again.body]).toEqual([201, first.body])
    expect(verdictOf(await post('twice', 'twice@example.com'))).toBe('409 idempotency_conflict')
    expect(auth0.calls).toHaveLength(before)
  })

  it('refuses a second request with the same Idempotency-Key during the first', async () => {
    const post = (externalUserId: string) =>
      builder.ask('POST', `/api/v1/apps/${tenant.clientId}/users`, {
        authorization: tenant.tenantBasic,
        headers: { 'idempotency-key': 'at-once' },
        json: { externalUserId, email: `${externalUserId}@example.com` },
      })
    let others: Promise<string[]> | null = null
    auth0.faults = () => {
      if (others) return 'none'
      // The provider answers only after the others have their answers.
      others = Promise.all([post('left').then(verdictOf), post('right').then(verdictOf)])
      return others
    }
    const before = auth0.users.size
    const first = await post('left')
    registerSecret(String(first.body['apiKey']))
    expect(first.status).toBe(201)
    expect(await others).toEqual(['409 idempotency_conflict', '409 idempotency_conflict'])
    expect(auth0.users.size).toBe(before + 1)
    expect(await rowsOf('right')).toBe(0)
    const { body } = await post('left')
    expect(body).toEqual(first.body)
  })

  it('applies the gate before calling the provider, except for updates', async () => {
    const full = await builder.newTenant('full')
    const post = (externalUserId: string) =>
      builder.ask('POST', `/api/v1/apps/${full.clientId}/users`, {
        authorization: full.tenantBasic,
        json: { externalUserId, email: `${externalUserId}@example.com` },
      })
    const first = await post('within')
    registerSecret(String(first.body['apiKey']))
    expect(first.status).toBe(201)
    await builder.real.core.sql.query(
      `insert into billing_settings (app_id, end_user_cap, updated_at)
       select app_id, 1, now() from clients where client_id = $1
       on conflict (app_id) do update set end_user_cap = 1`,
      [full.clientId],
    )
    const before = auth0.calls.length
    expect(verdictOf(await post('beyond'))).toBe('403 end_user_cap_reached')
    expect(auth0.calls).toHaveLength(before)
    expect((await post('within')).status).toBe(200)
  })

  it('forwards the connection, and returns 400 when the provider does not have it', async () => {
    const { status, body } = await create({
      externalUserId: 'mailed',
      email: 'mailed@example.com',
      connection: 'mail-only',
    })
    expect(status).toBe(201)
    registerSecret(String(body['apiKey']))
    expect([...auth0.users.values()].map(({ connection }) => connection)).toContain('mail-only')
    const answer = await create({ externalUserId: 'lost', connection: 'none-of-these' })
    expect(verdictOf(answer)).toBe('400 request_invalid')
    expect(await rowsOf('lost')).toBe(0)
  })
})
