import { credentials } from '@grpc/grpc-js'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { countExposure } from '../../../../core/allowances/exposure/store.ts'
import { connectCore } from '../../../../deploy/cli/client.ts'
import { unary } from '../../../../core/lib/grpc.ts'
import { tx } from '../../../../core/lib/sql.ts'
import { NetworkQuotaServiceClient } from '../../../../proto/gen/ts-proto/tollgate/allowances/v1/quotas.ts'
import { serviceTokenHeader, sessionHeader } from '../../../../proto/headers.ts'
import { type Person, logIn, manage } from '../../../support/people.ts'
import { envelope } from '../../metering/harness.ts'
import {
  type TestApp,
  type TestCore,
  basicOf,
  day,
  observedRate,
  outcome,
  second,
  serviceToken,
  startTestCore,
  until,
} from '../../support.ts'
import {
  type CallOptions,
  type TestSidecar,
  attos,
  authorisation,
  dollars,
  startSidecar,
} from './granting.ts'

/** Tests the limit for what an owner's apps cost the operator before payment. */

let core: TestCore
let quotas: NetworkQuotaServiceClient
let owner: Person
let sidecar: TestSidecar
beforeAll(async () => {
  core = await startTestCore({ ...observedRate, UNPAID_NETWORK_USD: '1' })
  const insecure = credentials.createInsecure()
  quotas = new NetworkQuotaServiceClient(core.core.target, insecure)
})
afterAll(async () => {
  quotas.close()
  await core.stop()
})
beforeEach(async () => {
  owner = await logIn(core)
  sidecar = await startSidecar(core.as())
  core.clock.advance(second)
  await observeRate()
})

const as = (session?: string) => ({
  deadlineMs: 15_000,
  headers: {
    [serviceTokenHeader]: serviceToken,
    ...(session === undefined ? {} : { [sessionHeader]: session }),
  },
})

/** Stores a rate as a source observes it. A price recorded by an operator would serve for a day. */
const observeRate = () =>
  core.sql.query(
    `insert into rates (usd_attos_per_eth, source, observed_at, created_at) values (3000 * 10::numeric ^ 18, 'test', $1, $1)`,
    [core.clock.now()],
  )

/** Creates an app of the owner. Each of its users has 1,000 USD. */
async function newApp(by: Person = owner, more: object = {}): Promise<TestApp> {
  const members = manage(core, { session: by.token })
  const created = await members.createApp({ name: 'An app', ...more })
  const { clientId, m2mClientId, m2mClientSecret: secret } = created
  await sell(clientId, null)
  return { clientId, m2mClientId, secret, basic: basicOf(m2mClientId, secret) }
}

/**
 * Adds a version of the Starter plan that includes 1,000 USD and sells at this rate, or at network
 * price if null.
 */
const sell = (clientId: string, rate: string | null) =>
  core.sql.query(
    `insert into plan_versions (app_id, plan_id, version, type, price_amount, price_currency, included_attos, retail_rate,
                                billing_cycle, created_at)
     select app_id, plan_id, version + 1, type, price_amount, price_currency, 1000 * 10::numeric ^ 18, $2, billing_cycle, created_at
     from plan_versions
     where plan_id = (select p.id from plans p join clients c using (app_id) where c.client_id = $1 and is_starter_default)
     order by version desc
     limit 1`,
    [clientId, rate],
  )

const setPlatformOwned = (app: TestApp, isPlatformOwned: boolean) =>
  core.sql.query(
    `insert into billing_settings (app_id, is_platform_owned, updated_at)
     select app_id, $2, now() from clients where client_id = $1
     on conflict (app_id) do update set is_platform_owned = $2`,
    [app.clientId, isPlatformOwned],
  )

let sequence = 0
const reserve = async (app: TestApp, user: string, call: number | CallOptions): Promise<string> => {
  const options = typeof call === 'number' ? { bound: call } : call
  return (await sidecar.reserve(app, user, { sequence: sequence++, ...options })).refusal
}
const unpaid = async ({ email }: Person = owner): Promise<number> => {
  const { quota } = await unary(quotas.readNetworkQuota.bind(quotas))({ email, clientId: '' }, as())
  return Number(quota?.unpaidUsdMicros) / 1e6
}
/** Books a ticket without an authorisation, at 3000 USD for one ETH. */
const book = (app: TestApp, user: string, usd: number) =>
  core.as().ingestEvents({
    envelopes: [
      envelope({
        auth_id: `${app.clientId}:${user}`,
        session_id: `booked-${sequence++}`,
        current_time: core.clock.now().toISOString(),
        computed_fee: String((BigInt(Math.round(usd * 1e6)) * 10n ** 12n) / 3000n),
      }),
    ],
  })

const reached = 'owner_debt_ceiling_reached'

describe('unpaid network cost of an owner', () => {
  it('never exceeds its quota, with concurrent reservations of several apps, users and cores', async () => {
    const apps = [await newApp(), await newApp()]
    const other = await startSidecar((await core.startAnother()).as())
    const ask = async (index: number): Promise<string> => {
      const app = apps[index % 2] as TestApp
      const at = index % 3 === 0 ? other : sidecar
      const call = { sequence: index, session: `s${index}`, bound: 0.1 }
      return (await at.reserve(app, `user-${index % 5}`, call)).refusal
    }
    const refusals = await Promise.all(Array.from({ length: 24 }, (_, index) => ask(index)))
    expect(refusals.toSorted()).toEqual([
      ...Array<string>(10).fill(''),
      ...Array<string>(14).fill(reached),
    ])
    expect(await unpaid()).toBe(1)
    expect(await core.metrics.metrics()).toMatch(
      /tollgate_escrow_refused_total\{[^}]*reason="owner_debt_ceiling_reached"[^}]*\} [1-9]/,
    )
  })

  it('counts lent money, and lends no more than is left', async () => {
    const app = await newApp()
    const bound = { boundUsdAttos: attos(0.05), spendingUsdAttos: attos(1) }
    let lent = 0
    for (let index = 0; index < 12; index++)
      lent += dollars(
        (await sidecar.lend(app, `user-${index}`, bound)).lease?.amountUsdAttos ?? '0',
      )
    expect(lent).toBeGreaterThan(0.5)
    expect(lent).toBeLessThanOrEqual(1)
    expect(await reserve(app, 'user-20', 1.01 - lent)).toBe(reached)
  })

  it('lends nothing of the last quarter, so that idle leases refuse no calls', async () => {
    const app = await newApp()
    const { lease } = await sidecar.lend(app, 'user-0')
    for (let index = 1; index < 20; index++) await sidecar.lend(app, `user-${index}`)
    expect(await unpaid()).toBeCloseTo(0.8)
    expect(await reserve(app, 'user-19', 0.1)).toBe('')
    const leaseId = lease?.id ?? ''
    const [used, bound] = [attos(0.04), attos(0.005)]
    const use = { leaseId, usedUsdAttos: used, boundUsdAttos: bound }
    expect((await sidecar.lend(app, 'user-0', use)).lease?.amountUsdAttos).toBe(attos(0.05))
  })

  it('falls when a lease is returned, and to the cost when a ticket comes', async () => {
    const app = await newApp()
    const { lease } = await sidecar.lend(app, 'ada', { boundUsdAttos: attos(0.05) })
    expect(await unpaid()).toBeCloseTo(0.2)
    const call = authorisation({ bound: 0.05, more: { leaseId: lease?.id ?? '' } })
    await sidecar.report(app, 'ada', { calls: [call] })
    expect(await unpaid()).toBeCloseTo(0.2)
    const returned = { leaseId: lease?.id ?? '', usedUsdAttos: attos(0.05) }
    await sidecar.report(app, 'ada', { returned: [returned] })
    expect(await unpaid()).toBeCloseTo(0.05)
    core.clock.advance(11 * second)
    expect(await reserve(app, 'bob', 0.95)).toBe('')
  })

  it('counts unauthorised tickets, including those of new users and deleted apps', async () => {
    const [gone, app] = [await newApp(), await newApp()]
    await book(gone, 'made-by-a-ticket', 0.7)
    await manage(core, { session: owner.token }).deleteApp({ clientId: gone.clientId })
    expect(await unpaid()).toBeCloseTo(0.7)
    expect(await reserve(app, 'ada', 0.31)).toBe(reached)
    expect(await reserve(app, 'ada', 0.3)).toBe('')
    await book(app, 'ada', 5)
    expect(await unpaid()).toBeCloseTo(6)
  })

  it('counts a ticket that waits for its price as held, then by its price', async () => {
    const app = await newApp()
    core.clock.advance(20 * 60 * second)
    await book(app, 'ada', 0.4)
    expect(await unpaid()).toBeCloseTo(0.44)
    await core.as().recordRate({ usdPerEth: '3000', observedAt: core.clock.now().toISOString() })
    await until(async () => (await unpaid()) === 0.4)
  })

  it('is at network price when a plan sells for nothing', async () => {
    const app = await newApp()
    await sell(app.clientId, '0')
    const { retailRatio, refusal } = await sidecar.reserve(app, 'ada', {
      more: { retailRatio: '0' },
    })
    expect([refusal, retailRatio]).toEqual(['price_changed', '1000000000000'])
    const more = { retailRatio }
    expect(await reserve(app, 'ada', { bound: 1.01e-6, more })).toBe(reached)
    expect(await reserve(app, 'ada', { bound: 9e-7, more })).toBe('')
    expect(await unpaid()).toBeCloseTo(0.9)
    const { lease } = await sidecar.lend(app, 'bob', {})
    expect(lease).toBeUndefined()
  })

  it('counts for 30 days of real time, independent of a test clock', async () => {
    const app = await newApp(owner, { isTest: true })
    await book(app, 'ada', 1)
    const operator = connectCore({ target: core.core.target, token: serviceToken, tls: undefined })
    const move = { to: undefined, advanceSeconds: 40 * 86_400 }
    await operator.moveTestClock({ clientId: app.clientId, move })
    operator.close()
    expect(await reserve(app, 'ada', 0.1)).toBe(reached)
    core.clock.advance(29 * day)
    sidecar = await startSidecar(core.as())
    expect(await reserve(app, 'ada', 0.1)).toBe(reached)
    core.clock.advance(2 * day)
    sidecar = await startSidecar(core.as())
    expect(await reserve(app, 'ada', 0.1)).toBe('')
  })

  it('is neither bounded nor counted in a platform-owned app', async () => {
    const app = await newApp()
    await book(app, 'ada', 2)
    expect(await reserve(app, 'ada', 0.1)).toBe(reached)
    await setPlatformOwned(app, true)
    expect(await reserve(app, 'ada', 100)).toBe('')
    await book(app, 'ada', 2)
    expect(await unpaid()).toBe(0)
  })

  it('counts a lease of a free plan when its app is no longer platform-owned', async () => {
    const app = await newApp()
    await sell(app.clientId, '0')
    await setPlatformOwned(app, true)
    const { lease, retailRatio } = await sidecar.lend(app, 'ada', { boundUsdAttos: attos(1e-8) })
    expect([dollars(lease?.amountUsdAttos), retailRatio]).toEqual([4e-8, '0'])
    await setPlatformOwned(app, false)
    expect(await reserve(await newApp(), 'bob', 0.5)).toBe('')
    expect(await unpaid()).toBeCloseTo(0.54)
  })

  it('reads pending authorisations by the index of held ones', async () => {
    await reserve(await newApp(), 'ada', 0.5)
    await tx(core.sql, async (db) => {
      await db.query('set local enable_seqscan = off')
      const at = core.clock.now()
      expect(await countExposure(db, owner.accountId, at)).toBe(BigInt(attos(0.5)))
      const { rows } = await db.query(
        `select pg_stat_get_xact_numscans('authorisations_held'::regclass)::int as scans`,
      )
      expect(rows).toEqual([{ scans: 1 }])
    })
  })

  it('stays with its owner when the app gets another owner', async () => {
    const app = await newApp()
    await book(app, 'ada', 1)
    const next = await logIn(core)
    await core.sql.query(
      'update members set account_id = $1 where app_id = (select app_id from clients where client_id = $2)',
      [next.accountId, app.clientId],
    )
    expect([await unpaid(), await unpaid(next)]).toEqual([1, 0])
    expect(await reserve(await newApp(), 'ada', 0.1)).toBe(reached)
  })
})

describe('network quota', () => {
  it('is changed by platform admins and operators, with an entry in the audit log', async () => {
    const app = await newApp()
    const admin = await logIn(core, { isPlatformAdmin: true })
    const { email } = owner
    const raise = (session: string) =>
      unary(quotas.setNetworkQuota.bind(quotas))({ email, maxUsdMicros: '2000000' }, as(session))
    expect(await outcome(raise(owner.token))).toBe('EDIT_FORBIDDEN')
    expect(await reserve(app, 'ada', 1.5)).toBe(reached)
    expect((await raise(admin.token)).quota).toMatchObject({ email, maxUsdMicros: '2000000' })
    expect(await reserve(app, 'ada', 1.5)).toBe('')
    core.clock.advance(second)
    const replace = unary(quotas.replaceNetworkQuota.bind(quotas))
    const back = { email: '', clientId: app.clientId, maxUsdMicros: undefined }
    expect((await replace(back, as())).quota).toEqual({
      email,
      clientId: '',
      maxUsdMicros: '1000000',
      unpaidUsdMicros: '1500000',
    })
    const list = unary(quotas.listReachedNetworkQuotas.bind(quotas))
    expect((await list({}, as())).quotas.map((quota) => quota.email)).toContain(email)
    const { rows } = await core.sql.query(
      `select actor, details from audit_log
       where action = 'quota_changed' and details ->> 'ownerId' = $1 order by created_at, id`,
      [owner.accountId],
    )
    expect(rows).toMatchObject([
      { actor: admin.accountId, details: { fromUsdMicros: '1000000', toUsdMicros: '2000000' } },
      { actor: 'operator', details: { fromUsdMicros: '2000000', toUsdMicros: null } },
    ])
  })

  it('identifies an app without an owner by the app', async () => {
    const { clientId } = await core.newApp()
    const read = unary(quotas.readNetworkQuota.bind(quotas))
    expect((await read({ email: '', clientId }, as())).quota).toMatchObject({ email: '', clientId })
  })

  it.each([
    ['an unknown address', { email: 'nobody@b.test', clientId: '' }, 'NOT_FOUND'],
    ['an unknown app', { email: '', clientId: `app_${'0'.repeat(24)}` }, 'NOT_FOUND'],
    ['no name', { email: '', clientId: '' }, 'REQUEST_INVALID'],
  ])('rejects %s', async (_what, request, reason) => {
    expect(await outcome(unary(quotas.readNetworkQuota.bind(quotas))(request, as()))).toBe(reason)
  })

  it('does not exist for a platform-owned app', async () => {
    const { clientId } = await core.newApp({ isCustomer: false })
    const read = unary(quotas.readNetworkQuota.bind(quotas))
    expect(await outcome(read({ email: '', clientId }, as()))).toBe('CONFLICT')
  })
})
