import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { UpdateAppRequest } from '../../../proto/gen/ts-proto/tollgate/identity/v1/management.ts'
import { type Managing, type Person, logIn, logInTo, manage } from '../../support/web/people.ts'
import {
  type TestApp,
  type TestCore,
  basicOf,
  bearerOf,
  outcome,
  refusal,
  startTestCore,
} from '../support.ts'

let core: TestCore
let app: TestApp
let ada: Person
let owner: Managing
beforeAll(async () => {
  core = await startTestCore()
})
afterAll(() => core.stop())
beforeEach(async () => {
  app = await core.newApp()
  ada = await logInTo(core, app, 'owner')
  owner = manage(core, { session: ada.token })
})

const named = () => ({ clientId: app.clientId })
const as = async (role: 'owner' | 'admin' | 'viewer') =>
  manage(core, { session: (await logInTo(core, app, role)).token })
const update = (change: Partial<UpdateAppRequest>) => owner.updateApp({ ...named(), ...change })
/** Actions in the audit log, in alphabetical order, because the test clock does not advance. */
const actions = async () =>
  (await owner.listAudit(named())).entries.map(({ action }) => action).toSorted()

/** Every RPC about one app, with the lowest role that may call it. */
const guarded: [
  name: keyof Managing,
  role: 'viewer' | 'admin' | 'owner',
  call: (by: Managing) => Promise<unknown>,
][] = [
  ['getApp', 'viewer', (by) => by.getApp(named())],
  ['getRouting', 'viewer', (by) => by.getRouting(named())],
  ['listMembers', 'viewer', (by) => by.listMembers(named())],
  ['listDomains', 'viewer', (by) => by.listDomains(named())],
  ['getManifest', 'viewer', (by) => by.getManifest(named())],
  ['listProfiles', 'viewer', (by) => by.listProfiles(named())],
  ['listKeys', 'viewer', (by) => by.listKeys(named())],
  ['updateApp', 'admin', (by) => by.updateApp({ ...named(), name: 'Other' })],
  [
    'upsertMember',
    'admin',
    async (by) => by.upsertMember({ ...named(), email: (await logIn(core)).email, role: 'viewer' }),
  ],
  [
    'deleteMember',
    'admin',
    async (by) =>
      by.deleteMember({ ...named(), accountId: (await logInTo(core, app, 'viewer')).accountId }),
  ],
  [
    'withdrawInvitation',
    'admin',
    async (by) => {
      const email = `${randomUUID()}@example.com`
      const { invitation } = await owner.upsertMember({ ...named(), email, role: 'viewer' })
      return by.withdrawInvitation({ ...named(), invitationId: invitation?.id ?? '' })
    },
  ],
  ['rotateSecret', 'admin', (by) => by.rotateSecret(named())],
  [
    'createDomain',
    'admin',
    (by) => by.createDomain({ ...named(), origin: `https://${randomUUID()}.example` }),
  ],
  ['listAudit', 'admin', (by) => by.listAudit(named())],
  ['updateManifest', 'admin', (by) => by.updateManifest(named())],
  ['createProfile', 'admin', (by) => by.createProfile({ ...named(), name: randomUUID() })],
  ['createKey', 'admin', (by) => by.createKey(named())],
  ['deleteApp', 'owner', (by) => by.deleteApp(named())],
]

describe.each(guarded)('%s', (name, least, call) => {
  it(`requires at least the role ${least}`, async () => {
    const ladder = ['viewer', 'admin', 'owner'] as const
    for (const role of ladder) {
      const allowed = ladder.indexOf(role) >= ladder.indexOf(least)
      expect([role, await outcome(call(await as(role)))]).toEqual([
        role,
        allowed ? 'OK' : 'EDIT_FORBIDDEN',
      ])
    }
  })

  it('returns NOT_FOUND to a member of another app, and needs a session', async () => {
    const other = await core.newApp()
    const stranger = manage(core, { session: (await logInTo(core, other, 'owner')).token })
    expect(await outcome(call(stranger))).toBe('NOT_FOUND')
    const nobody = ['getApp', 'getRouting', 'getManifest', 'listProfiles'].includes(name)
      ? 'NOT_FOUND'
      : 'TOKEN_INVALID'
    expect(await outcome(call(manage(core)))).toBe(nobody)
    expect(await outcome(call(manage(core, { session: 'x'.repeat(43) })))).toBe('TOKEN_INVALID')
  })

  it('allows platform admins the same as owners', async () => {
    const admin = manage(core, { session: (await logIn(core, { isPlatformAdmin: true })).token })
    expect(await outcome(call(admin))).toBe('OK')
  })
})

describe('an own app', () => {
  it('has both clients, a valid secret, and its creator as the owner', async () => {
    const created = await owner.createApp({
      name: ' Mine ',
      developerName: 'Ada',
      websiteUrl: 'https://ada.example/',
    })
    const { app: view } = await owner.getApp({ clientId: created.clientId })
    expect(created.status).toBe('approved')
    expect(view).toMatchObject({
      name: 'Mine',
      developerName: 'Ada',
      websiteUrl: 'https://ada.example',
      role: 'owner',
      status: 'approved',
    })
    const m2m = core.as(basicOf(created.m2mClientId, created.m2mClientSecret))
    expect(await outcome(m2m.upsertUser({ clientId: created.clientId, externalUserId: 'a' }))).toBe(
      'OK',
    )
    const { entries } = await owner.listAudit({ clientId: created.clientId, action: 'app_created' })
    expect(
      entries.map(({ actor, action, correlationId }) => [actor, action, correlationId]),
    ).toEqual([[ada.accountId, 'app_created', 'test-1']])
  })

  it('belongs to the platform only if a platform admin creates it without isCustomer', async () => {
    const admin = manage(core, { session: (await logIn(core, { isPlatformAdmin: true })).token })
    const created = [
      await owner.createApp({ name: 'Mine' }),
      await owner.createApp({ name: 'Mine', isCustomer: true }),
      await admin.createApp({ name: 'Theirs', isCustomer: true }),
      await admin.createApp({ name: 'Own' }),
      await admin.createApp({ name: 'Own', isCustomer: false }),
    ]
    const { rows } = await core.sql.query(
      `select c.client_id from billing_settings b join clients c on c.app_id = b.app_id and c.kind = 'public'
       where b.is_platform_owned and c.client_id = any($1) order by b.updated_at, c.client_id`,
      [created.map(({ clientId }) => clientId)],
    )
    expect(rows.map((row) => row.client_id)).toEqual(
      created
        .slice(3)
        .map(({ clientId }) => clientId)
        .toSorted(),
    )
    expect(await outcome(owner.createApp({ name: 'Mine', isCustomer: false }))).toBe(
      'EDIT_FORBIDDEN',
    )
  })

  it('requires a valid name', async () => {
    const names = [
      '',
      '  ',
      'x'.repeat(101),
      'a\u0007b',
      'a\u200bb',
      '…',
      'Bank (registered with X)',
    ]
    for (const name of names)
      expect(await outcome(owner.createApp({ name }))).toBe('REQUEST_INVALID')
    expect(await outcome(owner.createApp({ name: 'x', websiteUrl: 'javascript:alert(1)' }))).toBe(
      'REQUEST_INVALID',
    )
  })

  it('is listed to its members in pages, and with all other apps only to platform admins', async () => {
    for (let i = 0; i < 3; i++) await owner.createApp({ name: `App ${i}` })
    const first = await owner.listApps({ limit: 3 })
    const second = await owner.listApps({ limit: 3, cursor: first.nextCursor })
    expect([first.apps.length, second.apps.length, second.nextCursor]).toEqual([3, 1, undefined])
    expect(first.apps.every(({ isOwner, role }) => isOwner && role === 'owner')).toBe(true)
    expect(await outcome(owner.listApps({ all: true }))).toBe('EDIT_FORBIDDEN')
    const admin = manage(core, { session: (await logIn(core, { isPlatformAdmin: true })).token })
    expect((await admin.listApps({ all: true })).apps.map(({ clientId }) => clientId)).toContain(
      app.clientId,
    )
    expect((await admin.listApps()).apps).toEqual([])
    expect(await outcome(manage(core).listApps())).toBe('TOKEN_INVALID')
  })

  it('allows its M2M client only to read it', async () => {
    const { app: view } = await manage(core, { authorization: app.basic }).getApp(named())
    expect([view?.role, view?.clientId]).toEqual(['', app.clientId])
    const other = await core.newApp()
    expect(await outcome(manage(core, { authorization: other.basic }).getApp(named()))).toBe(
      'NOT_FOUND',
    )
    expect(await outcome(manage(core, { authorization: app.basic }).updateApp(named()))).toBe(
      'TOKEN_INVALID',
    )
    expect(
      await outcome(
        manage(core, { authorization: basicOf(app.m2mClientId, 'wrong') }).getApp(named()),
      ),
    ).toBe('CREDENTIAL_INVALID')
    expect(
      await outcome(
        manage(core, { authorization: app.basic }).getApp({ clientId: app.m2mClientId }),
      ),
    ).toBe('NOT_FOUND')
  })
})

describe('updateApp', () => {
  it('keeps a name that is no longer allowed, but rejects it as a new name', async () => {
    const old = 'a\u200bb'
    await core.sql.query(
      'update apps set name = $2 where id = (select app_id from clients where client_id = $1)',
      [app.clientId, old],
    )
    await update({ name: old, color: '#112233' })
    await update({ color: '#112234' })
    expect(await outcome(update({ name: 'a\u200cb' }))).toBe('REQUEST_INVALID')
    expect((await update({ name: 'Plain' })).app?.name).toBe('Plain')
    expect(await outcome(update({ name: old }))).toBe('REQUEST_INVALID')
  })

  it('changes only the fields in the request', async () => {
    await update({
      name: 'New',
      color: '#ABCDEF',
      dmzUrl: 'https://signer.example:8935/',
      meteringMode: 'direct',
    })
    const { app: view } = await update({
      redirectUris: {
        values: [
          'https://a.example/cb',
          'http://127.0.0.1:7777/cb',
          'http://localhost/cb',
          'http://[::1]/x',
          'com.example.app:/done',
        ],
      },
      allowedScopes: { values: ['openid', 'sign:job'] },
      grantTypes: { values: ['authorization_code'] },
    })
    expect(view).toMatchObject({
      name: 'New',
      color: '#abcdef',
      dmzUrl: 'https://signer.example:8935',
      meteringMode: 'direct',
    })
    expect(view?.oidcClient).toMatchObject({
      grantTypes: ['authorization_code'],
      tokenEndpointAuthMethod: 'none',
      hasSecret: false,
    })
    expect(view?.oidcClient?.redirectUris).toHaveLength(5)
    expect(view?.m2mOidcClient).toMatchObject({ clientId: app.m2mClientId, hasSecret: true })
    expect(await actions()).toEqual(['app_created', 'app_updated', 'app_updated'])
  })

  it.each([
    'http://a.example/cb',
    'https://a.example/cb#x',
    'https://a.example/cb#',
    'https://*.example/cb',
    '/cb',
    'a.example',
    'javascript:alert(1)',
    'data:text/html,x',
    'custom:/cb',
    'https://u:p@a.example/',
    'https://a.example/ b',
    'https://bücher.example/cb',
    'https://пример.example/cb',
    'https://a.example\\@b.example/',
    'https://a.example/%zz',
    'https:a.example',
    `https://a.example/${'x'.repeat(2_000)}`,
    '',
  ])('rejects the redirect URI %s', async (uri) => {
    expect(await outcome(update({ redirectUris: { values: [uri] } }))).toBe('REQUEST_INVALID')
    expect(await outcome(update({ postLogoutRedirectUris: { values: [uri] } }))).toBe(
      'REQUEST_INVALID',
    )
  })

  it.each<[string, Partial<UpdateAppRequest>]>([
    [
      '21 redirect URIs',
      { redirectUris: { values: Array.from({ length: 21 }, (_, i) => `https://a.example/${i}`) } },
    ],
    ['an unknown scope', { allowedScopes: { values: ['admin'] } }],
    ['a scope of the M2M client', { allowedScopes: { values: ['users:write'] } }],
    ['an unknown grant', { grantTypes: { values: ['password'] } }],
    ['a grant of the M2M client', { grantTypes: { values: ['client_credentials'] } }],
    ['a plain initiate_login_uri', { initiateLoginUri: 'http://a.example/' }],
    ['a color by name', { color: 'red' }],
    ['an ftp page', { websiteUrl: 'ftp://a' }],
    ['an unknown metering mode', { meteringMode: 'kafka' }],
    ['a third-party login without an address', { deviceThirdPartyInitiateLogin: true }],
    ['no name', { name: ' ' }],
  ])('rejects %s', async (_, change) => {
    expect(await outcome(update(change))).toBe('REQUEST_INVALID')
  })

  it('sets and clears the URI of third-party initiated logins', async () => {
    await update({
      initiateLoginUri: 'http://localhost:3000/start',
      deviceThirdPartyInitiateLogin: true,
    })
    expect(await outcome(update({ initiateLoginUri: '' }))).toBe('REQUEST_INVALID')
    const { app: view } = await update({
      initiateLoginUri: '',
      deviceThirdPartyInitiateLogin: false,
    })
    expect(view?.oidcClient?.initiateLoginUri).toBeUndefined()
  })

  it('removes scopes from tokens minted later', async () => {
    await core.as(app.basic).upsertUser({ ...named(), externalUserId: 'ada' })
    await update({ allowedScopes: { values: ['openid'] } })
    expect(
      await outcome(
        core.as(app.basic).mintUserToken({ ...named(), externalUserId: 'ada', scope: 'sign:job' }),
      ),
    ).toBe('SCOPE_INVALID')
  })
})

describe('routing', () => {
  it("comes from the settings or the app's own signer", async () => {
    const routing = await manage(core, { authorization: app.basic }).getRouting(named())
    expect(routing).toEqual({
      dmzUrl: 'http://localhost:8935',
      jwksUrl: 'https://svc.example/api/v1/oidc/jwks',
      webhookUrl: 'https://svc.example/webhooks/remote-signer',
      meteringMode: 'direct',
    })
    await update({ dmzUrl: 'https://mine.example', meteringMode: 'stream' })
    expect(await owner.getRouting(named())).toMatchObject({
      dmzUrl: 'https://mine.example',
      meteringMode: 'stream',
    })
    await update({ dmzUrl: '' })
    expect(await owner.getRouting(named())).toMatchObject({
      dmzUrl: 'http://localhost:8935',
      meteringMode: 'direct',
    })
    expect((await owner.getApp(named())).app?.meteringMode).toBe('direct')
  })

  it('accepts a metering mode only for an app with its own signer', async () => {
    expect(await outcome(update({ meteringMode: 'stream' }))).toBe('REQUEST_INVALID')
    expect(await outcome(update({ meteringMode: 'direct' }))).toBe('OK')
    await update({ dmzUrl: 'https://mine.example' })
    expect((await owner.getRouting(named())).meteringMode).toBe('direct')
    await update({ meteringMode: 'stream' })
    expect((await owner.getRouting(named())).meteringMode).toBe('stream')
  })

  it('is stream in every process when the deployment collects from Kafka', async () => {
    const brokers = { KAFKA_BROKERS: '127.0.0.1:1', COLLECTOR: 'off' }
    const streaming = await core.startAnother(brokers)
    const routing = await manage(streaming, { authorization: app.basic }).getRouting(named())
    expect(routing.meteringMode).toBe('stream')
    await streaming.core.stop()
  })
})

describe('a deleted app', () => {
  it('is not found, keeps its records and has no valid credentials', async () => {
    const m2m = core.as(app.basic)
    await m2m.upsertUser({ ...named(), externalUserId: 'ada' })
    const { apiKey } = await m2m.createKey({ ...named(), externalUserId: 'ada' })
    const user = await m2m.mintUserToken({ ...named(), externalUserId: 'ada' })
    const machine = await m2m.issueMachineToken({})
    const count = async () =>
      (
        await core.sql.query(
          `select (select count(*) from ledger_entries l join clients c using (app_id) where c.client_id = $1)
      + (select count(*) from end_users u join clients c using (app_id) where c.client_id = $1) as rows`,
          [app.clientId],
        )
      ).rows[0].rows
    const before = await count()
    await owner.deleteApp(named())
    expect(await count()).toEqual(before)
    expect(await outcome(owner.getApp(named()))).toBe('NOT_FOUND')
    expect((await owner.listApps()).apps).toEqual([])
    expect(
      (await core.asOperator().listApps({ limit: 1_000 })).apps.map(({ clientId }) => clientId),
    ).not.toContain(app.clientId)
    expect(await outcome(m2m.listUsers(named()))).toBe('CREDENTIAL_INVALID')
    expect(await outcome(core.as(bearerOf(machine.accessToken)).listUsers(named()))).toBe(
      'TOKEN_INVALID',
    )
    expect(await outcome(core.as(bearerOf(user.accessToken)).getOwnBalance())).toBe('TOKEN_INVALID')
    expect(await outcome(core.as().verifyApiKey({ apiKey }))).toBe('TOKEN_INVALID')
    expect(await outcome(owner.validateKey({ key: apiKey }))).toBe('TOKEN_INVALID')
    const { access } = await core.as().getAccess({ ...named(), externalUserId: 'ada' })
    expect(access?.active).toBe(false)
    const { rows } = await core.sql.query(
      `select action from audit_log a join clients c using (app_id) where c.client_id = $1`,
      [app.clientId],
    )
    expect(rows.map(({ action }) => action)).toContain('app_deleted')
    expect((await refusal(owner.deleteApp(named()))).reason).toBe('NOT_FOUND')
  })
})
