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
import { logInTo, manage } from '../../support/web/people.ts'
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
    // Until the sidecar receives a new secret, it counts each try as a guess.
    SIGNER_ADDRESSES: '127.0.0.1',
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

describe('signer', () => {
  it('gets decisions and pushes events for its own apps only', async () => {
    const { credentials } = await operator.signers.createSigner({ name: 'one', ...mine() })
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
    // Each secret opens only its own route.
    expect((await sidecar.push(secret, app.clientId)).transport).toBe(401)
    expect((await sidecar.authorize(eventsSecret, key)).transport).toBe(401)
  })

  it('reaches sidecars with every change: apps, secrets and removal', async () => {
    const { credentials } = await operator.signers.createSigner({ name: 'two', ...mine() })
    const secret = credentials?.secret ?? ''
    const sidecar = await startOwnSidecar()
    const key = await keyOf(app)
    await until(async () => (await sidecar.authorize(secret, key)).transport === 200)
    await operator.signers.updateSigner({
      name: 'two',
      allApps: false,
      clientIds: [other.clientId],
    })
    await until(
      async () => (await sidecar.authorize(secret, key)).json['code'] === 'signer_not_bound',
    )
    const next = await operator.signers.rotateSigner({ name: 'two', overlapSeconds: 60 })
    const nextSecret = next.credentials?.secret ?? ''
    await until(async () => (await sidecar.authorize(nextSecret, key)).transport === 200)
    expect((await sidecar.authorize(secret, key)).transport).toBe(200)
    core.clock.advance(61_000)
    expect((await sidecar.authorize(secret, key)).transport).toBe(401)
    await operator.signers.deleteSigner({ name: 'two' })
    await until(async () => (await sidecar.authorize(nextSecret, key)).transport === 401)
  })

  it('is listed without its secrets, which are stored as HMAC', async () => {
    const { credentials } = await operator.signers.createSigner({ name: 'three', ...mine() })
    const { signers } = await operator.signers.listSigners({})
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
  ])('is rejected for %s', async (_name, change, reason) => {
    if (reason === 'CONFLICT') await operator.signers.createSigner({ name: 'taken', ...mine() })
    const ends = await outcome(
      operator.signers.createSigner({ name: 'four', ...mine(), ...change }),
    )
    expect(ends).toBe(reason)
  })

  it('shows its secrets again only for the same idempotency key of the same caller', async () => {
    const { clientId } = await core.newApp()
    const create = { name: 'five', allApps: false, clientIds: [clientId], mayPushEvents: true }
    const rotate = { name: 'five', overlapSeconds: 60 }
    const key = { idempotencyKey: 'once' }
    const created = await operator.signers.createSigner({ ...create, ...key })
    await operator.signers.updateSigner({ ...create, clientIds: [app.clientId] })
    expect(await operator.signers.createSigner({ ...create, ...key })).toEqual(created)
    expect(await outcome(operator.signers.createSigner(create))).toBe('CONFLICT')
    expect(await outcome(operator.signers.rotateSigner({ ...rotate, ...key }))).toBe(
      'IDEMPOTENCY_CONFLICT',
    )
    const again = { ...rotate, idempotencyKey: 'again' }
    const rotated = await operator.signers.rotateSigner(again)
    expect(rotated).not.toEqual({ credentials: created.credentials })
    expect(await operator.signers.rotateSigner(again)).toEqual(rotated)
    expect(await outcome(operator.signers.rotateSigner({ ...again, overlapSeconds: 0 }))).toBe(
      'IDEMPOTENCY_CONFLICT',
    )
    const { signers } = await operator.signers.listSigners({})
    expect(signers.find(({ name }) => name === 'five')?.secrets).toBe(4)
    const { rows } = await core.sql.query<{ count: number }>(
      `select count(*)::integer as count from audit_log where details->>'signer' = 'five'`,
    )
    expect(rows).toEqual([{ count: 3 }])
  })

  it('returns NOT_FOUND when it does not exist', async () => {
    const ends = await Promise.all([
      outcome(operator.signers.rotateSigner({ name: 'nobody', overlapSeconds: 0 })),
      outcome(operator.signers.updateSigner({ name: 'nobody', allApps: true, clientIds: [] })),
      outcome(operator.signers.deleteSigner({ name: 'nobody' })),
    ])
    expect(ends).toEqual(['NOT_FOUND', 'NOT_FOUND', 'NOT_FOUND'])
  })
})

describe("an app's own signer", () => {
  const managing = async (role: 'owner' | 'admin' | 'viewer' = 'owner', of = app) =>
    manage(core, { session: (await logInTo(core, of, role)).token })
  const fresh = async () => {
    const one = await core.newApp()
    return { one, owner: await managing('owner', one) }
  }

  it('gets decisions and pushes events for that app only', async () => {
    const { one, owner } = await fresh()
    const { clientId } = one
    const { secret, details } = await owner.createSignerSecret({ clientId, purpose: 'decisions' })
    const events = await owner.createSignerSecret({ clientId, purpose: 'events' })
    const sidecar = await startOwnSidecar()
    const [key, foreignKey] = [await keyOf(one), await keyOf(other)]
    await until(async () => (await sidecar.authorize(secret, key)).transport === 200)
    expect((await sidecar.authorize(secret, key)).json['status']).toBe(200)
    expect((await sidecar.authorize(secret, foreignKey)).json).toMatchObject({
      status: 403,
      code: 'signer_not_bound',
    })
    expect((await sidecar.push(events.secret, clientId)).transport).toBe(202)
    expect((await sidecar.push(events.secret, other.clientId)).transport).toBe(403)
    // Each secret opens only its own route.
    expect((await sidecar.push(secret, clientId)).transport).toBe(401)
    expect((await sidecar.authorize(events.secret, key)).transport).toBe(401)

    await owner.revokeSignerSecret({ clientId, id: details?.id ?? '' })
    await until(async () => (await sidecar.authorize(secret, key)).transport === 401)
    expect((await sidecar.push(events.secret, clientId)).transport).toBe(202)
  })

  it('rotates secrets with an overlap, one purpose at a time', async () => {
    const { one, owner } = await fresh()
    const { clientId } = one
    const make = (purpose: string, overlapSeconds?: number) => {
      core.clock.advance(1)
      return owner.createSignerSecret({ clientId, purpose, overlapSeconds })
    }
    const old = await make('decisions')
    const events = await make('events')
    const next = await make('decisions', 60)
    const expiresAt = new Date(core.clock.now().getTime() + 60_000).toISOString()
    expect(next.oldSecretsExpireAt).toBe(expiresAt)
    expect((await owner.listSignerSecrets({ clientId })).secrets).toEqual([
      { ...old.details, expiresAt },
      events.details,
      next.details,
    ])
    core.clock.advance(61_000)
    expect((await owner.listSignerSecrets({ clientId })).secrets).toEqual([
      events.details,
      next.details,
    ])
  })

  it('has at most five secrets per purpose, also under concurrent requests', async () => {
    const { one, owner } = await fresh()
    const { clientId } = one
    const make = (purpose: string) => outcome(owner.createSignerSecret({ clientId, purpose }))
    const ends = await Promise.all(Array.from({ length: 8 }, () => make('decisions')))
    expect(ends.filter((end) => end === 'CONFLICT')).toHaveLength(3)
    expect(await make('events')).toBe('OK')
    expect((await owner.listSignerSecrets({ clientId })).secrets).toHaveLength(6)
    // An overlap of 0 makes room.
    const request = { clientId, purpose: 'decisions', overlapSeconds: 0 }
    expect(await outcome(owner.createSignerSecret(request))).toBe('OK')
  })

  it('shows a secret again only for the same idempotency key', async () => {
    const { one, owner } = await fresh()
    const request = { clientId: one.clientId, purpose: 'decisions', idempotencyKey: 'once' }
    const { secret } = await owner.createSignerSecret(request)
    expect((await owner.createSignerSecret(request)).secret).toBe(secret)
    expect(await outcome(owner.createSignerSecret({ ...request, purpose: 'events' }))).toBe(
      'IDEMPOTENCY_CONFLICT',
    )
    expect(JSON.stringify(await owner.listSignerSecrets(request))).not.toContain(secret)
    const { rows } = await core.sql.query('select * from signer_secrets')
    expect(JSON.stringify(rows)).not.toContain(secret)
    const { entries } = await owner.listAudit({ clientId: one.clientId })
    expect(entries.map(({ action }) => action).toSorted()).toEqual([
      'app_created',
      'signer_secret_created',
    ])
    expect(JSON.stringify(entries)).not.toContain(secret)
  })

  it('notifies its owner when an operator rotates or removes it', async () => {
    const { one, owner } = await fresh()
    const { clientId } = one
    await owner.createSignerSecret({ clientId, purpose: 'decisions' })
    await operator.signers.rotateSigner({ name: clientId, overlapSeconds: 60 })
    await operator.signers.deleteSigner({ name: clientId })
    const { entries } = await owner.listAudit({ clientId })
    const actions = entries.map(({ action }) => action)
    expect(actions).toEqual(expect.arrayContaining(['signer.rotate', 'signer.remove']))
  })

  it('is visible to operators, who cannot bind it to another app', async () => {
    const { one, owner } = await fresh()
    await owner.createSignerSecret({ clientId: one.clientId, purpose: 'decisions' })
    const { signers } = await operator.signers.listSigners({})
    expect(signers.find(({ name }) => name === one.clientId)).toMatchObject({
      allApps: false,
      clientIds: [one.clientId],
    })
    for (const apps of [
      { allApps: true, clientIds: [] },
      { allApps: false, clientIds: [other.clientId] },
    ])
      expect(await outcome(operator.signers.updateSigner({ name: one.clientId, ...apps }))).toBe(
        'CONFLICT',
      )
  })

  it('ends with the app', async () => {
    const { one, owner } = await fresh()
    const { clientId } = one
    const { secret } = await owner.createSignerSecret({ clientId, purpose: 'decisions' })
    const sidecar = await startOwnSidecar()
    const key = await keyOf(one)
    await until(async () => (await sidecar.authorize(secret, key)).transport === 200)
    await owner.deleteApp({ clientId })
    await until(async () => (await sidecar.authorize(secret, key)).transport === 401)
    const { signers } = await operator.signers.listSigners({})
    expect(signers.filter(({ name }) => name === clientId)).toEqual([])
  })

  it.each([
    ['an admin', 'EDIT_FORBIDDEN', () => managing('admin')],
    ['a viewer', 'EDIT_FORBIDDEN', () => managing('viewer')],
    ['the owner of another app', 'NOT_FOUND', () => managing('owner', other)],
  ])('rejects %s', async (_who, reason, who) => {
    const { clientId } = app
    const owner = await managing()
    const { details } = await owner.createSignerSecret({ clientId, purpose: 'events' })
    const rpcs = await who()
    const id = details?.id ?? ''
    expect([
      await outcome(rpcs.listSignerSecrets({ clientId })),
      await outcome(rpcs.createSignerSecret({ clientId, purpose: 'decisions' })),
      await outcome(rpcs.revokeSignerSecret({ clientId, id })),
    ]).toEqual([reason, reason, reason])
    // The owner of another app cannot revoke the secret, either.
    const others = await managing('owner', other)
    expect(await outcome(others.revokeSignerSecret({ clientId: other.clientId, id }))).toBe(
      'NOT_FOUND',
    )
    await owner.revokeSignerSecret({ clientId, id })
  })

  it.each([
    ['an unknown purpose', { purpose: 'all' }],
    ['a negative overlap', { overlapSeconds: -1 }],
    ['an overlap of more than 30 days', { overlapSeconds: 2_592_001 }],
  ])('rejects %s', async (_name, change) => {
    const request = { clientId: app.clientId, purpose: 'decisions', ...change }
    expect(await outcome((await managing()).createSignerSecret(request))).toBe('REQUEST_INVALID')
  })
})

describe('EVENTS_SECRET', () => {
  it('opens /events instead of WEBHOOK_SECRET', async () => {
    const eventsSecret = 'a-secret-for-events-only-0123456789'
    const sidecar = await startOwnSidecar({ EVENTS_SECRET: eventsSecret })
    expect((await sidecar.push(eventsSecret, app.clientId)).transport).toBe(202)
    expect((await sidecar.push(webhookSecret, app.clientId)).transport).toBe(401)
    expect((await sidecar.authorize(eventsSecret, await keyOf(app))).transport).toBe(401)
  })
})
