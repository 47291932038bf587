import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Gate, createGate } from '../../../core/billing/gate.ts'
import type { Connection } from '../../../core/billing/processor/connections.ts'
import type { AppId } from '../../../core/shared/ids.ts'
import { createLedger } from '../../../core/balances/ledger/ledger.ts'
import { findOwnerAccountUser } from '../../../core/identity/platform-app/owner-accounts.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import type { UpdateBillingSettingsRequest } from '../../../proto/gen/ts-proto/tollgate/billing/v1/billing.ts'
import { type CoreClient, connectCore } from '../../../deploy/cli/client.ts'
import { eventOf } from '../books/support.ts'
import {
  type TestApp,
  type TestCore,
  day,
  second,
  serviceToken,
  startTestCore,
} from '../support.ts'

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
const settle = (app: TestApp, values: Partial<Omit<UpdateBillingSettingsRequest, 'clientId'>>) =>
  operator.billing.updateBillingSettings({ clientId: app.clientId, ...unchanged, ...values })

const idOf = async ({ clientId }: TestApp): Promise<AppId> =>
  (
    await core.sql.query<{ id: AppId }>('select app_id as id from clients where client_id = $1', [
      clientId,
    ])
  ).rows[0]?.id as AppId

let owners = 0

/**
 * Creates an app whose owner was charged for a ticket. With `spent`, nothing is left of what the
 * owner's account includes.
 */
async function ownedApp({ spent }: { spent: boolean }): Promise<TestApp> {
  const email = `owner-${(owners += 1)}@example.com`
  const { clientId, m2mClientId, m2mClientSecret } = await core.as().createApp({
    name: 'Shop',
    ownerEmail: email,
    isCustomer: true,
  })
  const basic = `Basic ${Buffer.from(`${m2mClientId}:${m2mClientSecret}`).toString('base64')}`
  const app = { clientId, m2mClientId, secret: m2mClientSecret, basic }
  // The owner's own calls count in no cap. 3000 USD per ETH: 2 * 10^15 wei are 6 USD.
  await core.as(basic).mintOwnerToken()
  const event = {
    auth_id: `${clientId}:owner:${(await accountOf(app)).accountId}`,
    computed_fee: spent ? '2000000000000000' : '1',
    current_time: core.clock.now().toISOString(),
  }
  await operator.metering.ingestEvents({ envelopes: [eventOf(event)] })
  return app
}

/** The owner of an app as an end user of the platform app. */
async function accountOf(app: TestApp) {
  const { rows } = await core.sql.query<{ id: string; account: string }>(
    `select c.client_id as id, m.account_id as account
     from members m, platform_app p
     join clients c on c.app_id = p.app_id and c.kind = 'public'
     where m.app_id = $1 and m.role = 'owner'`,
    [await idOf(app)],
  )
  const { id: clientId = '', account: accountId = '' } = rows[0] ?? {}
  return { clientId, accountId, externalUserId: `account:${accountId}` }
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

describe('owner with nothing left and no card', () => {
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
        actionUrl: `https://svc.example/apps/${app.clientId}/billing`,
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
    await core.sql.query(
      'delete from subscriptions where user_id = (select id from end_users where external_user_id = $1)',
      [(await accountOf(app)).externalUserId],
    )
    core.clock.advance(40 * day)
    await create(app, 'ada')
    expect(await countActive(app)).toBe(1)
  })

  it('allows new users after a grant', async () => {
    const app = await ownedApp({ spent: true })
    await expect(create(app, 'ada')).rejects.toMatchObject(needsPayment)
    const { clientId, externalUserId } = await accountOf(app)
    await core.asOperator().createGrant({ clientId, externalUserId, amountUsdMicros: '1' })
    expect((await create(app, 'ada')).created).toBe(true)
  })

  it.each([
    { type: 'free', includedUsdMicros: '50000000' },
    { type: 'subscription', includedUsdMicros: '0', includedUnits: '100', overageRateWei: '1' },
  ])('allows new users after a move to an owner plan: $type', async (terms) => {
    const app = await ownedApp({ spent: true })
    await expect(create(app, 'ada')).rejects.toMatchObject(needsPayment)
    const { clientId, externalUserId } = await accountOf(app)
    const plan = { name: `Owner ${terms.type}`, status: 'active', priceAmount: '0', ...terms }
    const { id: planId } = await operator.plans.createPlan({
      clientId,
      planJson: JSON.stringify(plan),
    })
    await operator.subscriptions.updateSubscription({
      clientId,
      externalUserId,
      planId,
      timing: 'immediate',
      idempotencyKey: undefined,
    })
    // The new period begins a moment after the change.
    core.clock.advance(second)
    // Without included usage, the card decides.
    const outcome = await create(app, 'ada').then(
      ({ created }) => created,
      () => 'refused',
    )
    expect(outcome).toBe(terms.type === 'free' ? true : 'refused')
    await core.sql.query(
      `update balances set ceiling_attos = 2e18, lacks_card = false where user_id = (select id from end_users where external_user_id = $1)`,
      [externalUserId],
    )
    expect((await create(app, 'bob')).created).toBe(true)
  })

  it('allows new users once the next period begins', async () => {
    const app = await ownedApp({ spent: false })
    const { clientId, externalUserId } = await accountOf(app)
    const rest = { clientId, externalUserId, amountUsdMicros: '-4999999' }
    await core.as().createAdjustment({ ...rest, uncovered: 'overage' })
    await core.as().createAdjustment({ ...rest, amountUsdMicros: '-1', uncovered: 'overage' })
    await expect(create(app, 'ada')).rejects.toMatchObject(needsPayment)
    core.clock.advance(40 * day)
    expect((await create(app, 'ada')).created).toBe(true)
  })

  it('does not block before the first charge of the owner', async () => {
    const { clientId, m2mClientId, m2mClientSecret } = await core.as().createApp({
      name: 'New',
      ownerEmail: 'fresh@example.com',
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
  const connection: Omit<Connection, 'status'> = {
    plane: 'live',
    connectedAt: null,
    chargesEnabled: false,
    payoutsEnabled: false,
    detailsSubmitted: false,
  }
  const gateWith = (
    status: Connection['status'],
    mode: 'off' | 'log' | 'enforce_revenue' | 'enforce' = 'enforce',
  ): Gate =>
    createGate({
      pool: core.sql,
      mode,
      endUserCap: 10,
      publicUrl: 'https://svc.example',
      ledger: createLedger(),
      connections: { findConnection: async () => ({ ...connection, status }) },
      findOwnerAccount: findOwnerAccountUser,
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
    await core.sql.query(
      'update balances set ceiling_attos = 1 where app_id = (select app_id from platform_app)',
    )
    await expect(
      gateWith('disconnected').requireCost(core.sql, await idOf(app)),
    ).resolves.toBeUndefined()
  })
})
