import { randomUUID } from 'node:crypto'
import { rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { newSecret } from '../../../core/lib/crypto.ts'
import { startHarness, withoutDecision } from '../support.ts'
import { firstCall } from '../signer-bodies.ts'
import { issuer, newSigningKey, sign } from './tokens.ts'

const clientId = 'app_0123456789abcdef01234567'

describe('our own key', () => {
  it('is accepted bare, composite and as the secret alone, and refused without a lookup when mistyped', async () => {
    const { authorize, core } = await startHarness({ keyShape: null })
    const key = newSecret('svc_ak_')
    const forms = [key, `${clientId}_${key}`, key.slice('svc_ak_'.length)]
    for (const form of forms)
      core.keys.set(form, { clientId: 'acme', externalUserId: 'alice', keyId: 'key-1' })
    for (const form of forms) {
      expect((await authorize(firstCall({ key: form }))).json).toMatchObject({
        status: 200,
        auth_id: 'acme:alice',
      })
    }
    expect(core.calls.verifyApiKey).toBe(3)
    const mistyped = key.replace(/.$/, (last) => (last === 'a' ? 'b' : 'a'))
    for (const wrong of [
      mistyped,
      `${clientId}_${mistyped}`,
      'svc_ak_',
      `svc_ak_${'x'.repeat(49)}`,
      'x'.repeat(49),
    ]) {
      expect((await authorize(firstCall({ key: wrong }))).json).toMatchObject({
        status: 401,
        code: 'invalid_api_key',
      })
    }
    expect(core.calls.verifyApiKey).toBe(3)
  })

  it('of the builder API is accepted alone and after a user name that contains "_"', async () => {
    const { authorize, core } = await startHarness({ keyShape: null })
    const key = newSecret('sk_')
    const [, digits = ''] = key.split('_')
    const forms = [key, `sk_YWRh_${digits}`, `sk_Pz8_Pj4-_${digits}`]
    for (const form of forms)
      core.keys.set(form, { clientId: 'acme', externalUserId: 'alice', keyId: 'key-1' })
    for (const form of forms)
      expect((await authorize(firstCall({ key: form }))).json).toMatchObject({
        status: 200,
        auth_id: 'acme:alice',
      })
    expect(core.calls.verifyApiKey).toBe(3)
    for (const wrong of ['sk_', `sk_${'x'.repeat(49)}`, `svc_ak_${digits}`, `${key}_`, `${key}x`])
      expect((await authorize(firstCall({ key: wrong }))).json).toMatchObject({
        status: 401,
        code: 'invalid_api_key',
      })
    expect(core.calls.verifyApiKey).toBe(3)
  })

  it('is not assumed for a credential of an unknown form', async () => {
    const { authorize, core } = await startHarness()
    expect((await authorize(firstCall({ key: 'whatever' }))).json).toMatchObject({
      status: 401,
      code: 'invalid_token',
    })
    expect(core.calls.verifyApiKey).toBe(0)
  })
})

describe('the mode', () => {
  it('api_key refuses tokens, and oidc refuses keys', async () => {
    const signingKey = await newSigningKey('k1')
    const token = await sign(signingKey, { client_id: 'acme', external_user_id: 'alice' })
    for (const [mode, accepted, refused] of [
      ['api_key', 'sk_live_alice', token],
      ['oidc', token, 'sk_live_alice'],
    ]) {
      const { authorize, core } = await startHarness({ env: { IDENTITY_AUTH_MODE: mode ?? '' } })
      core.script.jwks = { keys: [signingKey.jwk] }
      expect((await authorize(firstCall({ key: accepted ?? '' }))).json['status']).toBe(200)
      expect((await authorize(firstCall({ key: refused ?? '' }))).json['status']).toBe(401)
    }
  })

  it('custom loads a module, and answers its fault with 503 without details', async () => {
    const path = join(tmpdir(), `verifier-${randomUUID()}.mjs`)
    writeFileSync(
      path,
      `export const createVerifier = ({ issuer }) => async ({ credential, headers }) => {
      if (headers.boom) throw new Error('db password=hunter2')
      if (credential.text !== 'open-sesame') return null
      return { kind: 'yes', source: 'local', identity: { issuer, clientId: 'acme', externalUserId: 'alice',
        userId: null, keyId: null, issuedAt: null, expiresAt: null, keepUntil: 0 } }
    }`,
    )
    onTestFinished(() => rmSync(path))
    const { authorize } = await startHarness({ env: { IDENTITY_AUTH_MODE: `custom:${path}` } })
    expect((await authorize(firstCall({ key: 'open-sesame' }))).json).toMatchObject({
      status: 200,
      auth_id: 'acme:alice',
    })
    expect((await authorize(firstCall({ key: 'sk_live_alice' }))).json['status']).toBe(401)
    const { text } = await authorize(firstCall({ key: 'open-sesame', headers: { boom: ['x'] } }))
    expect(withoutDecision(text)).toBe(
      '{"status":503,"reason":"authorization unavailable","code":"authorization_unavailable"}',
    )
  })

  /** Starts a sidecar with a custom verifier of that body, and counts its runs. */
  async function withCustom(body: string) {
    const path = join(tmpdir(), `verifier-${randomUUID()}.mjs`)
    writeFileSync(
      path,
      `import { setTimeout as sleep } from 'node:timers/promises'
      const yes = (clientId, externalUserId) => ({ kind: 'yes', source: 'token', identity: { issuer: 'https://own.example',
        clientId, externalUserId, keyId: null, grants: [], issuedAt: null, expiresAt: null, keepUntil: Date.now() + 60_000 } })
      const body = JSON.stringify({ status: 401, reason: 'unknown tenant', code: 'unknown_tenant' })
      const no = { kind: 'no', remember: true, refusal: { status: 401, code: 'unknown_tenant', body, bytes: body.length } }
      export let runs = 0
      export const createVerifier = () => async (presentation) => {
        runs++
        await sleep(20)
        ${body}
      }`,
    )
    onTestFinished(() => rmSync(path))
    const { authorize } = await startHarness({ env: { IDENTITY_AUTH_MODE: `custom:${path}` } })
    const module: { readonly runs: number } = await import(pathToFileURL(path).href)
    const askAs = async (tenant: string) => {
      const headers = { 'X-Tenant': [tenant] }
      const { json } = await authorize(firstCall({ key: 'shared-by-all', headers }))
      return json['auth_id'] ?? json['code']
    }
    return { askAs, runs: () => module.runs }
  }

  it('custom distinguishes requests with one credential by the headers it reads', async () => {
    const { askAs } = await withCustom(`
      const [tenant] = presentation.headers['X-Tenant']
      if (tenant === 'away') throw new Error('away')
      return tenant === 'nobody' ? no : yes(tenant, 'alice')`)
    const tenants = ['acme', 'nobody', 'ac:me', 'away', 'acme']
    const answers = [
      'acme:alice',
      'unknown_tenant',
      'authorization_unavailable',
      'authorization_unavailable',
      'acme:alice',
    ]
    expect(await Promise.all(tenants.map(askAs))).toEqual(answers)
    for (const [i, tenant] of tenants.entries()) expect(await askAs(tenant)).toBe(answers[i])
  })

  it('custom verifies a credential once if it reads no headers', async () => {
    const { askAs, runs } = await withCustom(
      `return presentation.credential.text === 'shared-by-all' ? yes('acme', 'alice') : null`,
    )
    const askAll = () => Promise.all(Array.from({ length: 5 }, () => askAs('any')))
    expect(new Set(await askAll())).toEqual(new Set(['acme:alice']))
    expect(await askAs('other')).toBe('acme:alice')
    expect(runs()).toBe(1)
  })

  it('custom refuses to start with a module that exports no verifier', async () => {
    await expect(startHarness({ env: { IDENTITY_AUTH_MODE: 'custom:node:path' } })).rejects.toThrow(
      /createVerifier/,
    )
    await expect(
      startHarness({ env: { IDENTITY_AUTH_MODE: 'custom:./nowhere.ts' } }),
    ).rejects.toThrow(/cannot load/)
  })
})

describe('trusted headers', () => {
  const proxySecret = 'proxy-secret-of-these-tests-0123456789'
  const env = { IDENTITY_AUTH_MODE: 'trusted_headers', TRUSTED_PROXY_SECRET: proxySecret }
  const headers = {
    'X-Livepeer-Usage-Issuer': [`${issuer}/`],
    'X-Livepeer-Client-Id': ['acme'],
    'X-Livepeer-Usage-Subject': ['alice'],
    'X-Livepeer-Proxy-Secret': [proxySecret],
  }
  const { state } = firstCall()

  it('are accepted from a proxy that sends its secret', async () => {
    const { authorize } = await startHarness({ env })
    expect((await authorize({ headers, state })).json).toMatchObject({
      status: 200,
      auth_id: 'acme:alice',
    })
  })

  it.each([
    ['no proof', { 'X-Livepeer-Proxy-Secret': [] }],
    ['a wrong proof', { 'X-Livepeer-Proxy-Secret': ['x'] }],
    ['two proofs', { 'x-livepeer-proxy-secret': ['guess'] }],
    ['another issuer', { 'X-Livepeer-Usage-Issuer': ['https://evil.example'] }],
    ['no user', { 'X-Livepeer-Usage-Subject': [''] }],
    ['two users', { 'X-Livepeer-Usage-Subject': ['alice', 'bob'] }],
    ['another kind of user', { 'X-Livepeer-Usage-Subject-Type': ['wallet'] }],
  ])('are refused with %s', async (_what, changed) => {
    const { authorize } = await startHarness({ env })
    const { json } = await authorize({ headers: { ...headers, ...changed }, state })
    expect(json).toMatchObject({ status: 403, code: 'invalid_identity' })
  })

  it('are refused with 429 after too many wrong proofs, and accepted with the right one', async () => {
    const limits = { WEBHOOK_GUESSES_PER_MINUTE: '2' }
    const { authorize, clock } = await startHarness({ env: { ...env, ...limits } })
    const guess = async (proof: string) =>
      (await authorize({ headers: { ...headers, 'X-Livepeer-Proxy-Secret': [proof] }, state })).json
    for (const proof of ['a', 'b']) expect(await guess(proof)).toMatchObject({ status: 403 })
    expect(await guess('c')).toMatchObject({ status: 429, code: 'rate_limited' })
    expect(await guess(proxySecret)).toMatchObject({ status: 200 })
    clock.seconds += 61
    expect(await guess('d')).toMatchObject({ status: 403, code: 'invalid_identity' })
  })

  it('are verified separately for concurrent requests with one credential', async () => {
    const { authorize } = await startHarness({ env })
    const users = ['alice', 'bob', 'carol', 'dave']
    const answers = await Promise.all(
      users.map((user) =>
        authorize({
          headers: {
            ...headers,
            Authorization: ['Bearer of-the-proxy'],
            'X-Livepeer-Usage-Subject': [user],
          },
          state,
        }),
      ),
    )
    // A refusal for lack of money contains no user.
    const named = answers.map(({ json }) => json['auth_id'] ?? json['code'])
    expect(named).toEqual([
      'acme:alice',
      'insufficient_balance',
      'invalid_identity',
      'invalid_identity',
    ])
  })

  it.each(['api_key', 'oidc'])('are ignored in the mode %s', async (mode) => {
    const { authorize } = await startHarness({
      env: { TRUSTED_PROXY_SECRET: proxySecret, IDENTITY_AUTH_MODE: mode },
    })
    expect((await authorize({ headers, state })).json).toMatchObject({
      status: 401,
      code: 'missing_credential',
    })
  })

  describe('in composite', () => {
    const composite = { TRUSTED_PROXY_SECRET: proxySecret }
    const { 'X-Livepeer-Proxy-Secret': _proof, ...unproven } = headers
    const ofTenant = {
      'X-Livepeer-Usage-Subject': ['user_42'],
      'X-Livepeer-Client-Id': ['tenant_a'],
    }
    const key = { Authorization: ['Bearer sk_live_alice'] }
    const ask = async (
      sent: Readonly<Record<string, readonly string[]>>,
      options: Readonly<Record<string, string>> = composite,
    ) => {
      const { authorize } = await startHarness({ env: options })
      return (await authorize({ headers: sent, state })).json
    }

    it("are accepted with the proxy's secret", async () => {
      expect(await ask(headers)).toMatchObject({ status: 200, auth_id: 'acme:alice' })
    })

    it("are ignored without the secret: the integrators' SDK sends them with its Bearer", async () => {
      expect(await ask({ ...unproven, ...ofTenant, ...key })).toMatchObject({
        status: 200,
        auth_id: 'acme:alice',
      })
      expect(await ask(unproven)).toMatchObject({ status: 401, code: 'missing_credential' })
    })

    it('take precedence over the credential, even when refused', async () => {
      expect(await ask({ ...headers, ...ofTenant, ...key })).toMatchObject({
        status: 200,
        auth_id: 'tenant_a:user_42',
      })
      for (const wrong of [['x'], [proxySecret, proxySecret], ['x', proxySecret]])
        expect(await ask({ ...headers, ...key, 'X-Livepeer-Proxy-Secret': wrong })).toMatchObject({
          status: 403,
          code: 'invalid_identity',
        })
    })

    it('are not cached under a credential, nor the credential under them', async () => {
      const { authorize } = await startHarness({ env: composite })
      const idOf = async (sent: object) =>
        (await authorize({ headers: sent, state: undefined })).json['auth_id']
      expect(await idOf(key)).toBe('acme:alice')
      expect(await idOf({ ...headers, ...ofTenant, ...key })).toBe('tenant_a:user_42')
      expect(await idOf(key)).toBe('acme:alice')
    })

    it('are ignored when no proxy secret is configured', async () => {
      expect(await ask({ ...headers, ...ofTenant, ...key }, {})).toMatchObject({
        status: 200,
        auth_id: 'acme:alice',
      })
    })

    it('require a secret that is long enough', async () => {
      await expect(startHarness({ env: { TRUSTED_PROXY_SECRET: 'short' } })).rejects.toThrow(
        /TRUSTED_PROXY_SECRET must have at least 32 characters/,
      )
    })
  })
})
