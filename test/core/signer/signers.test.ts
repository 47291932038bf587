import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { connectCore } from '../../../deploy/cli/client.ts'
import { startSidecar } from '../../../sidecar/server.ts'
import {
  configOf as sidecarConfigOf,
  post,
  secret as webhookSecret,
} from '../../sidecar/support.ts'
import { firstCall } from '../../sidecar/signer-bodies.ts'
import {
  type TestApp,
  type TestCore,
  outcome,
  serviceToken,
  startTestCore,
  until,
} from '../support.ts'

let core: TestCore
let app: TestApp
let other: TestApp
let operator: ReturnType<typeof connectCore>
beforeAll(async () => {
  core = await startTestCore()
  app = await core.newApp()
  other = await core.newApp()
  operator = connectCore({ target: core.core.target, token: serviceToken })
})
afterAll(async () => {
  operator.close()
  await core.stop()
})

const mine = () => ({ allApps: false, clientIds: [app.clientId], mayPushEvents: true })

async function startOwnSidecar(env: Readonly<Record<string, string>> = {}) {
  const config = sidecarConfigOf({
    CORE_TARGET: core.core.target,
    CORE_TOKEN: serviceToken,
    ...env,
  })
  const sidecar = await startSidecar(config, {
    log: silentLog(),
    metrics: createMetrics('sidecar'),
    now: core.clock.now,
  })
  onTestFinished(sidecar.stop)
  const authorize = async (secret: string, key: string) =>
    post(`${sidecar.url}/authorize`, JSON.stringify(firstCall({ key })), {
      authorization: `Bearer ${secret}`,
    })
  const push = async (secret: string, clientId: string) =>
    post(
      `${sidecar.url}/events`,
      JSON.stringify({
        id: clientId,
        type: 'create_signed_ticket',
        data: { auth_id: `${clientId}:ada` },
      }),
      { authorization: `Bearer ${secret}` },
    )
  return { authorize, push }
}

async function keyOf(owner: TestApp): Promise<string> {
  const rpcs = core.as(owner.basic)
  await rpcs.upsertUser({ clientId: owner.clientId, externalUserId: 'ada' })
  const { apiKey } = await rpcs.createKey({ clientId: owner.clientId, externalUserId: 'ada' })
  return apiKey
}

describe('a signer', () => {
  it('gets decisions about users of its own apps only, and pushes their events only', async () => {
    const { credentials } = await operator.createSigner({ name: 'one', ...mine() })
    const { secret = '', eventsSecret = '' } = credentials ?? {}
    const sidecar = await startOwnSidecar()
    const [key, foreignKey] = [await keyOf(app), await keyOf(other)]
    await until(async () => (await sidecar.authorize(secret, key)).transport === 200)
    expect((await sidecar.authorize(secret, key)).json['code']).not.toBe('signer_not_bound')
    expect((await sidecar.authorize(secret, foreignKey)).json).toMatchObject({
      status: 403,
      code: 'signer_not_bound',
    })
    expect((await sidecar.authorize(webhookSecret, foreignKey)).json['code']).not.toBe(
      'signer_not_bound',
    )
    expect((await sidecar.push(eventsSecret, app.clientId)).transport).toBe(202)
    const refusal = await sidecar.push(eventsSecret, other.clientId)
    expect([refusal.transport, refusal.json['detail']]).toEqual([
      403,
      `this signer pushes no events of the app ${other.clientId}`,
    ])
    // Each secret opens its own route.
    expect((await sidecar.push(secret, app.clientId)).transport).toBe(401)
    expect((await sidecar.authorize(eventsSecret, key)).transport).toBe(401)
  })

  it('is told to sidecars as it changes: apps, new secrets, its end', async () => {
    const { credentials } = await operator.createSigner({ name: 'two', ...mine() })
    const secret = credentials?.secret ?? ''
    const sidecar = await startOwnSidecar()
    const key = await keyOf(app)
    await until(async () => (await sidecar.authorize(secret, key)).transport === 200)
    await operator.setSignerApps({ name: 'two', allApps: false, clientIds: [other.clientId] })
    await until(
      async () => (await sidecar.authorize(secret, key)).json['code'] === 'signer_not_bound',
    )
    const next = await operator.rotateSigner({ name: 'two', overlapSeconds: 60 })
    const nextSecret = next.credentials?.secret ?? ''
    await until(async () => (await sidecar.authorize(nextSecret, key)).transport === 200)
    expect((await sidecar.authorize(secret, key)).transport).toBe(200)
    core.clock.advance(61_000)
    expect((await sidecar.authorize(secret, key)).transport).toBe(401)
    await operator.removeSigner({ name: 'two' })
    await until(async () => (await sidecar.authorize(nextSecret, key)).transport === 401)
  })

  it('is listed without its secrets, which are stored as their HMAC', async () => {
    const { credentials } = await operator.createSigner({ name: 'three', ...mine() })
    const { signers } = await operator.listSigners({})
    expect(signers.find(({ name }) => name === 'three')).toMatchObject({
      allApps: false,
      clientIds: [app.clientId],
      mayPushEvents: true,
      secrets: 2,
    })
    const { rows } = await core.sql.query('select * from signer_secrets')
    expect(JSON.stringify(rows)).not.toContain(credentials?.secret)
  })

  it.each([
    ['a taken name', { name: 'taken' }, 'CONFLICT'],
    ['a malformed name', { name: 'A b' }, 'REQUEST_INVALID'],
    ['an unknown app', { clientIds: ['app_unknown'] }, 'NOT_FOUND'],
    ['no app', { clientIds: [] }, 'REQUEST_INVALID'],
    ['apps and all apps', { allApps: true }, 'REQUEST_INVALID'],
  ])('is refused for %s', async (_name, change, reason) => {
    if (reason === 'CONFLICT') await operator.createSigner({ name: 'taken', ...mine() })
    const ends = await outcome(operator.createSigner({ name: 'four', ...mine(), ...change }))
    expect(ends).toBe(reason)
  })

  it('that does not exist cannot be changed', async () => {
    const ends = await Promise.all([
      outcome(operator.rotateSigner({ name: 'nobody', overlapSeconds: 0 })),
      outcome(operator.setSignerApps({ name: 'nobody', allApps: true, clientIds: [] })),
      outcome(operator.removeSigner({ name: 'nobody' })),
    ])
    expect(ends).toEqual(['NOT_FOUND', 'NOT_FOUND', 'NOT_FOUND'])
  })
})

describe('EVENTS_SECRET', () => {
  it('opens /events in place of WEBHOOK_SECRET', async () => {
    const eventsSecret = 'a-secret-for-events-only-0123456789'
    const sidecar = await startOwnSidecar({ EVENTS_SECRET: eventsSecret })
    expect((await sidecar.push(eventsSecret, app.clientId)).transport).toBe(202)
    expect((await sidecar.push(webhookSecret, app.clientId)).transport).toBe(401)
    expect((await sidecar.authorize(eventsSecret, await keyOf(app))).transport).toBe(401)
  })
})
