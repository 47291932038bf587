import { Agent } from 'node:http'
import { describe, expect, it } from 'vitest'
import { newSigningKey, sign } from './tokens.ts'
import {
  firstCall, laterCall, oddCall, oldSecret, post, secret, send, startHarness, until, vectorNow,
} from './support.ts'

const caller = { authorization: `Bearer ${secret}` }

/** The vectors of signer-contract.md section 8 by number. 22 and 23 need reservations. */
describe('who calls', () => {
  it('1: allows the happy path with the identity and an expiry of exactly ten seconds', async () => {
    const { authorize, core } = await startHarness()
    const { transport, text, headers } = await authorize(firstCall())
    expect(transport).toBe(200)
    expect(headers['content-type']).toBe('application/json')
    expect(text).toBe(
      `{"status":200,"auth_id":"acme:alice","externalUserId":"alice","expiry":${vectorNow + 10},`
      + '"identity":{"issuer":"http://localhost:8080/api/v1/oidc","client_id":"acme","usage_subject":"alice",'
      + '"usage_subject_type":"external_user_id"}}')
    expect([...core.calls.tokens]).toEqual(['core-token-of-these-tests-0123456789'])
  })

  it('2: turns a caller without the right secret away before any look-up', async () => {
    const { authorize, core } = await startHarness()
    const wrong: Record<string, string>[] = [{}, { authorization: 'Bearer wrong' }, { authorization: secret }, { 'x-api-key': '' }]
    for (const headers of wrong) {
      const reply = await authorize(firstCall(), headers)
      expect(reply.transport).toBe(401)
      expect(reply.text).toBe('{"status":401,"reason":"unauthorized webhook caller"}')
    }
    expect((await authorize('not json', {})).transport).toBe(401)
    expect(core.calls.verifyApiKey + core.calls.getAccess).toBe(0)
  })

  it('3: accepts the secret in each of the four headers', async () => {
    const { authorize } = await startHarness()
    for (const name of ['X-Api-Key', 'X-Webhook-Secret', 'Livepeer-Clearinghouse-Token']) {
      expect((await authorize(firstCall(), { [name]: secret })).json['status']).toBe(200)
    }
  })

  it('4: accepts the old secret while it is rotated and not afterwards', async () => {
    const during = await startHarness()
    expect((await during.authorize(firstCall(), { authorization: `Bearer ${oldSecret}` })).json['status']).toBe(200)
    const after = await startHarness({ env: { WEBHOOK_SECRET: secret } })
    expect((await after.authorize(firstCall(), { authorization: `Bearer ${oldSecret}` })).transport).toBe(401)
    const unset = await startHarness({ env: { WEBHOOK_SECRET: ' ' } })
    expect((await unset.authorize(firstCall(), { authorization: 'Bearer ' })).transport).toBe(401)
  })

  it('5: refuses a secret that differs in its last byte and trims blanks', async () => {
    const { authorize } = await startHarness()
    expect((await authorize(firstCall(), { authorization: 'Bearer whsec_tesu' })).transport).toBe(401)
    expect((await authorize(firstCall(), { authorization: `Bearer  ${secret} ` })).json['status']).toBe(200)
  })

  it('6: does not look at Content-Type', async () => {
    const { authorize } = await startHarness()
    const foreign = await authorize(firstCall(), { ...caller, 'content-type': 'application/foo' })
    expect(foreign.json['status']).toBe(200)
    expect((await authorize(firstCall())).json['status']).toBe(200)
  })

  it('7: answers 400 to what is not one JSON object', async () => {
    const { authorize } = await startHarness()
    for (const body of ['nope', JSON.stringify(firstCall()).slice(0, 100), '[]', 'null', '1', '""', '', '\uFEFF{}']) {
      const reply = await authorize(body)
      expect(reply.transport).toBe(400)
      expect(reply.text).toBe('{"status":400,"reason":"invalid request json"}')
    }
  })

  it('35: knows its routes and nothing else', async () => {
    const { sidecar, core } = await startHarness()
    const get = await send(`${sidecar.url}/authorize`, { method: 'GET' })
    expect([get.transport, get.headers.allow]).toEqual([405, 'POST'])
    expect((await post(`${sidecar.url}/other`, '{}')).transport).toBe(404)
    expect((await send(`${sidecar.url}/`, { method: 'HEAD' })).transport).toBe(404)
    expect((await send(`${sidecar.url}/events`, { method: 'GET' })).transport).toBe(405)
    expect((await send(`${sidecar.url}/health`, { method: 'POST' })).transport).toBe(405)
    expect((await send(`${sidecar.url}/health`, { method: 'GET' })).transport).toBe(200)
    expect((await send(`${sidecar.url}/healthz`, { method: 'GET' })).transport).toBe(200)
    const ready = await send(`${sidecar.url}/readyz?x=1`, { method: 'GET' })
    expect([ready.transport, ready.json['core']]).toEqual([200, true])
    core.stop()
    await until(async () => (await send(`${sidecar.url}/readyz`, { method: 'GET' })).transport === 503)
    expect((await send(`${sidecar.url}/healthz`, { method: 'GET' })).transport).toBe(200)
  })
})

describe('which credential', () => {
  it('8: refuses a request without a credential in the body, over HTTP 200', async () => {
    const { authorize } = await startHarness()
    const { transport, text } = await authorize({ headers: {}, state: firstCall().state })
    expect(transport).toBe(200)
    expect(text).toBe('{"status":401,"reason":"missing credential","code":"missing_credential"}')
  })

  it('9: reads header names and the scheme in any case', async () => {
    const { authorize } = await startHarness()
    const { state } = firstCall()
    const { json } = await authorize({ headers: { authorization: ['bearer sk_live_alice'] }, state })
    expect(json).toMatchObject({ status: 200, auth_id: 'acme:alice', expiry: vectorNow + 10 })
  })

  it('10: demands the scheme in the header map, and not in the field', async () => {
    const { authorize } = await startHarness()
    const { state } = firstCall()
    for (const value of ['sk_live_alice', 'Basic c2s6eA==', 'Bearer', 'Bearer a b', 'Bearer "x"']) {
      expect((await authorize({ headers: { Authorization: [value] }, state })).json['status']).toBe(401)
    }
    for (const body of [
      { authorization: 'sk_live_alice', payload: { state } },
      { authorization: 'Bearer sk_live_alice', payload: {}, state },
      { payload: { authorization: 'sk_live_alice', state } },
      { payload: { headers: { Authorization: 'Bearer sk_live_alice' }, state } },
    ]) {
      expect((await authorize(body)).json).toMatchObject({ status: 200, expiry: vectorNow + 10 })
    }
    const both = { authorization: 'sk_live_poor', headers: { Authorization: ['Bearer sk_live_alice'] }, state }
    expect((await authorize(both)).json['auth_id']).toBe('acme:alice')
  })

  it('11: takes a string for a list of one and nothing from an empty one', async () => {
    const { authorize } = await startHarness()
    const status = async (value: unknown) => (await authorize(firstCall({ headers: { Authorization: value } }))).json['status']
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
    const same = firstCall({ headers: { Authorization: ['Bearer sk_live_alice', 'Bearer sk_live_alice'] } })
    expect((await authorize(same)).json['status']).toBe(200)
  })

  it('13: never looks at Signer-Auth-Id', async () => {
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
    expect((await authorize(firstCall({ state: { AuthID: 'acme:alice' } }))).json['status']).toBe(200)
  })

  it('15: never hands out the expiry of a JWT', async () => {
    const { authorize, core, clock } = await startHarness()
    const key = await newSigningKey('k1')
    core.script.jwks = { keys: [key.jwk] }
    clock.seconds = 1_789_380_977
    const { json } = await authorize(laterCall(await sign(key, { exp: clock.seconds + 3600 })))
    expect(json).toMatchObject({ status: 200, auth_id: 'tenant_a:user_42', expiry: clock.seconds + 10 })
  })

  it('16: allows for a minute of clock skew, and promises nothing beyond the token', async () => {
    const { authorize, core } = await startHarness()
    const key = await newSigningKey('k1')
    core.script.jwks = { keys: [key.jwk] }
    const decide = async (exp: number) => (await authorize(laterCall(await sign(key, { exp })))).json
    expect(await decide(vectorNow - 1)).toMatchObject({ status: 200, expiry: 0 })
    expect(await decide(vectorNow - 61)).toMatchObject({ status: 401, code: 'invalid_token' })
    expect(await decide(vectorNow + 4)).toMatchObject({ status: 200, expiry: vectorNow + 4 })
  })

  it('17: looks an unknown key up once for a hundred calls', async () => {
    const { authorize, core, clock } = await startHarness()
    const body = firstCall({ key: 'sk_live_nobody' })
    const replies = await Promise.all(Array.from({ length: 100 }, () => authorize(body)))
    expect(replies.every(({ json }) => json['status'] === 401 && json['code'] === 'invalid_api_key')).toBe(true)
    expect(core.calls.verifyApiKey).toBe(1)
    clock.seconds += 6
    await authorize(body)
    expect(core.calls.verifyApiKey).toBe(2)
  })

  it('18: refuses a revoked key as soon as core has said so', async () => {
    const { authorize, core } = await startHarness()
    const body = firstCall({ key: 'sk_live_alice' })
    expect((await authorize(body)).json['status']).toBe(200)
    core.keys.delete('sk_live_alice')
    core.invalidate('key', 'key-alice')
    await until(async () => (await authorize(body)).json['status'] === 401)
    expect((await authorize(firstCall())).json['status']).toBe(200)
  })

  it('33: carries every user id through, and refuses what would not survive', async () => {
    const { authorize, core } = await startHarness()
    const decide = async (externalUserId: string) => {
      const key = `sk_live_${core.keys.size}`
      core.keys.set(key, { clientId: 'acme', externalUserId, keyId: key })
      core.users.set(`acme:${externalUserId}`, { micros: 5_000_000n })
      return (await authorize(firstCall({ key }))).json
    }
    expect((await decide('user:42'))['auth_id']).toBe('acme:user:42')
    expect((await decide('team#7'))['auth_id']).toBe('acme:team#7')
    expect((await decide('zoë 🚀 "quoted"'))).toMatchObject({ status: 200, externalUserId: 'zoë 🚀 "quoted"' })
    expect((await decide('x'.repeat(251)))['status']).toBe(200)
    expect(await decide('x'.repeat(252))).toMatchObject({ status: 403, code: 'invalid_identity' })
    expect(await decide('é'.repeat(150))).toMatchObject({ status: 403, code: 'invalid_identity' })
    expect(await decide('line\nbreak')).toMatchObject({ status: 403, code: 'invalid_identity' })
  })

  it('34: refuses a client id with a colon, so that no two tenants share an auth_id', async () => {
    const { authorize, core } = await startHarness()
    core.keys.set('sk_live_colon', { clientId: 'a:b', externalUserId: 'c', keyId: 'key-colon' })
    core.users.set('a:b:c', { micros: 5_000_000n })
    expect((await authorize(firstCall({ key: 'sk_live_colon' }))).json).toMatchObject({ status: 503 })
  })
})

describe('whether they may spend', () => {
  it('19: refuses a user without money with 483', async () => {
    const { authorize } = await startHarness()
    const { transport, text } = await authorize(firstCall({ key: 'sk_live_poor' }))
    expect(transport).toBe(200)
    expect(text).toBe('{"status":483,"reason":"insufficient balance","code":"insufficient_balance"}')
  })

  it('20: answers 503 in the body, in time, when core is slow or down', async () => {
    const { authorize, core, clock } = await startHarness()
    core.script.delayMs = 1500
    const started = performance.now()
    expect((await authorize(firstCall())).json).toMatchObject({ status: 503, code: 'authorization_unavailable' })
    expect(performance.now() - started).toBeLessThan(2000)
    core.script.delayMs = 0
    expect((await authorize(firstCall())).json['status']).toBe(200)
    core.stop()
    expect((await authorize(firstCall())).json['status']).toBe(200)
    clock.seconds += 11
    expect((await authorize(firstCall())).json).toMatchObject({ status: 503, code: 'billing_unavailable' })
  })

  it('21: allows exactly the minimum and refuses one below', async () => {
    const { authorize, core, clock } = await startHarness({ env: { ACCESS_MIN_USD_MICROS: '100' } })
    core.users.set('acme:alice', { micros: 100n })
    expect((await authorize(firstCall())).json['status']).toBe(200)
    core.users.set('acme:alice', { micros: 99n })
    clock.seconds += 11
    expect((await authorize(firstCall())).json['status']).toBe(483)
  })

  it('24: promises nothing ahead for fixed and untyped sessions', async () => {
    const { authorize } = await startHarness()
    for (const Type of ['fixed', '', 'else', 7]) {
      expect((await authorize(firstCall({ state: { Type } }))).json).toMatchObject({ status: 200, expiry: 0 })
    }
  })

  it('25: reads a state of v0.8.11, without App and Type', async () => {
    const { authorize } = await startHarness()
    const { json } = await authorize(firstCall({ state: { App: undefined, Type: undefined } }))
    expect(json).toMatchObject({ status: 200, auth_id: 'acme:alice', expiry: 0 })
  })

  it('26: ignores members it does not know', async () => {
    const { authorize } = await startHarness()
    const state = { AuthPolicy: 'x', AuthMaxPrice: { price: 1 }, ManifestID: 'm' }
    expect((await authorize(firstCall({ state }))).json).toMatchObject({ status: 200, expiry: vectorNow + 10 })
  })

  it('27: decides by the credential alone, with expiry 0, when there is no state', async () => {
    const { authorize } = await startHarness()
    const { headers } = firstCall()
    for (const state of [undefined, null, 'x', [], 7]) {
      expect((await authorize({ headers, state })).json).toMatchObject({ status: 200, auth_id: 'acme:alice', expiry: 0 })
    }
  })

  it('29: reads an instant with offset and nanoseconds', async () => {
    const { authorize, core } = await startHarness()
    const state = { SequenceNumber: 1, Type: 'live', LastUpdate: '2026-09-14T12:16:12.123456789+02:00' }
    await authorize(firstCall({ state }))
    const later = { ...state, SequenceNumber: 2, LastUpdate: '2026-09-14T10:16:17.123456789Z' }
    expect((await authorize(firstCall({ state: later }))).json['status']).toBe(200)
    expect(core.calls.getAccess).toBe(0)
  })

  it('30: ignores a hostile balance, time or price, and then promises nothing', async () => {
    const { authorize } = await startHarness()
    const expiry = async (state: object) => (await authorize(firstCall({ state }))).json
    for (const Balance of ['6000/7', '0', '49999999880000']) {
      expect(await expiry({ Balance })).toMatchObject({ status: 200, expiry: vectorNow + 10 })
    }
    for (const state of [
      { Balance: '1/0' }, { Balance: 'abc' }, { Balance: 7 }, { LastUpdate: 'yesterday' }, { LastUpdate: 3 },
      { InitialPricePerUnit: -1 }, { InitialPricePerUnit: 1.5 }, { InitialPricePerUnit: '12' },
      { InitialPricePerUnit: 1e300 }, { InitialPixelsPerUnit: 0 }, { SequenceNumber: -1, Balance: '-7' },
    ]) {
      expect(await expiry(state)).toMatchObject({ status: 200, expiry: 0 })
    }
  })

  it('42: adds the operator\'s ceiling in the unit of the session type', async () => {
    const env = { MAX_PRICE_LIVE_WEI: '1300', MAX_PRICE_LV2V_WEI: '7', MAX_PRICE_FIXED_WEI: '900719925474099267' }
    const { authorize } = await startHarness({ env })
    const text = async (Type: string) => (await authorize(firstCall({ state: { Type } }))).text
    expect(await text('live')).toContain('"maxPrice":{"price":1300,"currency":"wei","unit":"seconds"}}')
    expect(await text('lv2v')).toContain('"maxPrice":{"price":7,"currency":"wei","unit":"720p-pixel-seconds"}}')
    expect(await text('fixed')).toContain('"maxPrice":{"price":900719925474099267,"currency":"wei","unit":"fixed"}}')
    expect(await text('')).not.toContain('maxPrice')
  })
})

describe('what may arrive', () => {
  it('31: decides for a fat body, and refuses a huge one without reading it all', async () => {
    const { authorize, sidecar } = await startHarness()
    const fat = (bytes: number) => firstCall({ headers: { Cookie: ['c'.repeat(bytes)] } })
    expect((await authorize(fat(200 * 1024))).json['status']).toBe(200)
    const huge = await authorize(fat(3 * 1024 * 1024))
    expect(huge.transport).toBe(200)
    expect(huge.json['status']).toBe(431)
    const endless = new ReadableStream({ pull: (controller) => controller.enqueue(Buffer.alloc(65_536, ' ')) })
    const init = { method: 'POST', headers: caller, body: endless, duplex: 'half' as const }
    const chunked = await fetch(`${sidecar.url}/authorize`, init)
    expect(await chunked.json()).toMatchObject({ status: 431 })
  })

  it('32: takes odd header names, replacement characters and escapes', async () => {
    const { authorize } = await startHarness()
    const odd = JSON.stringify(firstCall({ headers: { X_under: ['\uFFFD'], 'X-Html': ['<&>'] } })).replace('<', '\\u003c')
    expect((await authorize(odd)).json['status']).toBe(200)
    const proto = JSON.stringify(firstCall()).replace('"Accept"', '"__proto__"')
    expect((await authorize(proto)).json['status']).toBe(200)
  })

  it('36: survives callers that hang up', async () => {
    const { sidecar, authorize, core } = await startHarness()
    core.script.delayMs = 50
    await Promise.all(Array.from({ length: 20 }, () =>
      fetch(`${sidecar.url}/authorize`, {
        method: 'POST', headers: caller, body: JSON.stringify(firstCall()), signal: AbortSignal.timeout(10),
      }).catch(() => null)))
    expect((await authorize(firstCall())).json['status']).toBe(200)
  })

  it('37: keeps an idle connection longer than the signer does', async () => {
    const { sidecar } = await startHarness()
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const exchange = () => send(`${sidecar.url}/authorize`, { headers: caller, body: JSON.stringify(firstCall()), agent })
    const first = await exchange()
    expect(Number(/timeout=(\d+)/.exec(String(first.headers['keep-alive']))?.[1])).toBeGreaterThan(90)
    expect((await exchange()).json['status']).toBe(200)
    agent.destroy()
  })

  it('38: answers twenty parallel calls on new connections', async () => {
    const { sidecar, authorize } = await startHarness()
    await authorize(firstCall())
    const replies = await Promise.all(Array.from({ length: 20 }, async () => {
      const started = performance.now()
      const headers = { ...caller, 'accept-encoding': 'gzip' }
      const reply = await send(`${sidecar.url}/authorize`, {
        headers, body: JSON.stringify(firstCall()), agent: new Agent({ keepAlive: false }),
      })
      return { status: reply.json['status'], ms: performance.now() - started }
    }))
    expect(replies.every(({ status }) => status === 200)).toBe(true)
    expect(replies.filter(({ ms }) => ms < 500)).toHaveLength(20)
  })

  it('39: keeps the words of an internal fault inside', async () => {
    const { authorize, core } = await startHarness()
    core.script.failing = true
    const { transport, text } = await authorize(firstCall())
    expect(transport).toBe(200)
    expect(text).toBe('{"status":503,"reason":"authorization unavailable","code":"authorization_unavailable"}')
  })

  it('41: refuses at once what exceeds its bound', async () => {
    const { authorize, core } = await startHarness({ env: { AUTHORIZE_MAX_IN_FLIGHT: '2' } })
    core.script.delayMs = 500
    const started = performance.now()
    const busy = [authorize(firstCall()), authorize(firstCall({ key: 'sk_live_alice' }))]
    await until(() => core.calls.verifyApiKey === 2)
    const reply = await authorize(firstCall())
    expect(reply).toMatchObject({ transport: 200, json: { status: 503 } })
    expect(performance.now() - started).toBeLessThan(450)
    expect((await Promise.all(busy)).map(({ json }) => json['status'])).toEqual([200, 200])
    expect((await authorize(firstCall())).json['status']).toBe(200)
  })
})

describe('an unknown app', () => {
  it('refuses a token of an app that core does not know', async () => {
    const { authorize, core } = await startHarness()
    const key = await newSigningKey('k1')
    core.script.jwks = { keys: [key.jwk] }
    const token = await sign(key, { azp: 'nobody' })
    expect((await authorize(laterCall(token, { AuthID: '' }))).json).toMatchObject({ status: 403, code: 'invalid_identity' })
  })
})
