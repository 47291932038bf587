import { SignJWT } from 'jose'
import { describe, expect, it } from 'vitest'
import { newSecret } from '../../../core/lib/crypto.ts'
import { firstCall, laterCall } from '../signer-bodies.ts'
import { secret, startHarness, vectorNow } from '../support.ts'
import { issuer, newSigningKey, sign } from '../identity/tokens.ts'

const key = await newSigningKey('k1')
const free = { AuthID: '' }

/** Easy mistakes in an implementation of the webhook. */
describe('the webhook', () => {
  it('signals a rejection as HTTP 200 without auth_id, and refuses all callers without WEBHOOK_SECRET', async () => {
    const { authorize } = await startHarness()
    const refused = await authorize(firstCall({ key: 'sk_live_unknown' }))
    expect([refused.transport, refused.json['status'], 'auth_id' in refused.json]).toEqual([
      200,
      401,
      false,
    ])
    const closed = await startHarness({ env: { WEBHOOK_SECRET: '' } })
    expect((await closed.authorize(firstCall())).transport).toBe(401)
    expect((await closed.authorize(firstCall(), { authorization: 'Bearer ' })).transport).toBe(401)
  })

  it('accepts both body formats, header names in any case, and all secret headers', async () => {
    const { authorize } = await startHarness()
    const { headers, state } = firstCall()
    const shapes = [
      { headers, state },
      { authorization: headers.Authorization[0], payload: { state } },
      { headers: { aUTHORIZATION: headers.Authorization }, state },
    ]
    for (const body of shapes) expect((await authorize(body)).json['status']).toBe(200)
    for (const name of [
      'authorization',
      'x-api-key',
      'x-webhook-secret',
      'livepeer-clearinghouse-token',
    ]) {
      const value = name === 'authorization' ? `Bearer ${secret}` : secret
      expect((await authorize(firstCall(), { [name]: value })).json['status']).toBe(200)
      expect((await authorize(firstCall(), { [name]: `${value}x` })).transport).toBe(401)
    }
  })

  it('returns its own expiry, does not cache failed lookups, and fails closed', async () => {
    const { authorize, core } = await startHarness()
    core.script.jwks = { keys: [key.jwk] }
    const token = await sign(key, { exp: vectorNow + 3600 })
    const { json } = await authorize(laterCall(token, free))
    expect(Number(json['expiry'])).toBeLessThanOrEqual(vectorNow + 60)
    core.script.failing = true
    expect((await authorize(firstCall())).json['status']).toBe(503)
    core.script.failing = false
    expect((await authorize(firstCall())).json['status']).toBe(200)
  })

  it('ignores headers without the proxy secret, does not fall back, rejects HS256 and tokens without exp, and accepts signer sessions', async () => {
    const harness = await startHarness({ keyShape: null })
    const { authorize, core } = harness
    core.script.jwks = { keys: [key.jwk] }
    const status = async (body: unknown) => (await authorize(body)).json['status']
    expect(
      await status({
        headers: { 'X-Livepeer-User': ['alice'], 'X-Livepeer-Client-Id': ['acme'] },
        state: {},
      }),
    ).toBe(401)
    const hs256 = await new SignJWT({
      iss: issuer,
      aud: issuer,
      azp: 'acme',
      external_user_id: 'alice',
      scope: 'sign:job',
      token_use: 'user',
    })
      .setProtectedHeader({ alg: 'HS256', kid: 'k1', typ: 'at+jwt' })
      .setExpirationTime(vectorNow + 60)
      .sign(Buffer.from(JSON.stringify(key.jwk)))
    expect(await status(laterCall(hs256, free))).toBe(401)
    expect(await status(laterCall(await sign(key, { exp: undefined }), free))).toBe(401)
    const session = newSecret('svc_ss_')
    core.sessions.set(session, {
      clientId: 'acme',
      externalUserId: 'alice',
      keyId: 'session-1',
      expiresAt: BigInt(vectorNow + 60),
    })
    expect(await status({ headers: { Authorization: [`Bearer ${session}`] }, state: {} })).toBe(200)
    core.script.failing = true
    expect(
      await status({ headers: { Authorization: [`Bearer ${newSecret('svc_ak_')}`] }, state: {} }),
    ).toBe(503)
  })
})
