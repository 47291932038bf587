import * as fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parseMetadata, parseMetadataText } from '../../../core/identity/registrations/metadata.ts'
import { createRegistrations } from '../../../core/identity/registrations/registrations.ts'
import { tx } from '../../../core/lib/sql.ts'
import type { AppId } from '../../../core/shared/ids.ts'
import { createSecrets } from '../../../core/shared/secrets.ts'
import { DomainError } from '../../../proto/errors.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { type TestApp, type TestCore, day, outcome, pepper, startTestCore } from '../support.ts'

let test: TestCore
let app: TestApp
let appId: AppId
beforeAll(async () => {
  test = await startTestCore()
  app = await test.newApp()
  const { rows } = await test.sql.query<{ app_id: AppId }>(
    'select app_id from clients where client_id = $1',
    [app.clientId],
  )
  appId = rows[0]!.app_id
})
afterAll(() => test.stop())

const metadata = JSON.stringify({ redirect_uris: ['https://client.example/'] })
const context = { correlationId: 'test' }

/** Opens registrations as core does, and collects ended ids in a list. */
function open() {
  const ended: string[] = []
  const registrations = createRegistrations({
    pool: test.sql,
    secrets: createSecrets({ current: 'p1', byId: new Map([['p1', Buffer.from(pepper)]]) }),
    grants: { end: async (_, ends) => void ended.push(...ends.map(({ id }) => id)) },
    registrationsPerApp: 100,
    registrationUnusedDays: 30,
    now: test.clock.now,
  })
  const register = async () => {
    const request = { label: '', usesMax: 1, days: 7 }
    const { token } = await registrations.createToken(appId, request, { name: 'operator' })
    const registration = await registrations.register(registerSecret(token), metadata, context)
    registerSecret(registration.token)
    return registration
  }
  return { registrations, register, ended }
}

describe('a registered client of a disabled app', () => {
  it('is unknown until the app is active again', async () => {
    const { registrations, register } = open()
    const { clientId, token } = await register()
    const verdict = async () => outcome(registrations.read({ clientId, token }))
    const set = (status: string) =>
      test.sql.query('update apps set status = $2 where id = $1', [appId, status])
    expect(await verdict()).toBe('OK')
    await set('disabled')
    expect(await verdict()).toBe('TOKEN_INVALID')
    await set('active')
    expect(await verdict()).toBe('OK')
    await registrations.remove({ clientId, token }, context)
  })
})

describe('unused clients', () => {
  it('are deleted after a while, unless they got a consent or refreshed a login', async () => {
    const { registrations, register, ended } = open()
    const [unused, consented, refreshed] = [await register(), await register(), await register()]
    test.clock.advance(20 * day)
    const at = test.clock.now()
    const { rows } = await test.sql.query<{ id: string }>(
      `insert into accounts (id, email, password_hash, name, created_at)
      values (gen_random_uuid(), 'ada@example.com', 'x', 'Ada', $1) returning id`,
      [at],
    )
    await test.sql.query(
      `insert into consents (client_id, account_id, scopes, updated_at) values ($1, $2, '{openid}', $3)`,
      [consented.clientId, rows[0]?.id, at],
    )
    const user = await test.as(app.basic).upsertUser({
      clientId: app.clientId,
      externalUserId: 'ada',
    })
    await test.sql.query(
      `insert into token_families (id, app_id, user_id, created_at, expires_at)
      values ('0199d6f0-0000-7000-8000-000000000001', $1, $2, $3, $3)`,
      [appId, user.user?.id, at],
    )
    await test.sql.query(
      `insert into refresh_tokens (token_hash, family_id, client_id, account_id, scope, auth_time, created_at, expires_at)
      values ('x', '0199d6f0-0000-7000-8000-000000000001', $1, $2, 'openid', $3, $3, $3)`,
      [refreshed.clientId, rows[0]?.id, at],
    )
    await registrations.endUnused()
    expect(ended).toEqual([])
    test.clock.advance(11 * day)
    await registrations.endUnused()
    expect(ended).toEqual([unused.clientId])
    expect(await outcome(registrations.read(unused))).toBe('TOKEN_INVALID')
    expect(await registrations.read(consented)).toMatchObject({ clientId: consented.clientId })
  })
})

describe('the scopes of a registration', () => {
  it('are limited to those that the app still has', async () => {
    const { registrations, register } = open()
    const client = await register()
    const scoped = { ...JSON.parse(metadata), client_id: client.clientId, scope: 'openid sign:job' }
    await registrations.update(client, JSON.stringify(scoped), context)
    const scopesAs = async (appScopes: string) => {
      await test.sql.query('update clients set scopes = $2 where client_id = $1', [
        app.clientId,
        appScopes,
      ])
      return (await registrations.read(client)).metadata.scopes
    }
    expect(await scopesAs('{openid}')).toEqual(['openid'])
    expect(await scopesAs('{openid,sign:job}')).toEqual(['openid', 'sign:job'])
  })
})

describe('replacing a registration', () => {
  const changes = async (clientId: string): Promise<number> => {
    const { rowCount } = await test.sql.query(
      `select from audit_log where actor = $1 and action = 'client_registration_changed'`,
      [clientId],
    )
    return rowCount ?? 0
  }
  const bodyOf = (clientId: string, more: object = {}) =>
    JSON.stringify({ ...JSON.parse(metadata), client_id: clientId, ...more })

  it('adds no audit entry when nothing changes', async () => {
    const { registrations, register } = open()
    const client = await register()
    const put = (more: object = {}) =>
      registrations.update(client, bodyOf(client.clientId, more), context)
    expect(await put()).toMatchObject({ metadata: client.metadata })
    expect(await changes(client.clientId)).toBe(0)
    for (let i = 0; i < 2; i++)
      expect(await put({ client_name: 'B' })).toMatchObject({ metadata: { name: 'B' } })
    expect(await changes(client.clientId)).toBe(1)
  })

  it('gives up lost scopes permanently when they are left out', async () => {
    const { registrations, register } = open()
    const client = await register()
    const put = (scope: string) =>
      registrations.update(client, bodyOf(client.clientId, { scope }), context)
    const setScopes = (scopes: readonly string[]) =>
      test.sql.query('update clients set scopes = $2 where client_id = $1', [app.clientId, scopes])
    const all = ['openid', 'sign:job']
    expect(await put(all.join(' '))).toMatchObject({ metadata: { scopes: all } })
    await setScopes(['openid'])
    await put('openid')
    await setScopes(all)
    expect(await registrations.read(client)).toMatchObject({ metadata: { scopes: ['openid'] } })
  })

  it('is rejected with a wrong token, without a lock', async () => {
    const { registrations, register } = open()
    const [client, other] = [await register(), await register()]
    const stranger = { clientId: client.clientId, token: other.token }
    await tx(test.sql, async (db) => {
      await db.query('select from registered_clients where client_id = $1 for update', [
        client.clientId,
      ])
      const attempt = registrations.update(stranger, bodyOf(client.clientId), context)
      expect(await outcome(attempt)).toBe('TOKEN_INVALID')
      expect(await outcome(registrations.remove(stranger, context))).toBe('TOKEN_INVALID')
    })
  })
})

describe('initial access tokens', () => {
  it.each([
    [{ usesMax: 0 }],
    [{ usesMax: 10_001 }],
    [{ days: 0 }],
    [{ days: 367 }],
    [{ clientId: 'app_000000000000000000000000' }],
    [{ clientId: 'm2m' }],
  ])('are rejected with %o', async (change) => {
    const request = { clientId: app.clientId, label: '', usesMax: 1, days: 1, ...change }
    const reason = await outcome(test.as().createRegistrationToken(request))
    expect(reason).toBe('clientId' in change ? 'NOT_FOUND' : 'REQUEST_INVALID')
  })

  it('are revoked permanently, and only by their own app', async () => {
    const other = await test.newApp()
    const request = { clientId: app.clientId, label: 'agents', usesMax: 1, days: 1 }
    const { registrationToken } = await test.as().createRegistrationToken(request)
    const id = registrationToken?.id ?? ''
    const revoke = (clientId: string) => test.as().revokeRegistrationToken({ clientId, id })
    expect(await outcome(revoke(other.clientId))).toBe('NOT_FOUND')
    await revoke(app.clientId)
    await revoke(app.clientId)
    expect(
      await outcome(test.as().revokeRegistrationToken({ clientId: app.clientId, id: 'x' })),
    ).toBe('NOT_FOUND')
  })
})

/** Whether the metadata is parsed with a redirect URI, or rejected with a reason. */
function readOrRefuse(text: string): boolean {
  try {
    return parseMetadata(parseMetadataText(text), ['openid', 'sign:job']).redirectUris.length > 0
  } catch (error) {
    return error instanceof DomainError
  }
}

describe('metadata', () => {
  it('is parsed or rejected for any members', () => {
    const member = fc.constantFrom(
      'redirect_uris',
      'grant_types',
      'response_types',
      'scope',
      'client_name',
      'client_uri',
      'software_statement',
      'token_endpoint_auth_method',
    )
    fc.assert(
      fc.property(fc.dictionary(member, fc.jsonValue()), (members) => {
        expect(readOrRefuse(JSON.stringify(members))).toBe(true)
      }),
    )
  })

  it.each(['', '[]', 'null', '7', '{', '"x"'])('is rejected as the text %s', (text) => {
    expect(() => parseMetadataText(text)).toThrow(DomainError)
  })
})
