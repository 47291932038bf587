import { describe, expect, it } from 'vitest'
import { firstCall } from '../signer-bodies.ts'
import { oldSecret, post, secret, send, startHarness, until, vectorNow } from '../support.ts'

const caller = { authorization: `Bearer ${secret}` }

/** The webhook vectors of docs/signer-protocol.md, by number. */
describe('the caller', () => {
  it('1: allows the happy path with the identity, for exactly SIGNING_TTL_SECONDS', async () => {
    const { authorize, core } = await startHarness({ env: { SIGNING_TTL_SECONDS: '10' } })
    const { transport, text, headers } = await authorize(firstCall())
    expect(transport).toBe(200)
    expect(headers['content-type']).toBe('application/json')
    expect(text).toBe(
      `{"status":200,"auth_id":"acme:alice","externalUserId":"alice","expiry":${vectorNow + 10},` +
        '"identity":{"issuer":"http://localhost:8080/api/v1/oidc","client_id":"acme","usage_subject":"alice",' +
        '"usage_subject_type":"external_user_id"}}',
    )
    const careful = await startHarness({ core })
    const answer = await careful.authorize(firstCall({ state: { StateID: '00000001' } }))
    expect(answer.json).toMatchObject({ status: 200, auth_id: 'acme:alice', expiry: 0 })
    expect([...core.calls.tokens]).toEqual(['core-token-of-these-tests-0123456789'])
  })

  it('2: refuses a caller without the right secret before any lookup', async () => {
    const { authorize, core } = await startHarness()
    const wrong: Record<string, string>[] = [
      {},
      { authorization: 'Bearer wrong' },
      { authorization: secret },
      { 'x-api-key': '' },
    ]
    for (const headers of wrong) {
      const reply = await authorize(firstCall(), headers)
      expect(reply.transport).toBe(401)
      expect(reply.text).toBe('{"status":401,"reason":"unauthorized webhook caller"}')
    }
    expect((await authorize('not json', {})).transport).toBe(401)
    expect(core.calls.verifyApiKey + core.calls.lend).toBe(0)
  })

  it('3: accepts the secret in each of the four headers', async () => {
    const { authorize } = await startHarness()
    for (const name of ['X-Api-Key', 'X-Webhook-Secret', 'Livepeer-Clearinghouse-Token']) {
      expect((await authorize(firstCall(), { [name]: secret })).json['status']).toBe(200)
    }
  })

  it('4: accepts the old secret during a rotation only', async () => {
    const during = await startHarness()
    expect(
      (await during.authorize(firstCall(), { authorization: `Bearer ${oldSecret}` })).json[
        'status'
      ],
    ).toBe(200)
    const after = await startHarness({ env: { WEBHOOK_SECRET: secret } })
    expect(
      (await after.authorize(firstCall(), { authorization: `Bearer ${oldSecret}` })).transport,
    ).toBe(401)
    const unset = await startHarness({ env: { WEBHOOK_SECRET: ' ' } })
    expect((await unset.authorize(firstCall(), { authorization: 'Bearer ' })).transport).toBe(401)
  })

  it('5: refuses a secret that differs in its last byte, and trims blanks', async () => {
    const { authorize } = await startHarness()
    expect(
      (await authorize(firstCall(), { authorization: `Bearer ${secret.slice(0, -1)}c` })).transport,
    ).toBe(401)
    expect(
      (await authorize(firstCall(), { authorization: `Bearer  ${secret} ` })).json['status'],
    ).toBe(200)
  })

  it('6: ignores Content-Type', async () => {
    const { authorize } = await startHarness()
    const foreign = await authorize(firstCall(), { ...caller, 'content-type': 'application/foo' })
    expect(foreign.json['status']).toBe(200)
    expect((await authorize(firstCall())).json['status']).toBe(200)
  })

  it('7: answers 400 to a body that is not one JSON object', async () => {
    const { authorize } = await startHarness()
    for (const body of [
      'nope',
      JSON.stringify(firstCall()).slice(0, 100),
      '[]',
      'null',
      '1',
      '""',
      '',
      '\uFEFF{}',
    ]) {
      const reply = await authorize(body)
      expect(reply.transport).toBe(400)
      expect(reply.text).toBe('{"status":400,"reason":"invalid request json"}')
    }
  })

  it('35: answers only its own routes', async () => {
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
    expect([ready.transport, ready.json]).toMatchObject([
      200,
      { status: 'ok', parts: { core: 'ok' } },
    ])
    core.stop()
    // Money that core has lent still pays for calls.
    const readyz = () => send(`${sidecar.url}/readyz`, { method: 'GET' })
    await until(async () => (await readyz()).json['status'] === 'degraded')
    expect((await readyz()).transport).toBe(200)
    expect((await send(`${sidecar.url}/healthz`, { method: 'GET' })).transport).toBe(200)
  })
})
