import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Gate, createGate } from '../../../core/billing/gate.ts'
import type { Connection } from '../../../core/billing/processor.ts'
import type { AppId, UserId } from '../../../core/platform/ids.ts'
import { createLedger } from '../../../core/allowances/ledger.ts'
import { findOwnerUser } from '../../../core/identity/users/owners.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import type { ReplaceBillingSettingsRequest } from '../../../proto/gen/ts-proto/tollgate/billing/v1/billing.ts'
import { type CoreClient, connectCore } from '../../../deploy/cli/client.ts'
import { type TestApp, type TestCore, day, serviceToken, startTestCore } from '../support.ts'

let core: TestCore
let operator: CoreClient

beforeAll(async () => {
  core = await startTestCore({ ACTIVATION_GATE_MODE: 'enforce' })
  operator = connectCore({ target: core.core.target, token: serviceToken, tls: undefined })
})
afterAll(async () => {
  operator.close()
  await core.stop()
})

const unchanged = {
  billingMode: undefined,
  endUserCap: undefined,
  isPlatformOwned: undefined,
  servesEveryApp: undefined,
  platformCutPercent: undefined,
}
const settle = (app: TestApp, values: Partial<Omit<ReplaceBillingSettingsRequest, 'clientId'>>) =>
  operator.replaceBillingSettings({ clientId: app.clientId, ...unchanged, ...values })

const idOf = async ({ clientId }: TestApp): Promise<AppId> =>
  (
    await core.sql.query<{ id: AppId }>('select app_id as id from clients where client_id = $1', [
      clientId,
    ])
  ).rows[0]?.id as AppId

let owners = 0

/** Creates an app with its owner as an end user. With `spent`, the owner has no allowance left. */
async function ownedApp({ spent }: { spent: boolean }): Promise<TestApp> {
  const email = `owner-${(owners += 1)}@example.com`
  const { clientId, m2mClientId, m2mClientSecret } = await core.as().createApp({
    name: 'Shop',
    ownerEmail: email,
    isCustomer: true,
    starterUsdMicros: spent ? '0' : '5000000',
  })
  const basic = `Basic ${Buffer.from(`${m2mClientId}:${m2mClientSecret}`).toString('base64')}`
  const app = { clientId, m2mClientId, secret: m2mClientSecret, basic }
  // The first signer token makes the owner an end user.
  await core.as(basic).mintOwnerToken()
  return app
}

const create = (app: TestApp, externalUserId: string, status?: string) =>
  core.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId, status })

const countActive = async (app: TestApp): Promise<number> =>
  (
    await core.sql.query<{ n: number }>(
      `select count(*)::int as n from end_users
       where app_id = $1 and status = 'active' and external_user_id not like 'owner:%'`,
      [await idOf(app)],
    )
  ).rows[0]?.n ?? 0

const needsPayment = { reason: 'OWNER_PAYMENT_METHOD_REQUIRED' }
const capReached = { reason: 'END_USER_CAP_REACHED' }

describe('end user cap', () => {
  it('holds when 100 users are created at once', async () => {
    const app = await core.newApp()
    await settle(app, { endUserCap: '7' })
    const names = Array.from({ length: 100 }, (_, i) => `user-${i}`)
    const made = await Promise.allSettled(names.map((name) => create(app, name)))
    const refused = made.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []))
    expect(refused).toHaveLength(93)
    for (const error of refused) expect(error).toMatchObject(capReached)
    expect(await countActive(app)).toBe(7)
  })

  it('holds across two cores', async () => {
    const other = await core.startAnother()
    const app = await core.newApp()
    await settle(app, { endUserCap: '5' })
    const made = await Promise.allSettled(
      Array.from({ length: 40 }, (_, i) =>
        (i % 2 ? core : other)
          .as(app.basic)
          .upsertUser({ clientId: app.clientId, externalUserId: `user-${i}` }),
      ),
    )
    expect(made.filter(({ status }) => status === 'fulfilled')).toHaveLength(5)
    expect(await countActive(app)).toBe(5)
  })

  it('frees a place on deactivation and needs one on reactivation', async () => {
    const app = await core.newApp()
    await settle(app, { endUserCap: '1' })
    await create(app, 'ada')
    await expect(create(app, 'bob')).rejects.toMatchObject(capReached)
    await core.as(app.basic).deactivateUser({ clientId: app.clientId, externalUserId: 'ada' })
    await create(app, 'bob')
    const again = { clientId: app.clientId, externalUserId: 'ada', status: 'active' }
    await expect(core.as(app.basic).updateUser(again)).rejects.toMatchObject(capReached)
    await expect(core.as(app.basic).upsertUser(again)).rejects.toMatchObject(capReached)
    // An inactive user takes no place.
    await create(app, 'cleo', 'inactive')
    await settle(app, { endUserCap: '2' })
    expect((await core.as(app.basic).updateUser(again)).user?.status).toBe('active')
  })

  it('does not affect active users when it is lowered below their number', async () => {
    const app = await core.newApp()
    await create(app, 'ada')
    await create(app, 'bob')
    await settle(app, { endUserCap: '1' })
    const { as } = core
    expect((await create(app, 'ada')).created).toBe(false)
    const name = { clientId: app.clientId, externalUserId: 'ada' }
    await as(app.basic).updateUser({ ...name, email: 'ada@example.com' })
    expect((await as(app.basic).createKey(name)).apiKey).not.toBe('')
    expect((await as(app.basic).mintUserToken(name)).accessToken).not.toBe('')
    expect(
      (await as(app.basic).createGrant({ ...name, amountUsdMicros: '1' })).allowance,
    ).toBeDefined()
  })

  it('does not count the owner', async () => {
    const app = await ownedApp({ spent: false })
    await settle(app, { endUserCap: '1' })
    await create(app, 'ada')
    expect(await countActive(app)).toBe(1)
  })
})

describe('owner with an empty allowance and no card', () => {
  it('blocks new users and keeps existing ones', async () => {
    const app = await ownedApp({ spent: true })
    await settle(app, { isPlatformOwned: true })
    await create(app, 'ada')
    await create(app, 'bob')
    await core.as(app.basic).deactivateUser({ clientId: app.clientId, externalUserId: 'bob' })
    await settle(app, { isPlatformOwned: false, endUserCap: '1' })
    // Payment is checked before the cap.
    await expect(create(app, 'cleo')).rejects.toMatchObject(needsPayment)
    await expect(create(app, 'bob', 'active')).rejects.toMatchObject(needsPayment)
    await create(app, 'dora', 'inactive')
    const name = { clientId: app.clientId, externalUserId: 'ada' }
    expect((await create(app, 'ada')).created).toBe(false)
    await core.as(app.basic).createKey(name)
    await core.as(app.basic).mintUserToken(name)
    expect(await countActive(app)).toBe(1)
  })

  it('is reported with billing mode and action URL', async () => {
    const app = await ownedApp({ spent: true })
    await expect(create(app, 'ada')).rejects.toMatchObject({
      ...needsPayment,
      members: {
        billingMode: 'owner_rollup',
        actionUrl: `https://svc.example/api/v1/apps/${app.clientId}/billing/processor`,
      },
    })
  })

  it('blocks users that getAccess and lend would create', async () => {
    const app = await ownedApp({ spent: true })
    const zoe = { clientId: app.clientId, externalUserId: 'zoe' }
    await expect(core.as().getAccess(zoe)).rejects.toMatchObject(needsPayment)
    const sidecar = { id: 'north', instance: '6f1c2f2e-1d3c-4c55-9a52-0a9c5f1b7e11' }
    const none = { leaseId: '', usedUsdAttos: '0', boundUsdAttos: '0', spendingUsdAttos: '0' }
    await core.as().report({ sidecar, number: 0n })
    const { answers } = await core
      .as()
      .lend({ sidecar, calls: [{ ...zoe, ...none, sessionId: '', sequence: 0n }] })
    expect(answers[0]?.refusal).toBe('OWNER_PAYMENT_METHOD_REQUIRED')
    expect(await countActive(app)).toBe(0)
  })

  it('does not block when only the subscription row is missing', async () => {
    const app = await ownedApp({ spent: false })
    await core.sql.query('delete from subscriptions where app_id = $1', [await idOf(app)])
    core.clock.advance(40 * day)
    await create(app, 'ada')
    expect(await countActive(app)).toBe(1)
  })

  it('allows new users after a grant', async () => {
    const app = await ownedApp({ spent: true })
    await expect(create(app, 'ada')).rejects.toMatchObject(needsPayment)
    const { rows } = await core.sql.query<{ name: string }>(
      `select external_user_id as name from end_users where app_id = $1 and external_user_id like 'owner:%'`,
      [await idOf(app)],
    )
    const externalUserId = rows[0]?.name ?? ''
    const grant = { clientId: app.clientId, externalUserId, amountUsdMicros: '1' }
    await core.as(app.basic).createGrant(grant)
    expect((await create(app, 'ada')).created).toBe(true)
  })

  it('allows new users once the next period begins', async () => {
    const app = await ownedApp({ spent: false })
    const id = await idOf(app)
    const { rows } = await core.sql.query<{ name: string }>(
      `select external_user_id as name from end_users where app_id = $1`,
      [id],
    )
    const externalUserId = rows[0]?.name ?? ''
    await core
      .as()
      .createAdjustment({ clientId: app.clientId, externalUserId, amountUsdMicros: '-5000000' })
    await expect(create(app, 'ada')).rejects.toMatchObject(needsPayment)
    core.clock.advance(40 * day)
    expect((await create(app, 'ada')).created).toBe(true)
  })

  it('does not block before the owner is an end user', async () => {
    const { clientId, m2mClientId, m2mClientSecret } = await core.as().createApp({
      name: 'New',
      ownerEmail: 'fresh@example.com',
      starterUsdMicros: '0',
      isCustomer: true,
    })
    const basic = `Basic ${Buffer.from(`${m2mClientId}:${m2mClientSecret}`).toString('base64')}`
    const made = await core.as(basic).upsertUser({ clientId, externalUserId: 'ada' })
    expect(made.created).toBe(true)
  })
})

describe('ACTIVATION_GATE_MODE', () => {
  const within = async (mode: string) => {
    const app = await ownedApp({ spent: true })
    await settle(app, { endUserCap: '1' })
    const other = await core.startAnother({ ACTIVATION_GATE_MODE: mode })
    const rpcs = other.as(app.basic)
    await rpcs.upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
    await rpcs.upsertUser({ clientId: app.clientId, externalUserId: 'bob' })
    return idOf(app)
  }
  const entries = async (app: AppId) =>
    (
      await core.sql.query<{ action: string; code: string }>(
        `select action, details ->> 'code' as code from audit_log where app_id = $1 and actor = 'activation_gate'`,
        [app],
      )
    ).rows
  const wouldDeny = { action: 'activation_gate_would_deny', code: 'owner_payment_method_required' }

  it.each(['log', 'enforce_revenue'])('%s allows users and records the denial', async (mode) => {
    const app = await within(mode)
    await expect.poll(() => entries(app)).toEqual([wouldDeny])
  })

  it('off records nothing', async () => {
    expect(await entries(await within('off'))).toEqual([])
  })

  it('enforce records denials in the audit log', async () => {
    const app = await ownedApp({ spent: true })
    await expect(create(app, 'ada')).rejects.toMatchObject(needsPayment)
    const id = await idOf(app)
    await expect
      .poll(() => entries(id))
      .toEqual([{ ...wouldDeny, action: 'activation_gate_denied' }])
  })

  it('rejects an unknown mode at start', async () => {
    await expect(startTestCore({ ACTIVATION_GATE_MODE: 'on' })).rejects.toThrow(
      'ACTIVATION_GATE_MODE must be one of off, log, enforce_revenue, enforce',
    )
  })
})

describe('selling', () => {
  const gateWith = (
    status: Connection['status'],
    mode: 'off' | 'log' | 'enforce_revenue' | 'enforce' = 'enforce',
    findOwner: (app: AppId) => Promise<UserId | null> = async () => null,
  ): Gate =>
    createGate({
      pool: core.sql,
      mode,
      endUserCap: 10,
      publicUrl: 'https://svc.example',
      ledger: createLedger(),
      processor: {
        connectionOf: async () => ({ status, connectedAt: null }),
        canChargeOwner: async () => true,
        connect: async () => ({ url: '' }),
        disconnect: async () => {},
        askForCard: async () => null,
      },
      findOwner: (db, app) => findOwner(app).then((id) => id ?? findOwnerUser(db, app)),
      metrics: createMetrics('test'),
      log: silentLog(),
      now: core.clock.now,
    })
  const plan = { status: 'active', priceAmount: '49.00', isStarterDefault: false }
  const required = { reason: 'STRIPE_CONNECT_REQUIRED' }
  const pending = { reason: 'STRIPE_CONNECT_PENDING' }

  it('requires billing mode merchant and a connected account that may take payments', async () => {
    const app = await core.newApp()
    const id = await idOf(app)
    const sell = (gate: Gate) => gate.requireSelling(core.sql, id, plan)
    for (const status of ['disconnected', 'pending', 'connected'] as const)
      await expect(sell(gateWith(status))).rejects.toMatchObject(required)
    await settle(app, { billingMode: 'merchant' })
    await expect(sell(gateWith('disconnected'))).rejects.toMatchObject(required)
    await expect(sell(gateWith('pending'))).rejects.toMatchObject(pending)
    await expect(sell(gateWith('connected'))).resolves.toBeUndefined()
  })

  it.each([
    { ...plan, status: 'inactive' },
    { ...plan, priceAmount: '0' },
    { ...plan, priceAmount: '0.00' },
    { ...plan, isStarterDefault: true },
  ])('allows %o', async (free) => {
    const id = await idOf(await core.newApp())
    await expect(
      gateWith('disconnected').requireSelling(core.sql, id, free),
    ).resolves.toBeUndefined()
  })

  it('is rejected in the enforcing modes, also for platform-owned apps', async () => {
    const app = await core.newApp()
    await settle(app, { isPlatformOwned: true })
    const id = await idOf(app)
    for (const mode of ['off', 'log'] as const)
      await expect(
        gateWith('disconnected', mode).requireSelling(core.sql, id, plan),
      ).resolves.toBeUndefined()
    for (const mode of ['enforce_revenue', 'enforce'] as const)
      await expect(
        gateWith('disconnected', mode).requireSelling(core.sql, id, plan),
      ).rejects.toMatchObject(required)
  })

  it('requireCost accepts a chargeable card when the allowance is empty', async () => {
    const app = await ownedApp({ spent: true })
    await expect(create(app, 'ada')).rejects.toMatchObject(needsPayment)
    await expect(
      gateWith('disconnected').requireCost(core.sql, await idOf(app)),
    ).resolves.toBeUndefined()
  })
})
