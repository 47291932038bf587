import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { logIn, logInTo, manage } from '../../../support/web/people.ts'
import { bearerOf } from '../../../core/support.ts'
import {
  type Grants,
  accessToken,
  claimsOf,
  exchangeGrant,
  sessionOf,
  startGrants,
} from './support.ts'

let grants: Grants
beforeAll(async () => {
  grants = await startGrants()
})
afterAll(() => grants.stop())

const signing = { grant_type: 'client_credentials', scope: 'sign:job' }
const envelope = {
  token_type: 'Bearer',
  scope: 'sign:job',
  has_access: true,
  balance_usd_micros: 5_000_000,
  balanceUsdMicros: '5000000',
  lifetimeGrantedUsdMicros: '5000000',
}

/** Returns the account that owns the app of `startGrants`. */
async function ownerAccount(clientId: string): Promise<string> {
  const { rows } = await grants.real.core.sql.query(
    "select account_id from members join clients using (app_id) where client_id = $1 and role = 'owner'",
    [clientId],
  )
  return String(rows[0].account_id)
}

describe('client_credentials with only sign:job', () => {
  it("returns the owner's signer token, with the balance of its own Starter plan", async () => {
    const { app, token, real } = grants
    const { status, body } = await token(signing, app.basic)
    expect([status, body]).toMatchObject([200, envelope])
    const owner = `owner:${await ownerAccount(app.clientId)}`
    expect(claimsOf(body['access_token'])).toMatchObject({
      sub: owner,
      external_user_id: owner,
      client_id: app.clientId,
      token_use: 'signer',
    })
    const { users } = await real.core.as(app.basic).listUsers({ clientId: app.clientId })
    expect(users.map(({ externalUserId, role }) => [externalUserId, role]).toSorted()).toEqual([
      ['ada', 'user'],
      [owner, 'owner'],
    ])
    const audit = "select count(*)::int as n from audit_log where action = 'owner_token_minted'"
    expect((await real.core.sql.query(audit)).rows[0].n).toBe(1)
  })

  it('creates the owner once for concurrent requests', async () => {
    const app = await grants.real.newApp('owned-once')
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => grants.token(signing, app.basic)),
    )
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]))
    const { users } = await grants.real.core.as(app.basic).listUsers({ clientId: app.clientId })
    expect(users.filter(({ role }) => role === 'owner')).toHaveLength(1)
  })

  it.each([
    ['with another scope', { scope: 'sign:job users:read' }, 'invalid_scope'],
    ['with the other signing scope', { scope: 'sign:job sign:mint_user_token' }, 'invalid_scope'],
    ['for a user', { external_user_id: 'ada' }, 'invalid_request'],
    ['for another audience', { audience: 'https://other.example' }, 'invalid_target'],
    ['for another resource', { resource: 'https://other.example' }, 'invalid_target'],
  ])('is refused %s', async (_, change, error) => {
    const { status, body } = await grants.token({ ...signing, ...change }, grants.app.basic)
    expect(status).toBe(400)
    expect(body['error']).toBe(error)
  })

  it('is refused when the public client may not sign, without credentials, and without an owner', async () => {
    const { real, token } = grants
    const silent = await real.newApp('silent')
    await real.core.sql.query("update clients set scopes = '{openid}' where client_id = $1", [
      silent.clientId,
    ])
    expect((await token(signing, silent.basic)).error).toBe('invalid_scope')
    expect((await token(signing)).status).toBe(401)
    const orphan = await real.core.newApp()
    expect((await token(signing, orphan.basic)).error).toBe('invalid_grant')
  })

  it('falls back on a platform admin, who is an owner everywhere', async () => {
    const orphan = await grants.real.core.newApp()
    const admin = await logIn(grants.real.core, { isPlatformAdmin: true })
    const { body } = await grants.token(signing, orphan.basic)
    expect(claimsOf(body['access_token'])['sub']).toBe(`owner:${admin.accountId}`)
    await grants.real.core.sql.query('update accounts set is_platform_admin = false')
  })
})

// A credential has the same result everywhere: a key that `validate` calls valid passes the gate.
describe('app-level key', () => {
  const validate = (key: string) =>
    grants.send('GET', '/api/v1/auth/validate', { headers: { authorization: bearerOf(key) } })
  const gate = (key: string) => grants.real.core.as().verifyApiKey({ apiKey: key })

  async function newAppKey(clientId: string, session: string, subscriptionId?: string) {
    const owner = manage(grants.real.core, { session })
    return (await owner.createKey({ clientId, subscriptionId })).apiKey
  }

  it("acts for the owner, on the owner's plan, at the exchanges, at validate and at the gate", async () => {
    const { app, appToken, send } = grants
    const key = await newAppKey(app.clientId, sessionOf(app))
    const owner = `owner:${await ownerAccount(app.clientId)}`
    const user = await send('POST', `/api/v1/apps/${app.clientId}/auth/api-key/token`, {
      headers: { authorization: bearerOf(key) },
    })
    expect([user.status, user.body]).toMatchObject([200, { externalUserId: owner }])
    expect(claimsOf(user.body['access_token'])).toMatchObject({
      token_use: 'user',
      external_user_id: owner,
    })
    const subject = { subject_token: key, subject_token_type: accessToken }
    const session = await appToken({ grant_type: exchangeGrant, ...subject })
    expect([session.status, session.body]).toMatchObject([200, envelope])
    const { identity, access } = await gate(key)
    expect(identity).toMatchObject({ clientId: app.clientId, externalUserId: owner })
    expect(access?.active).toBe(true)
    const { rows } = await grants.real.core.sql.query(
      `select plan_id from subscriptions s join end_users u on u.id = s.user_id
      where u.external_user_id = $1`,
      [owner],
    )
    expect((await validate(key)).body).toMatchObject({ valid: true, planId: rows[0].plan_id })
  })

  it('returns the plan of the subscription for which it was created', async () => {
    const { app, real } = grants
    const { rows } = await real.core.sql.query(
      `select s.id, s.plan_id from subscriptions s join end_users u on u.id = s.user_id
      join clients c on c.app_id = u.app_id where c.client_id = $1 and u.external_user_id = 'ada'`,
      [app.clientId],
    )
    const { id, plan_id: plan } = rows[0]
    const other = '01920000-0000-7000-8000-000000000001'
    await real.core.sql.query(
      `insert into plans select (jsonb_populate_record(p, jsonb_build_object('id', $2::text,
        'name', 'Other', 'name_key', 'other', 'is_starter_default', false))).* from plans p where id = $1`,
      [plan, other],
    )
    await real.core.sql.query('update subscriptions set plan_id = $2 where id = $1', [id, other])
    const key = await newAppKey(app.clientId, sessionOf(app), String(id))
    expect((await validate(key)).body['planId']).toBe(other)
  })

  interface Case {
    readonly kind: 'user key' | 'app key'
    readonly key: string
    readonly app: { readonly clientId: string }
    readonly revoke: () => Promise<unknown>
  }
  const change = (text: string, of: string) => grants.real.core.sql.query(text, [of])
  const states: readonly [string, (of: Case) => Promise<unknown>, boolean][] = [
    ['active', async () => undefined, true],
    ['revoked', ({ revoke }) => revoke(), false],
    [
      'of a deactivated user',
      ({ app }) =>
        change(
          `update end_users set status = 'inactive', deactivated_at = now()
          where app_id = (select app_id from clients where client_id = $1)`,
          app.clientId,
        ),
      false,
    ],
    [
      'of a disabled app',
      ({ app }) =>
        change(
          `update apps set status = 'disabled' where id = (select app_id from clients where client_id = $1)`,
          app.clientId,
        ),
      false,
    ],
    [
      'of an app that may not sign',
      ({ app }) =>
        change("update clients set scopes = '{openid}' where client_id = $1", app.clientId),
      false,
    ],
  ]
  const forms: readonly [string, (key: string, clientId: string) => string, boolean][] = [
    ['as it was shown', (key) => key, true],
    ['bare', (key) => key.slice(key.indexOf('svc_ak_')), true],
    ['without its prefix', (key) => key.slice(key.indexOf('svc_ak_') + 7), true],
    ['behind its app', (key, id) => `${id}_${key.slice(key.indexOf('svc_ak_'))}`, true],
    [
      'behind another app',
      (key) => `app_${'0'.repeat(24)}_${key.slice(key.indexOf('svc_ak_'))}`,
      false,
    ],
    [
      'with a letter changed',
      (key) => `${key.slice(0, -1)}${key.endsWith('0') ? '1' : '0'}`,
      false,
    ],
  ]

  async function newCase(kind: Case['kind'], name: string): Promise<Case> {
    const app = await grants.real.newApp(name)
    if (kind === 'app key') {
      const person = await logInTo(grants.real.core, app, 'owner')
      const owner = manage(grants.real.core, { session: person.token })
      const { apiKey, keyId } = await owner.createKey({ clientId: app.clientId })
      await grants.token(signing, app.basic)
      return {
        kind,
        app,
        key: apiKey,
        revoke: () => owner.revokeKey({ clientId: app.clientId, keyId }),
      }
    }
    const m2m = grants.real.core.as(app.basic)
    const ada = { clientId: app.clientId, externalUserId: 'ada' }
    const { apiKey, keyId } = await m2m.createKey(ada)
    return { kind, app, key: apiKey, revoke: () => m2m.revokeKey({ ...ada, keyId }) }
  }

  const table = (['user key', 'app key'] as const).flatMap((kind) =>
    states.map(([state, enter, works]) => ({ kind, state, enter, works })),
  )
  it.each(table)('has the same result at validate and at the gate: $kind, $state', async (row) => {
    const of = await newCase(row.kind, `${row.kind} ${row.state}`.replaceAll(' ', '-'))
    await row.enter(of)
    for (const [form, present, isSound] of forms) {
      const key = present(of.key, of.app.clientId)
      const passes = await gate(key).then(
        ({ identity, access }) => identity !== undefined && access?.active === true,
        () => false,
      )
      const { body } = await validate(key)
      expect([form, body['valid'], passes]).toEqual([
        form,
        row.works && isSound,
        row.works && isSound,
      ])
    }
  })
})
