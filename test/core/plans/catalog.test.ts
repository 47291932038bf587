import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Managing, logInTo, manage } from '../../support/web/people.ts'
import {
  type TestApp,
  type TestCore,
  atOnce,
  bearerOf,
  outcome,
  startTestCore,
} from '../support.ts'

let core: TestCore
let app: TestApp
let owner: Managing
let backend: Managing
beforeAll(async () => {
  core = await startTestCore()
})
afterAll(() => core.stop())
beforeEach(async () => {
  app = await core.newApp()
  owner = manage(core, { session: (await logInTo(core, app, 'owner')).token })
  backend = manage(core, { authorization: app.basic })
})

const named = () => ({ clientId: app.clientId })
const pair = (pipeline: string, modelId = '*') => ({ pipeline, modelId })

describe('manifest', () => {
  it('is empty by default, and its version is a hash of the content', async () => {
    expect((await backend.getManifest(named())).manifest).toEqual({
      capabilities: [],
      excludedCapabilities: [],
      manifestVersion: 'empty',
    })
    const { manifest } = await owner.updateManifest({
      ...named(),
      excludedCapabilities: [pair('b'), pair('a', 'y'), pair('a', 'x')],
    })
    expect(manifest?.excludedCapabilities).toEqual([pair('a', 'x'), pair('a', 'y'), pair('b')])
    expect(manifest?.manifestVersion).toMatch(/^[0-9a-f]{24}$/)
    const again = await owner.updateManifest({
      ...named(),
      excludedCapabilities: [pair('a', 'x'), pair('b'), pair('a', 'y')],
    })
    expect(again.manifest).toEqual(manifest)
    expect((await backend.getManifest(named())).manifest).toEqual(manifest)
    expect((await owner.updateManifest(named())).manifest?.manifestVersion).toBe('empty')
  })

  it('rejects malformed capabilities', async () => {
    for (const excludedCapabilities of [
      [pair('')],
      [pair('a', ' ')],
      [pair('a'), pair('a')],
      [pair('x'.repeat(201))],
      Array.from({ length: 1_001 }, (_, i) => pair(`p${i}`)),
    ]) {
      expect(await outcome(owner.updateManifest({ ...named(), excludedCapabilities }))).toBe(
        'REQUEST_INVALID',
      )
    }
  })
})

describe('discovery profile', () => {
  const policy = {
    topN: 10,
    sortBy: 'latency',
    filters: {
      gpuRamGbMin: 8,
      gpuRamGbMax: 80,
      priceMax: 1.5,
      maxAvgLatencyMs: 900,
      maxSwapRatio: 0.5,
    },
  }
  const capability = (modelId: string, discoveryPolicy: object | null = null) => ({
    pipeline: 'text-to-image',
    modelId,
    discoveryPolicyJson: discoveryPolicy === null ? '' : JSON.stringify(discoveryPolicy),
  })

  it('is created, read, updated and deleted', async () => {
    const { profile } = await owner.createProfile({
      ...named(),
      name: 'Fast',
      policyJson: JSON.stringify(policy),
      capabilities: [capability('b', { topN: 1 }), capability('a')],
    })
    const id = profile?.id ?? ''
    expect(JSON.parse(profile?.policyJson ?? '')).toEqual(policy)
    expect(profile?.capabilities).toEqual([capability('a'), capability('b', { topN: 1 })])
    expect((await backend.listProfiles(named())).profiles).toEqual([profile])
    core.clock.advance(1_000)
    const changed = await owner.updateProfile({ ...named(), id, name: 'FAST' })
    expect(changed.profile).toEqual({
      ...profile,
      name: 'FAST',
      updatedAt: core.clock.now().toISOString(),
    })
    expect((await backend.getProfile({ ...named(), id })).profile).toEqual(changed.profile)
    await owner.deleteProfile({ ...named(), id })
    for (const call of [owner.getProfile, owner.updateProfile, owner.deleteProfile]) {
      for (const gone of [id, 'x'])
        expect(await outcome(call({ ...named(), id: gone }))).toBe('NOT_FOUND')
    }
    const { entries } = await owner.listAudit(named())
    expect(
      entries
        .map(({ action }) => action)
        .filter((action) => action.startsWith('discovery'))
        .toSorted(),
    ).toEqual([
      'discovery_profile_created',
      'discovery_profile_deleted',
      'discovery_profile_updated',
    ])
  })

  it('requires a unique name regardless of case, also under concurrent requests', async () => {
    const made = await atOnce(3, (i) =>
      outcome(owner.createProfile({ ...named(), name: i === 0 ? 'one' : 'ONE' })),
    )
    expect(made.toSorted()).toEqual(['OK', 'REQUEST_INVALID', 'REQUEST_INVALID'])
    const { profile } = await owner.createProfile({ ...named(), name: 'two' })
    expect(
      await outcome(owner.updateProfile({ ...named(), id: profile?.id ?? '', name: 'One' })),
    ).toBe('REQUEST_INVALID')
    for (const name of ['', ' ', 'x'.repeat(101)])
      expect(await outcome(owner.createProfile({ ...named(), name }))).toBe('REQUEST_INVALID')
  })

  it.each<object>([
    { topN: 0 },
    { topN: 1_001 },
    { topN: 1.5 },
    { topN: '5' },
    { sortBy: 'speed' },
    { sortBy: 5 },
    { filters: [] },
    { filters: null },
    { filters: { unknown: 1 } },
    { filters: { maxSwapRatio: 1.1 } },
    { filters: { priceMax: -1 } },
    { filters: { priceMax: '1' } },
    { filters: { gpuRamGbMin: 9, gpuRamGbMax: 8 } },
    { other: 1 },
    { filters: { constructor: 1 } },
  ])('rejects the policy %j', async (wrong) => {
    const policyJson = JSON.stringify(wrong)
    expect(await outcome(owner.createProfile({ ...named(), name: 'x', policyJson }))).toBe(
      'REQUEST_INVALID',
    )
    expect(
      await outcome(
        owner.createProfile({
          ...named(),
          name: 'x',
          capabilities: [{ ...capability('a'), discoveryPolicyJson: policyJson }],
        }),
      ),
    ).toBe('REQUEST_INVALID')
  })

  it('rejects a policy that is not an object, and a repeated capability', async () => {
    for (const policyJson of ['[]', 'null', '5', '{', '"x"', `{"a":"${'x'.repeat(5_000)}"}`]) {
      expect(await outcome(owner.createProfile({ ...named(), name: 'x', policyJson }))).toBe(
        'REQUEST_INVALID',
      )
    }
    expect(
      await outcome(
        owner.createProfile({
          ...named(),
          name: 'x',
          capabilities: [capability('a'), capability('a')],
        }),
      ),
    ).toBe('REQUEST_INVALID')
  })

  it('returns NOT_FOUND to another app', async () => {
    const { profile } = await owner.createProfile({ ...named(), name: 'mine' })
    const other = await core.newApp()
    const stranger = manage(core, { session: (await logInTo(core, other, 'owner')).token })
    for (const clientId of [app.clientId, other.clientId]) {
      expect(await outcome(stranger.getProfile({ clientId, id: profile?.id ?? '' }))).toBe(
        'NOT_FOUND',
      )
      expect(await outcome(stranger.deleteProfile({ clientId, id: profile?.id ?? '' }))).toBe(
        'NOT_FOUND',
      )
    }
  })
})

describe('app-level key', () => {
  it('acts for the owner, shows its secret once, and can be revoked', async () => {
    const made = await owner.createKey({ ...named(), label: 'ci' })
    expect(made.apiKey).toMatch(/^svc_ak_[0-9A-Za-z]{49}$/)
    const { keys } = await owner.listKeys(named())
    expect(keys).toEqual([
      expect.objectContaining({
        keyId: made.keyId,
        label: 'ci',
        status: 'active',
        prefix: made.apiKey.slice(0, 13),
      }),
    ])
    expect(await outcome(core.as(bearerOf(made.apiKey)).exchangeApiKey(named()))).toBe('OK')
    expect(await owner.validateKey({ key: made.apiKey })).toMatchObject({
      clientId: app.clientId,
      userId: expect.any(String),
      externalUserId: expect.stringMatching(/^owner:/),
      planId: expect.any(String),
      capabilities: ['*'],
    })
    const first = await owner.revokeKey({ ...named(), keyId: made.keyId })
    core.clock.advance(1_000)
    expect(await owner.revokeKey({ ...named(), keyId: made.keyId })).toEqual(first)
    expect(await outcome(owner.validateKey({ key: made.apiKey }))).toBe('TOKEN_INVALID')
  })

  it('can belong only to a subscription of its own app', async () => {
    await core.as(app.basic).upsertUser({ ...named(), externalUserId: 'ada' })
    const {
      rows: [row],
    } = await core.sql.query(
      'select s.id, s.plan_id from subscriptions s join clients c using (app_id) where c.client_id = $1',
      [app.clientId],
    )
    const made = await owner.createKey({ ...named(), subscriptionId: row.id })
    const valid = await owner.validateKey({ key: made.apiKey })
    expect(valid.planId).toBe(row.plan_id)
    expect(valid.subscriptionRef).toMatch(/^subref_[A-Za-z0-9_-]{32}$/)
    const other = await core.newApp()
    const stranger = manage(core, { session: (await logInTo(core, other, 'owner')).token })
    for (const subscriptionId of [row.id, 'x']) {
      expect(await outcome(stranger.createKey({ clientId: other.clientId, subscriptionId }))).toBe(
        'NOT_FOUND',
      )
    }
    expect(await outcome(stranger.revokeKey({ clientId: other.clientId, keyId: made.keyId }))).toBe(
      'NOT_FOUND',
    )
  })

  it('is created once per idempotency key', async () => {
    const one = await owner.createKey({ ...named(), idempotencyKey: 'k' })
    expect(await owner.createKey({ ...named(), idempotencyKey: 'k' })).toEqual(one)
    expect(await outcome(owner.createKey({ ...named(), idempotencyKey: 'k', label: 'x' }))).toBe(
      'IDEMPOTENCY_CONFLICT',
    )
  })

  it('is limited to a hundred per app', async () => {
    await atOnce(100, () => owner.createKey(named()))
    expect(await outcome(owner.createKey(named()))).toBe('CONFLICT')
  })
})

describe('validateKey', () => {
  it('accepts all forms of a key until the key or user ends', async () => {
    const m2m = core.as(app.basic)
    const { user } = await m2m.upsertUser({ ...named(), externalUserId: 'ada' })
    const one = await m2m.createKey({ ...named(), externalUserId: 'ada' })
    const two = await m2m.createKey({ ...named(), externalUserId: 'ada' })
    const secret = one.apiKey.slice(app.clientId.length + 1)
    for (const key of [one.apiKey, secret, secret.slice('svc_ak_'.length)]) {
      expect(await owner.validateKey({ key })).toMatchObject({
        clientId: app.clientId,
        userId: user?.id,
        externalUserId: 'ada',
        capabilities: ['*'],
      })
    }
    for (const key of ['', 'x', `app_${'0'.repeat(24)}_${secret}`, app.secret, `${secret}0`]) {
      expect(await outcome(owner.validateKey({ key }))).toBe('TOKEN_INVALID')
    }
    await m2m.revokeKey({ ...named(), externalUserId: 'ada', keyId: one.keyId })
    expect(await outcome(owner.validateKey({ key: one.apiKey }))).toBe('TOKEN_INVALID')
    await m2m.deactivateUser({ ...named(), externalUserId: 'ada' })
    expect(await outcome(owner.validateKey({ key: two.apiKey }))).toBe('TOKEN_INVALID')
  })
})
