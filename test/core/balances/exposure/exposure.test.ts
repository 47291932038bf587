import { credentials } from '@grpc/grpc-js'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { countHeld } from '../../../../core/balances/exposure/store.ts'
import { connectCore } from '../../../../deploy/cli/client.ts'
import { unary } from '../../../../core/lib/grpc.ts'
import { tx } from '../../../../core/lib/sql.ts'
import { NetworkQuotaServiceClient } from '../../../../proto/gen/ts-proto/tollgate/balances/v1/quotas.ts'
import { operatorHeader, serviceTokenHeader, sessionHeader } from '../../../../proto/headers.ts'
import { type Person, logIn, manage } from '../../../support/web/people.ts'
import { envelope } from '../../metering/harness.ts'
import {
  type TestApp,
  type TestCore,
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
} from '../escrow/granting.ts'
import { newOwnedApp, sellStarter, setOwnerAccount } from './owned-apps.ts'

/** The account of an owner bounds what its apps cost (docs/escrow-credit.md, "The owner's account"). */

let core: TestCore
let quotas: NetworkQuotaServiceClient
let owner: Person
let sidecar: TestSidecar
beforeAll(async () => {
  core = await startTestCore({ ...observedRate, STARTER_USD_MICROS: '1000000' })
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
    ...(session === undefined ? { [operatorHeader]: '' } : { [sessionHeader]: session }),
  },
})

/** Stores a rate as a source observes it. A price recorded by an operator would serve for a day. */
const observeRate = () =>
  core.sql.query(
    `insert into rates (usd_attos_per_eth, source, observed_at, created_at) values (3000 * 10::numeric ^ 18, 'test', $1, $1)`,
    [core.clock.now()],
  )

const newApp = (by: Person = owner, more: object = {}) => newOwnedApp(core, by, more)
const sell = (clientId: string, rate: string | null) => sellStarter(core, clientId, rate)

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
const read = async ({ email }: Person = owner) => {
  const { quota } = await unary(quotas.getNetworkQuota.bind(quotas))({ email, clientId: '' }, as())
  return quota
}
/** What the owner's apps hold of its account. */
const held = async (of = owner): Promise<number> => Number((await read(of))?.unpaidUsdMicros) / 1e6
/** Balance and credit line of the owner's account. */
const money = async (of = owner): Promise<number> => Number((await read(of))?.maxUsdMicros) / 1e6
const setAccount = (set: string, of = owner) => setOwnerAccount(core, of.accountId, set)
/** Gives the app a cut, as if it was set yesterday. */
const setCut = (app: TestApp, percent: number) =>
  core.sql.query(
    `insert into platform_cuts (app_id, since, percent, created_at)
     select app_id, $2::timestamptz - interval '23 hours', $3, $2::timestamptz - interval '1 day' from clients where client_id = $1`,
    [app.clientId, core.clock.now(), percent],
  )
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

describe("the account of an app's owner", () => {
  it('is never exceeded by concurrent reservations of several apps, users and cores', async () => {
    const apps = [await newApp(), await newApp()]
    const other = await startSidecar((await core.startAnother()).as())
    const ask = async (index: number): Promise<string> => {
      const app = apps[index % 2] as TestApp
      const at = index % 3 === 0 ? other : sidecar
      const call = { sequence: index, session: `s${index}`, bound: 0.1 }
      return (await at.reserve(app, `user-${index % 5}`, call)).refusal
    }
    const refusals = await Promise.all(Array.from({ length: 100 }, (_, index) => ask(index)))
    expect(refusals.toSorted()).toEqual([
      ...Array<string>(10).fill(''),
      ...Array<string>(90).fill(reached),
    ])
    expect([await held(), await money()]).toEqual([1, 1])
    expect(await core.metrics.metrics()).toMatch(
      /tollgate_escrow_refused_total\{[^}]*reason="owner_debt_ceiling_reached"[^}]*\} [1-9]/,
    )
  })

  it('names the reason of a refusal, and that a retry may help until holds are counted', async () => {
    const app = await newApp()
    expect(await reserve(app, 'ada', 1)).toBe('')
    const call = { sequence: 1, session: 'more', bound: 0.1 }
    expect(await sidecar.reserve(app, 'ada', call)).toMatchObject({
      refusal: reached,
      ownerRefusal: 'insufficient_balance',
      recalled: true,
    })
    core.clock.advance(second)
    expect(await sidecar.reserve(app, 'ada', call)).toMatchObject({ recalled: false })
    await setAccount('lacks_card = true')
    expect((await sidecar.reserve(app, 'ada', call)).ownerRefusal).toBe('no_payment_method')
    await setAccount('lacks_card = false, ceiling_attos = 5e16')
    expect((await sidecar.reserve(app, 'ada', call)).ownerRefusal).toBe('debt_ceiling_reached')
    expect((await sidecar.lend(app, 'ada')).spendRefusal).toBe('')
    await setAccount('ceiling_attos = 0')
    const { lease, canSpend, spendRefusal } = await sidecar.lend(app, 'ada')
    expect([lease, canSpend, spendRefusal]).toEqual([undefined, false, reached])
  })

  it('pays with its credit line, up to the ceiling', async () => {
    const app = await newApp()
    await reserve(app, 'ada', 0.5)
    await setAccount('ceiling_attos = 2e18')
    expect(await reserve(app, 'ada', 2.6)).toBe(reached)
    expect(await reserve(app, 'ada', 2.5)).toBe('')
    await book(app, 'bob', 4)
    expect([await held(), await money()]).toEqual([3, 0])
  })

  it('pays in the billing mode merchant, too', async () => {
    const app = await newApp()
    await core.sql.query(
      `insert into billing_settings (app_id, billing_mode, updated_at)
       select app_id, 'merchant', now() from clients where client_id = $1`,
      [app.clientId],
    )
    expect(await reserve(app, 'ada', 1.1)).toBe(reached)
    expect(await reserve(app, 'ada', 1)).toBe('')
  })

  it('pays for the cut of each app', async () => {
    const [app, dear] = [await newApp(), await newApp()]
    await setCut(dear, 50)
    expect(await reserve(dear, 'ada', 0.67)).toBe(reached)
    expect(await reserve(dear, 'ada', 0.4)).toBe('')
    expect(await held()).toBeCloseTo(0.6)
    expect(await reserve(app, 'ada', 0.41)).toBe(reached)
    expect(await reserve(app, 'ada', 0.4)).toBe('')
    expect(await held()).toBeCloseTo(1)
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
    expect(await held()).toBeCloseTo(0.8)
    expect(await reserve(app, 'user-19', 0.1)).toBe('')
    const leaseId = lease?.id ?? ''
    const [used, bound] = [attos(0.04), attos(0.005)]
    const use = { leaseId, usedUsdAttos: used, boundUsdAttos: bound }
    expect((await sidecar.lend(app, 'user-0', use)).lease?.amountUsdAttos).toBe(attos(0.05))
  })

  it('gets back what a lease did not use, and pays the cost when a ticket comes', async () => {
    const app = await newApp()
    const { lease } = await sidecar.lend(app, 'ada', { boundUsdAttos: attos(0.05) })
    expect(await held()).toBeCloseTo(0.2)
    const call = authorisation({ bound: 0.05, more: { leaseId: lease?.id ?? '' } })
    await sidecar.report(app, 'ada', { calls: [call] })
    expect(await held()).toBeCloseTo(0.2)
    const returned = { leaseId: lease?.id ?? '', usedUsdAttos: attos(0.05) }
    await sidecar.report(app, 'ada', { returned: [returned] })
    expect(await held()).toBeCloseTo(0.05)
    core.clock.advance(11 * second)
    expect(await reserve(app, 'bob', 0.95)).toBe('')
    await book(app, 'eve', 0.3)
    expect([await held(), await money()]).toEqual([1, 0.7])
  })

  it('recalls leases when it loses money, and lends again when it is back', async () => {
    const app = await newApp()
    await setAccountOf(app, 'ceiling_attos = 9e18')
    const { lease } = await sidecar.lend(app, 'ada', { boundUsdAttos: attos(0.5) })
    expect(dollars(lease?.amountUsdAttos)).toBeCloseTo(2)
    await setAccount('ceiling_attos = 0')
    const renewed = await sidecar.lend(app, 'ada', { leaseId: lease?.id ?? '' })
    expect([renewed.lease, renewed.spendRefusal]).toEqual([undefined, reached])
    expect((await sidecar.heartbeat()).recalled).toHaveLength(1)
    const returned = { leaseId: lease?.id ?? '', usedUsdAttos: '0' }
    await sidecar.report(app, 'ada', { returned: [returned] })
    core.clock.advance(11 * second)
    await sidecar.heartbeat()
    expect((await sidecar.lend(app, 'ada')).lease).toBeDefined()
  })

  it('decides canSpend of the users', async () => {
    const app = await newApp()
    const name = { clientId: app.clientId, externalUserId: 'ada' }
    const balance = async () => (await core.as(app.basic).getBalance(name)).balance
    expect(await reserve(app, 'ada', 0.4)).toBe('')
    expect(await balance()).toMatchObject({ hasAccess: true, canSpend: true, spendRefusal: '' })
    await book(app, 'bob', 1)
    expect(await balance()).toMatchObject({
      hasAccess: true,
      canSpend: false,
      spendRefusal: reached,
    })
  })

  it('pays for unauthorised tickets, including those of new users and deleted apps', async () => {
    const [gone, app] = [await newApp(), await newApp()]
    await book(gone, 'made-by-a-ticket', 0.7)
    await manage(core, { session: owner.token }).deleteApp({ clientId: gone.clientId })
    expect(await money()).toBeCloseTo(0.3)
    expect(await reserve(app, 'ada', 0.31)).toBe(reached)
    expect(await reserve(app, 'ada', 0.3)).toBe('')
    await book(app, 'ada', 5)
    expect(await money()).toBe(0)
  })

  it('counts a ticket that waits for its price as held, then by its price', async () => {
    const app = await newApp()
    core.clock.advance(20 * 60 * second)
    await reserve(app, 'ada', 0.1)
    await book(app, 'ada', 0.4)
    expect(await held()).toBeCloseTo(0.54)
    await core.as().recordRate({ usdPerEth: '3000', observedAt: core.clock.now().toISOString() })
    await until(async () => (await money()) === 0.6)
    expect(await held()).toBeCloseTo(0.1)
  })

  it('pays at network price when a plan sells for nothing', async () => {
    const app = await newApp()
    await sell(app.clientId, '0')
    const { retailRatio, refusal } = await sidecar.reserve(app, 'ada', {
      more: { retailRatio: '0' },
    })
    expect([refusal, retailRatio]).toEqual(['price_changed', '1000000000000'])
    const more = { retailRatio }
    expect(await reserve(app, 'ada', { bound: 1.01e-6, more })).toBe(reached)
    expect(await reserve(app, 'ada', { bound: 9e-7, more })).toBe('')
    expect(await held()).toBeCloseTo(0.9)
    const { lease } = await sidecar.lend(app, 'bob', {})
    expect(lease).toBeUndefined()
  })

  it('pays for the calls of a test app, whose clock is ahead', async () => {
    const app = await newApp(owner, { isTest: true })
    await book(app, 'ada', 1)
    const operator = connectCore({ target: core.core.target, token: serviceToken, tls: undefined })
    const move = { to: undefined, advanceSeconds: 40 * 86_400 }
    await operator.testClocks.advanceTestClock({ clientId: app.clientId, move })
    operator.close()
    expect(await reserve(app, 'ada', 0.1)).toBe(reached)
  })

  it('enters its next period, which pays again', async () => {
    const app = await newApp()
    await book(app, 'ada', 1)
    expect(await reserve(app, 'ada', 0.1)).toBe(reached)
    core.clock.advance(32 * day)
    sidecar = await startSidecar(core.as())
    await observeRate()
    expect(await reserve(app, 'ada', 1.1)).toBe(reached)
    expect(await reserve(app, 'ada', 1)).toBe('')
  })

  it('pays nothing for a platform-owned app', async () => {
    const app = await newApp()
    await book(app, 'ada', 2)
    expect(await reserve(app, 'ada', 0.1)).toBe(reached)
    await setPlatformOwned(app, true)
    expect(await reserve(app, 'ada', 100)).toBe('')
    await newApp()
    expect(await held()).toBe(0)
  })

  it('pays for a lease of a free plan when its app is no longer platform-owned', async () => {
    const app = await newApp()
    await sell(app.clientId, '0')
    await setPlatformOwned(app, true)
    const { lease, retailRatio } = await sidecar.lend(app, 'ada', { boundUsdAttos: attos(1e-8) })
    expect([dollars(lease?.amountUsdAttos), retailRatio]).toEqual([4e-8, '0'])
    await setPlatformOwned(app, false)
    expect(await reserve(await newApp(), 'bob', 0.5)).toBe('')
    expect(await held()).toBeCloseTo(0.54)
  })

  it('is counted by the index of held authorisations', async () => {
    await reserve(await newApp(), 'ada', 0.5)
    const { rows: users } = await core.sql.query(
      `select u.app_id as "appId", u.id as "userId" from end_users u where external_user_id = $1`,
      [`account:${owner.accountId}`],
    )
    await tx(core.sql, async (db) => {
      await db.query('set local enable_seqscan = off')
      expect(await countHeld(db, users[0], core.clock.now())).toBe(BigInt(attos(0.5)))
      const { rows } = await db.query(
        `select pg_stat_get_xact_numscans('authorisations_held'::regclass)::int as scans`,
      )
      expect(rows).toEqual([{ scans: 1 }])
    })
  })

  it('keeps what was charged when the app gets another owner, who pays for what is held', async () => {
    const app = await newApp()
    await book(app, 'ada', 0.6)
    await reserve(app, 'ada', 0.3)
    const next = await logIn(core)
    await core.sql.query(
      'update members set account_id = $1 where app_id = (select app_id from clients where client_id = $2)',
      [next.accountId, app.clientId],
    )
    core.clock.advance(11 * second)
    await sidecar.heartbeat()
    expect(await reserve(app, 'ada', 0.8)).toBe(reached)
    expect(await reserve(app, 'ada', 0.6)).toBe('')
    expect([await held(next), await money(next)]).toEqual([0.9, 1])
    expect(await reserve(await newApp(), 'ada', 0.5)).toBe(reached)
    expect([await held(), await money()]).toEqual([0, 0.4])
  })
})

/** Like `setAccount`, after the owner's account was made by a first lease. */
async function setAccountOf(app: TestApp, set: string): Promise<void> {
  await sidecar.lend(app, 'first')
  await setAccount(set)
}

describe('network quota', () => {
  it("shows what an owner's account can pay for, and is not set", async () => {
    const app = await newApp()
    const { email } = owner
    expect(await read()).toEqual({ email, clientId: '', maxUsdMicros: '0', unpaidUsdMicros: '0' })
    expect(await reserve(app, 'ada', 1)).toBe('')
    const byApp = unary(quotas.getNetworkQuota.bind(quotas))
    expect((await byApp({ email: '', clientId: app.clientId }, as())).quota).toEqual({
      email,
      clientId: '',
      maxUsdMicros: '1000000',
      unpaidUsdMicros: '1000000',
    })
    const list = unary(quotas.listReachedNetworkQuotas.bind(quotas))
    expect((await list({}, as())).quotas.map((quota) => quota.email)).toContain(email)
    const raise = unary(quotas.updateNetworkQuota.bind(quotas))
    const more = { email, clientId: '', maxUsdMicros: '2000000' }
    expect(await outcome(raise(more, as()))).toBe('CONFLICT')
    const admin = await logIn(core, { isPlatformAdmin: true })
    expect(await outcome(raise(more, as(owner.token)))).toBe('EDIT_FORBIDDEN')
    expect(await outcome(raise(more, as(admin.token)))).toBe('CONFLICT')
  })

  it.each([
    ['an unknown address', { email: 'nobody@b.test', clientId: '' }, 'NOT_FOUND'],
    ['an unknown app', { email: '', clientId: `app_${'0'.repeat(24)}` }, 'NOT_FOUND'],
    ['no name', { email: '', clientId: '' }, 'REQUEST_INVALID'],
  ])('rejects %s', async (_what, request, reason) => {
    expect(await outcome(unary(quotas.getNetworkQuota.bind(quotas))(request, as()))).toBe(reason)
  })

  it('does not exist for an app that no owner pays for', async () => {
    const ask = unary(quotas.getNetworkQuota.bind(quotas))
    for (const { clientId } of [await core.newApp({ isCustomer: false }), await core.newApp()])
      expect(await outcome(ask({ email: '', clientId }, as()))).toBe('CONFLICT')
  })
})
