import { describe, expect, it } from 'vitest'
import { firstCall, laterCall, oddCall } from '../signer-bodies.ts'
import { startHarness, until, vectorNow, withoutDecision } from '../support.ts'
import { newSigningKey, sign } from './tokens.ts'

/** The webhook vectors of docs/signer-protocol.md, by number. */
describe('the credential', () => {
  it('8: refuses a request without a credential in the body, over HTTP 200', async () => {
    const { authorize } = await startHarness()
    const { transport, text } = await authorize({ headers: {}, state: firstCall().state })
    expect(transport).toBe(200)
    expect(withoutDecision(text)).toBe(
      '{"status":401,"reason":"missing credential","code":"missing_credential"}',
    )
  })

  it('9: reads header names and the scheme in any case', async () => {
    const { authorize } = await startHarness()
    const { state } = firstCall()
    const { json } = await authorize({
      headers: { authorization: ['bearer sk_live_alice'] },
      state,
    })
    expect(json).toMatchObject({ status: 200, auth_id: 'acme:alice', expiry: 0 })
  })

  it('10: requires the scheme in the header map, but not in the field', async () => {
    const { authorize } = await startHarness()
    const { state } = firstCall()
    for (const value of ['sk_live_alice', 'Basic c2s6eA==', 'Bearer', 'Bearer a b', 'Bearer "x"']) {
      expect((await authorize({ headers: { Authorization: [value] }, state })).json['status']).toBe(
        401,
      )
    }
    for (const body of [
      { authorization: 'sk_live_alice', payload: { state } },
      { authorization: 'Bearer sk_live_alice', payload: {}, state },
      { payload: { authorization: 'sk_live_alice', state } },
      { payload: { headers: { Authorization: 'Bearer sk_live_alice' }, state } },
    ]) {
      expect((await authorize(body)).json).toMatchObject({ status: 200, expiry: 0 })
    }
    const both = {
      authorization: 'sk_live_poor',
      headers: { Authorization: ['Bearer sk_live_alice'] },
      state,
    }
    expect((await authorize(both)).json['auth_id']).toBe('acme:alice')
  })

  it('11: accepts a string as a list of one, and treats an empty one as missing', async () => {
    const { authorize } = await startHarness()
    const status = async (value: unknown) =>
      (await authorize(firstCall({ headers: { Authorization: value } }))).json['status']
    expect(await status([''])).toBe(401)
    expect(await status([])).toBe(401)
    expect(await status('Bearer sk_live_alice')).toBe(200)
    for (const hostile of [1, null, {}, [[]], [null], true]) expect(await status(hostile)).toBe(401)
  })

  it('12: never picks one of two different credentials', async () => {
    const { authorize } = await startHarness()
    const two = (await authorize(oddCall(['Bearer sk_live_first', 'Bearer sk_live_second']))).json
    expect(two['status']).toBe(400)
    expect(two['reason']).toMatch(/ambiguous/)
    const spread = firstCall({ headers: { AUTHORIZATION: ['Bearer sk_live_poor'] } })
    expect((await authorize(spread)).json['status']).toBe(400)
    const same = firstCall({
      headers: { Authorization: ['Bearer sk_live_alice', 'Bearer sk_live_alice'] },
    })
    expect((await authorize(same)).json['status']).toBe(200)
  })

  it('13: ignores Signer-Auth-Id', async () => {
    const { authorize } = await startHarness()
    const { json } = await authorize(oddCall(['Bearer sk_live_tenant']))
    expect(json).toMatchObject({ status: 200, auth_id: 'tenant_a:user_42', expiry: 0 })
  })

  it('14: refuses a session that belongs to another identity', async () => {
    const { authorize } = await startHarness()
    for (const AuthID of ['acme:bob', 7, ['acme:alice']]) {
      const { json } = await authorize(firstCall({ state: { AuthID } }))
      expect(json).toMatchObject({ status: 403, reason: 'session belongs to another identity' })
      expect(json).not.toHaveProperty('auth_id')
    }
    expect((await authorize(firstCall({ state: { AuthID: 'acme:alice' } }))).json['status']).toBe(
      200,
    )
  })

  it('15: never returns the expiry of a JWT', async () => {
    const { authorize, core, clock } = await startHarness({ env: { SIGNING_TTL_SECONDS: '10' } })
    const key = await newSigningKey('k1')
    core.script.jwks = { keys: [key.jwk] }
    clock.seconds = 1_789_380_977
    const { json } = await authorize(laterCall(await sign(key, { exp: clock.seconds + 3600 })))
    expect(json).toMatchObject({
      status: 200,
      auth_id: 'tenant_a:user_42',
      expiry: clock.seconds + 10,
    })
  })

  it("16: tolerates a minute of clock skew, and lets the signer skip no call after the token's expiry", async () => {
    const { authorize, core } = await startHarness({ env: { SIGNING_TTL_SECONDS: '10' } })
    const key = await newSigningKey('k1')
    core.script.jwks = { keys: [key.jwk] }
    const LastUpdate = '2026-09-14T10:15:30Z'
    const decide = async (exp: number) =>
      (await authorize(laterCall(await sign(key, { exp }), { LastUpdate }))).json
    expect(await decide(vectorNow - 1)).toMatchObject({ status: 200, expiry: 0 })
    expect(await decide(vectorNow - 61)).toMatchObject({ status: 401, code: 'invalid_token' })
    expect(await decide(vectorNow + 4)).toMatchObject({ status: 200, expiry: vectorNow + 4 })
  })

  it('17: looks up an unknown key once for a hundred calls', async () => {
    const { authorize, core, clock } = await startHarness()
    const body = firstCall({ key: 'sk_live_nobody' })
    const replies = await Promise.all(Array.from({ length: 100 }, () => authorize(body)))
    expect(
      replies.every(({ json }) => json['status'] === 401 && json['code'] === 'invalid_api_key'),
    ).toBe(true)
    expect(core.calls.verifyApiKey).toBe(1)
    clock.seconds += 6
    await authorize(body)
    expect(core.calls.verifyApiKey).toBe(2)
  })

  it('18: refuses a revoked key as soon as the revocation arrives', async () => {
    const { authorize, core } = await startHarness()
    const body = firstCall({ key: 'sk_live_alice' })
    expect((await authorize(body)).json['status']).toBe(200)
    core.keys.delete('sk_live_alice')
    core.invalidate('key', 'key-alice')
    await until(async () => (await authorize(body)).json['status'] === 401)
    expect((await authorize(firstCall())).json['status']).toBe(200)
  })

  it('33: passes every user id unchanged, and refuses ids that would not survive', async () => {
    const { authorize, core } = await startHarness()
    const decide = async (externalUserId: string) => {
      const key = `sk_live_${core.keys.size}`
      core.keys.set(key, { clientId: 'acme', externalUserId, keyId: key })
      core.users.set(`acme:${externalUserId}`, { micros: 5_000_000n })
      return (await authorize(firstCall({ key }))).json
    }
    expect((await decide('user:42'))['auth_id']).toBe('acme:user:42')
    expect((await decide('team#7'))['auth_id']).toBe('acme:team#7')
    expect(await decide('zoë 🚀 "quoted"')).toMatchObject({
      status: 200,
      externalUserId: 'zoë 🚀 "quoted"',
    })
    expect((await decide('x'.repeat(251)))['status']).toBe(200)
    expect(await decide('x'.repeat(252))).toMatchObject({ status: 403, code: 'invalid_identity' })
    expect(await decide('é'.repeat(150))).toMatchObject({ status: 403, code: 'invalid_identity' })
    expect(await decide('line\nbreak')).toMatchObject({ status: 403, code: 'invalid_identity' })
  })

  it('34: refuses a client id with a colon, so that no two tenants share an auth_id', async () => {
    const { authorize, core } = await startHarness()
    core.keys.set('sk_live_colon', { clientId: 'a:b', externalUserId: 'c', keyId: 'key-colon' })
    core.users.set('a:b:c', { micros: 5_000_000n })
    expect((await authorize(firstCall({ key: 'sk_live_colon' }))).json).toMatchObject({
      status: 503,
    })
  })

  it('refuses a token of an app that core does not know', async () => {
    const { authorize, core } = await startHarness()
    const key = await newSigningKey('k1')
    core.script.jwks = { keys: [key.jwk] }
    const token = await sign(key, { client_id: 'nobody' })
    expect((await authorize(laterCall(token, { AuthID: '' }))).json).toMatchObject({
      status: 403,
      code: 'invalid_identity',
    })
  })
})
