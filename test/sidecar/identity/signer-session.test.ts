import { describe, expect, it } from 'vitest'
import { newSecret } from '../../../core/lib/crypto.ts'
import { startHarness, until, vectorNow } from '../support.ts'

const bearer = (token: string) => ({ headers: { Authorization: [`Bearer ${token}`] }, state: {} })

async function harnessWithSession(seconds = 86_400) {
  const harness = await startHarness({ keyShape: null })
  const token = newSecret('svc_ss_')
  harness.core.sessions.set(token, {
    clientId: 'acme',
    externalUserId: 'alice',
    keyId: 'session-1',
    expiresAt: BigInt(vectorNow + seconds),
  })
  return { ...harness, token, ask: () => harness.authorize(bearer(token)) }
}

describe('an opaque signer session', () => {
  it('identifies its user, and is looked up at core once', async () => {
    const { ask, core } = await harnessWithSession()
    const first = await ask()
    expect(first.json).toMatchObject({
      status: 200,
      auth_id: 'acme:alice',
      externalUserId: 'alice',
    })
    expect((await ask()).json['status']).toBe(200)
    expect(core.calls).toMatchObject({ verifySignerSession: 1, verifyApiKey: 0 })
  })

  it('is refused as soon as its revocation is received', async () => {
    const { ask, core, token } = await harnessWithSession()
    expect((await ask()).json['status']).toBe(200)
    core.sessions.delete(token)
    core.invalidate('key', 'session-1')
    await until(async () => (await ask()).json['status'] === 401)
  })

  it('is refused after its expiry, even if keys are cached longer', async () => {
    const { ask, core, token, clock } = await harnessWithSession(10)
    expect((await ask()).json['status']).toBe(200)
    core.sessions.delete(token)
    clock.seconds += 9
    expect((await ask()).json['status']).toBe(200)
    clock.seconds += 1
    expect((await ask()).json['status']).toBe(401)
  })

  it('with a wrong checksum costs no lookup', async () => {
    const { authorize, core } = await harnessWithSession()
    const answer = await authorize(bearer(`svc_ss_${'a'.repeat(49)}`))
    expect(answer.json).toMatchObject({ status: 401, code: 'invalid_api_key' })
    expect(core.calls.verifySignerSession).toBe(0)
  })

  it('is refused when core does not know it', async () => {
    const { authorize, core } = await harnessWithSession()
    expect((await authorize(bearer(newSecret('svc_ss_')))).json['status']).toBe(401)
    expect(core.calls.verifySignerSession).toBe(1)
  })
})
