import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type TestApp, bearerOf } from '../../../core/support.ts'
import { logInTo, manage } from '../../../support/web/people.ts'
import { type Console, startConsole } from '../../console.ts'

const url = '/api/v1/auth/validate'

async function withKeys(console: Console) {
  const app: TestApp = await console.newApp()
  const m2m = console.as(app.basic)
  const { user } = await m2m.upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
  const { apiKey, keyId } = await m2m.createKey({ clientId: app.clientId, externalUserId: 'ada' })
  const owner = manage(console, { session: (await logInTo(console, app, 'owner')).token })
  const { apiKey: appKey } = await owner.createKey({ clientId: app.clientId })
  const revoke = () => m2m.revokeKey({ clientId: app.clientId, externalUserId: 'ada', keyId })
  return { app, userId: user?.id, apiKey, appKey, revoke }
}

const wrongKeys = [
  'svc_ak_x',
  `svc_ak_${'0'.repeat(49)}`,
  `app_${'0'.repeat(24)}_svc_ak_${'0'.repeat(49)}`,
]

describe('GET form', () => {
  let console: Console
  beforeAll(async () => {
    console = await startConsole()
  })
  afterAll(() => console.stop())
  const ask = (authorization?: string) =>
    console.ask('GET', url, authorization === undefined ? {} : { authorization })

  it('returns plan and capabilities of the Bearer key', async () => {
    const { apiKey, appKey, app } = await withKeys(console)
    const valid = await ask(bearerOf(apiKey))
    expect(valid.body).toEqual({
      valid: true,
      planId: expect.stringMatching(/^[0-9a-f-]{36}$/),
      capabilities: ['*'],
      subscriptionRef: expect.stringMatching(/^subref_.{32}$/),
    })
    expect(valid.headers.get('cache-control')).toBe('no-store')
    expect((await ask(`bearer ${apiKey.slice(app.clientId.length + 1)}`)).body['valid']).toBe(true)
    // An app-level key acts for the owner, who is also on the Starter plan.
    expect((await ask(bearerOf(appKey))).body).toEqual({
      ...valid.body,
      subscriptionRef: expect.not.stringMatching(String(valid.body['subscriptionRef'])),
    })
  })

  it('returns 401 and valid: false for everything else', async () => {
    const { app, apiKey, revoke } = await withKeys(console)
    await revoke()
    for (const authorization of [
      undefined,
      app.basic,
      ...wrongKeys.map(bearerOf),
      bearerOf(apiKey),
    ]) {
      const { status, body, headers } = await ask(authorization)
      expect([status, body['valid'], body['correlation_id']]).toEqual([
        401,
        false,
        headers.get('x-correlation-id'),
      ])
      expect(headers.get('www-authenticate')).toMatch(/^Bearer /)
    }
  })

  it('has no POST form at the same time', async () => {
    const { status, body } = await console.ask('POST', url, { json: { key: 'x' } })
    expect([status, body['error']]).toEqual([404, 'not_found'])
  })
})

describe('POST form', () => {
  let console: Console
  beforeAll(async () => {
    console = await startConsole({ validateV2: true })
  })
  afterAll(() => console.stop())

  it('accepts the key in JSON, in a form, or as Bearer', async () => {
    const { app, apiKey, userId } = await withKeys(console)
    const answers = await Promise.all([
      console.ask('POST', url, { json: { key: apiKey } }),
      console.ask('POST', url, { form: `key=${apiKey}` }),
      console.ask('POST', url, { authorization: bearerOf(apiKey) }),
    ])
    for (const { status, body } of answers) {
      expect(status).toBe(200)
      expect(body).toEqual({
        valid: true,
        planId: expect.stringMatching(/^[0-9a-f-]{36}$/),
        user: { sub: userId },
        billing_account: { id: app.clientId, providerSlug: 'svc', billingMode: 'delegated' },
        capabilities: ['*'],
        quota: null,
        subscriptionRef: expect.stringMatching(/^subref_.{32}$/),
      })
    }
  })

  it('returns the owner for an app-level key, and no internal id', async () => {
    const { app, appKey, apiKey } = await withKeys(console)
    const { body } = await console.ask('POST', url, { json: { key: appKey } })
    const { users } = await console.as(app.basic).listUsers({ clientId: app.clientId })
    expect(body['user']).toEqual({ sub: users.find(({ role }) => role === 'owner')?.id })
    const { text } = await console.ask('POST', url, { json: { key: apiKey } })
    expect(text).not.toMatch(/client_id|external_user_id|model_id|openmeter_|keyId/)
    const { rows } = await console.sql.query(
      'select s.id from subscriptions s join clients c using (app_id) where c.client_id = $1',
      [app.clientId],
    )
    for (const { id } of rows) expect(text).not.toContain(id)
  })

  it.each([
    [{ json: {} }, 400],
    [{ json: { key: 5 } }, 400],
    [{ json: { key: '' } }, 400],
    [{ json: null }, 400],
    [{ form: 'key=a&key=b' }, 400],
    [{}, 400],
  ])('refuses %j with %i and valid: false', async (request, status) => {
    const answer = await console.ask('POST', url, request)
    expect([answer.status, answer.body['valid']]).toEqual([status, false])
  })

  it('returns 401 and valid: false for an invalid key', async () => {
    for (const key of wrongKeys) {
      const { status, body } = await console.ask('POST', url, { json: { key } })
      expect([status, body['valid']]).toEqual([401, false])
    }
  })

  it('replaces the GET form', async () => {
    const { apiKey } = await withKeys(console)
    const { status, body } = await console.ask('GET', url, { authorization: bearerOf(apiKey) })
    expect([status, body['error']]).toEqual([404, 'not_found'])
  })
})
