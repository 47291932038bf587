import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { basicOf } from '../../core/support.ts'
import {
  accessToken,
  claimsOf,
  exchangeGrant,
  headerOf,
  issuer,
} from '../platform-api/oidc/support.ts'
import { type RealApp } from '../real.ts'
import { publicUrl } from '../support.ts'
import { type Pitfalls, startPitfalls } from './support.ts'

let p: Pitfalls
let other: RealApp
beforeAll(async () => {
  p = await startPitfalls()
  other = await p.real.newApp('other')
})
afterAll(() => p.stop())

const token = '/api/v1/oidc/token'
const unknown = 'app_0123456789abcdef01234567'
const client = (id: string, secret: string) => ({
  headers: { authorization: basicOf(id, secret) },
  form: { grant_type: 'client_credentials' },
})

/** Numbered mistakes of a toy implementation. */
describe('clients, tokens and keys', () => {
  it("1: resolves a machine token's m2m_ id to its app before comparing with the path", async () => {
    expect(claimsOf(p.app.machineToken.slice(7))).toMatchObject({ client_id: p.id })
    expect(
      (await p.ask('GET', `${p.path}/users`, { headers: { authorization: p.app.machineToken } }))
        .status,
    ).toBe(200)
  })

  it('2: returns 404 for another app, as for an unknown one, before checking the scope', async () => {
    const reader = (
      await p.ask('POST', token, {
        headers: {},
        form: {
          grant_type: 'client_credentials',
          scope: 'users:read',
          client_id: p.id,
          client_secret: p.secret,
        },
      })
    ).body['access_token']
    const headers = { authorization: `Bearer ${String(reader)}` }
    const make = async (clientId: string) =>
      p.ask('POST', `/api/v1/apps/${clientId}/users`, { headers, json: { externalUserId: 'x' } })
    expect((await make(p.app.clientId)).status).toBe(403)
    const [foreign, none] = [await make(other.clientId), await make(unknown)]
    expect([foreign.status, none.status]).toEqual([404, 404])
    const same = ({ text }: { text: string }) => text.replace(/"correlation_id":"[^"]*"/, '')
    expect(same(foreign)).toBe(same(none))
  })

  it('3: rejects m2m_ and internal ids as {clientId}, and a secret for the public client', async () => {
    const { rows } = await p.real.core.sql.query<{ app_id: string }>(
      'select app_id from clients where client_id = $1',
      [p.app.clientId],
    )
    for (const id of [p.id, rows[0]?.app_id ?? ''])
      expect((await p.ask('GET', `/api/v1/apps/${id}/users`)).status).toBe(404)
    expect(
      (await p.ask('POST', `${p.path}/credentials?target=public`, { headers: p.app.session }))
        .status,
    ).toBe(400)
  })

  it('4: keeps the two APIs separate: usage of the platform API rejects any Bearer', async () => {
    const usage = `/api/v1/builder/apps/${p.app.clientId}/usage`
    for (const authorization of [p.app.machineToken, p.app.userToken, p.app.apiKey]) {
      expect((await p.ask('GET', usage, { headers: { authorization } })).status).toBe(404)
    }
    expect((await p.ask('GET', usage)).status).toBe(200)
  })

  it('5: answers bad client credentials with 401 and WWW-Authenticate, never with 400 or 403', async () => {
    const wrong = { authorization: basicOf(p.id, 'svc_cs_wrong') }
    const answers = [
      await p.ask('POST', token, client(p.id, 'svc_cs_wrong')),
      await p.ask('POST', token, client('m2m_nobody', 'x')),
      await p.ask('GET', `${p.path}/users`, { headers: wrong }),
      await p.ask('GET', `/api/v1/apps/${other.clientId}/users`, { headers: wrong }),
    ]
    for (const { status, headers } of answers)
      expect([status, headers.get('www-authenticate')]).toEqual([
        401,
        expect.stringContaining('Basic'),
      ])
  })

  it('6: accepts Basic raw and percent-encoded, split at the first colon, with a +, and secrets in the form', async () => {
    const encode = (text: string) =>
      [...text].map((char) => `%${char.charCodeAt(0).toString(16)}`).join('')
    expect((await p.ask('POST', token, client(p.id, p.secret))).status).toBe(200)
    expect((await p.ask('POST', token, client(encode(p.id), encode(p.secret)))).status).toBe(200)
    const posted = { grant_type: 'client_credentials', client_id: p.id, client_secret: p.secret }
    expect((await p.ask('POST', token, { headers: {}, form: posted })).status).toBe(200)
    for (const secret of [`x:${p.secret}`, `${p.secret}+`, '+', '%zz'])
      expect((await p.ask('POST', token, client(p.id, secret))).status).toBe(401)
  })

  it('7: rejects JSON at form-only token endpoints, accepts a charset suffix, and checks every audience', async () => {
    expect(
      (await p.ask('POST', token, { json: { grant_type: 'client_credentials' } })).body['error'],
    ).toBe('invalid_request')
    const form = 'grant_type=client_credentials'
    const type = { 'content-type': 'application/x-www-form-urlencoded; charset=UTF-8', ...p.m2m }
    expect((await p.ask('POST', token, { headers: type, text: form })).status).toBe(200)
    const audiences = `${form}&audience=${encodeURIComponent(issuer)}&audience=https%3A%2F%2Felse.example`
    expect((await p.ask('POST', token, { headers: type, text: audiences })).body['error']).toBe(
      'invalid_target',
    )
  })

  it('8: sends Cache-Control: no-store with tokens, keys, secrets and their errors', async () => {
    const { at } = await p.newUser()
    const answers = [
      await p.ask('POST', token, client(p.id, p.secret)),
      await p.ask('POST', token, client(p.id, 'wrong')),
      await p.ask('POST', `${at}/token`),
      await p.ask('POST', `${at}/keys`),
      await p.ask('POST', `${at}/keys`, { headers: {} }),
      await p.ask('POST', `${p.path}/users/nobody/token`),
      await p.ask('POST', `${p.path}/credentials?target=m2m`, { headers: other.session }),
    ]
    expect(answers.map(({ headers }) => headers.get('cache-control'))).toEqual(
      answers.map(() => 'no-store'),
    )
  })

  it('9: signs with typ at+jwt, a kid, a jti, and both client_id and azp', async () => {
    const { token: user } = await p.newUser()
    for (const jwt of [user, p.app.machineToken.slice(7)]) {
      expect(headerOf(jwt)).toMatchObject({
        typ: 'at+jwt',
        alg: 'RS256',
        kid: expect.stringMatching(/./),
      })
      const claims = claimsOf(jwt)
      expect(claims).toMatchObject({
        jti: expect.stringMatching(/^[0-9a-f-]{36}$/),
        azp: claims['client_id'],
      })
    }
  })

  it('10: derives iss, aud and verification_uri from its configuration, never from Host or X-Forwarded-Host', async () => {
    const headers = {
      'x-forwarded-host': 'evil.example',
      'x-forwarded-proto': 'http',
      forwarded: 'host=evil.example',
    }
    const minted = await p.ask('POST', token, {
      ...client(p.id, p.secret),
      headers: { ...p.m2m, ...headers },
    })
    expect(claimsOf(minted.body['access_token'])).toMatchObject({ iss: issuer, aud: issuer })
    const device = await p.ask('POST', '/api/v1/oidc/device/auth', {
      headers,
      form: { client_id: p.app.clientId },
    })
    expect(device.body).toMatchObject({ verification_uri: `${publicUrl}/oidc/device` })
    const document = await p.ask('GET', '/api/v1/oidc/.well-known/openid-configuration', {
      headers,
    })
    expect(document.text).not.toContain('evil.example')
    expect(document.body).toMatchObject({ issuer, jwks_uri: `${issuer}/jwks` })
  })

  it('11: rotates signing keys: old tokens still verify, and the next key is published before its use', async () => {
    const kids = async () => JSON.stringify((await p.ask('GET', '/api/v1/oidc/jwks')).body['keys'])
    const { token: old } = await p.newUser()
    const { nextKid, activeKid } = await p.real.core.asOperator().rotateSigningKeys({ force: true })
    const { token: fresh } = await p.newUser()
    expect(headerOf(fresh)['kid']).toBe(activeKid)
    for (const kid of [headerOf(old)['kid'], activeKid, nextKid])
      // The gateway caches the key set for some seconds.
      await expect.poll(kids, { timeout: 15_000 }).toContain(String(kid))
    for (const jwt of [old, fresh]) {
      expect(
        (
          await p.ask('GET', '/api/v1/user/usage/balance', {
            headers: { authorization: `Bearer ${jwt}` },
          })
        ).status,
      ).toBe(200)
    }
    const { rows } = await p.real.core.sql.query(
      "select 1 from signing_keys where status = 'active'",
    )
    expect(rows).toHaveLength(1)
  })

  it('12: rotates a client secret with an overlap, in every process at once, and audits it', async () => {
    const created = await p.ask('POST', `/api/v1/apps/${other.clientId}/credentials?target=m2m`, {
      headers: other.session,
    })
    const fresh = basicOf(other.m2mClientId, String(created.body['clientSecret']))
    for (const authorization of [other.basic, fresh]) {
      expect(
        (await p.ask('GET', `/api/v1/apps/${other.clientId}/users`, { headers: { authorization } }))
          .status,
      ).toBe(200)
    }
    expect(
      (await p.ask('GET', `/api/v1/apps/${other.clientId}/audit`, { headers: other.session })).text,
    ).toContain('client_secret_rotated')
  })

  it('13: never stores keys and secrets in clear or shows them again', async () => {
    const { at, key } = await p.newUser()
    const secret = key.slice(key.indexOf('svc_ak_'))
    expect((await p.ask('GET', `${at}/keys`)).text).not.toContain(secret)
    for (const table of ['api_keys', 'client_secrets', 'idempotency_keys', 'audit_log']) {
      const { rows } = await p.real.core.sql.query<{ line: string }>(
        `select t::text as line from ${table} t`,
      )
      expect(rows.some(({ line }) => line.includes(secret) || line.includes(p.secret))).toBe(false)
    }
  })

  it('14: parses composite keys, checks the owner behind an app_ prefix, and rejects svc_cs_ as a key', async () => {
    const { key } = await p.newUser()
    const bare = key.slice(key.indexOf('svc_ak_'))
    const exchange = async (presented: string) =>
      (
        await p.ask('POST', `${p.path}/auth/api-key/token`, {
          headers: { authorization: `Bearer ${presented}` },
        })
      ).status
    expect([await exchange(key), await exchange(bare), await exchange(bare.slice(7))]).toEqual([
      200, 200, 200,
    ])
    expect([await exchange(`${other.clientId}_${bare}`), await exchange(p.secret)]).toEqual([
      401, 401,
    ])
    expect(
      (
        await p.appToken({
          grant_type: exchangeGrant,
          subject_token: p.secret,
          subject_token_type: accessToken,
        })
      ).error,
    ).toBe('invalid_grant')
  })

  it('15: gives keys, opaque sessions and refresh tokens distinct prefixes and never confuses them', async () => {
    const { token: jwt, key } = await p.newUser()
    const { body } = await p.token(
      { grant_type: exchangeGrant, subject_token: jwt, subject_token_type: accessToken },
      p.app.basic,
    )
    const session = String(body['access_token'])
    expect([session.slice(0, 7), key.includes('svc_ak_')]).toEqual(['svc_ss_', true])
    expect(
      (
        await p.ask('POST', `${p.path}/auth/api-key/token`, {
          headers: { authorization: `Bearer ${session}` },
        })
      ).status,
    ).toBe(401)
    expect(
      (
        await p.appToken({
          grant_type: exchangeGrant,
          subject_token: session,
          subject_token_type: accessToken,
        })
      ).error,
    ).toBe('invalid_grant')
  })

  it('16: limits an API key to the public client\'s scopes, without "admin"', async () => {
    const { key, at } = await p.newUser()
    for (const scope of ['admin', 'users:read', 'openid', 'sign:job admin']) {
      const exchanged = await p.ask('POST', `${p.path}/auth/api-key/token`, {
        headers: { authorization: `Bearer ${key}` },
        json: { scope },
      })
      const minted = await p.ask('POST', `${at}/token`, { json: { scope } })
      expect([exchanged.status, exchanged.body['error'], minted.body['error']]).toEqual([
        400,
        'invalid_scope',
        'invalid_scope',
      ])
    }
    const machine = await p.ask('POST', token, {
      form: { grant_type: 'client_credentials', scope: 'admin' },
    })
    expect(machine.body['error']).toBe('invalid_scope')
  })
})
