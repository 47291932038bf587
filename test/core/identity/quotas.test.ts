import { credentials } from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { unary } from '../../../core/lib/grpc.ts'
import * as quotas from '../../../proto/gen/ts-proto/tollgate/balances/v1/quotas.ts'
import * as accounts from '../../../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import { operatorHeader, serviceTokenHeader, sessionHeader } from '../../../proto/headers.ts'
import { logIn, logInTo, manage } from '../../support/web/people.ts'
import {
  type TestApp,
  type TestCore,
  atOnce,
  outcome,
  refusal,
  serviceToken,
  startTestCore,
} from '../support.ts'

let test: TestCore
let people: accounts.AccountServiceClient
let credit: quotas.CreditQuotaServiceClient

beforeAll(async () => {
  test = await startTestCore({
    QUOTA_APPS_PER_OWNER: '3',
    QUOTA_MANUAL_CREDIT_USD: '10',
    PAYMENT_PROCESSOR: 'simulated',
  })
  const insecure = credentials.createInsecure()
  people = new accounts.AccountServiceClient(test.core.target, insecure)
  credit = new quotas.CreditQuotaServiceClient(test.core.target, insecure)
})
afterAll(async () => {
  people.close()
  credit.close()
  await test.stop()
})

const as = (session?: string) => ({
  deadlineMs: 15_000,
  headers: {
    [serviceTokenHeader]: serviceToken,
    ...(session === undefined ? { [operatorHeader]: '' } : { [sessionHeader]: session }),
  },
})
const actions = async (quota: string) =>
  (
    await test.sql.query<{ actor: string; details: Record<string, unknown> }>(
      "select actor, details from audit_log where action = 'quota_changed' and details ->> 'quota' = $1 order by created_at, id",
      [quota],
    )
  ).rows

describe('the quota of apps per owner', () => {
  it('holds under concurrent calls and can be raised by a platform admin', async () => {
    const person = await logIn(test)
    const create = () => manage(test, { session: person.token }).createApp({ name: 'One more' })
    const outcomes = await atOnce(8, () => outcome(create()))
    expect(outcomes.toSorted()).toEqual([...Array<string>(5).fill('CONFLICT'), 'OK', 'OK', 'OK'])
    expect(await refusal(create())).toMatchObject({
      message: expect.stringContaining('quota apps per owner: this account owns 3 of 3 apps'),
    })
    const admin = await logIn(test, { isPlatformAdmin: true })
    const raise = (session: string) =>
      unary(people.updateAccountQuota.bind(people))(
        { email: person.email, appsMax: 4 },
        as(session),
      )
    expect(await outcome(raise(person.token))).toBe('EDIT_FORBIDDEN')
    expect(await raise(admin.token)).toMatchObject({ apps: 3, appsMax: 4 })
    expect([await outcome(create()), await outcome(create())]).toEqual(['OK', 'CONFLICT'])
    test.clock.advance(1_000)
    const back = unary(people.updateAccountQuota.bind(people))
    expect(await back({ email: person.email, appsMax: undefined }, as())).toMatchObject({
      appsMax: 3,
    })
    expect((await actions('apps')).map(({ actor, details }) => [actor, details['to']])).toEqual([
      [admin.accountId, 4],
      ['operator', null],
    ])
  })

  it('does not count deleted apps', async () => {
    const person = await logIn(test)
    const own = manage(test, { session: person.token })
    for (let i = 0; i < 3; i++) await own.createApp({ name: `App ${i}` })
    const { apps } = await own.listApps()
    await own.deleteApp({ clientId: apps[0]?.clientId ?? '' })
    expect(await outcome(own.createApp({ name: 'Again' }))).toBe('OK')
  })
})

describe('creating apps', () => {
  it('is allowed only to platform admins with APP_CREATION=admins', async () => {
    const { core } = await test.startAnother({ APP_CREATION: 'admins' })
    const strict = { ...test, core }
    const [person, admin] = [await logIn(test), await logIn(test, { isPlatformAdmin: true })]
    const create = (session: string) =>
      outcome(manage(strict, { session }).createApp({ name: 'An app' }))
    expect([await create(person.token), await create(admin.token)]).toEqual([
      'EDIT_FORBIDDEN',
      'OK',
    ])
  })
})

describe('the quota of manual credit per app', () => {
  const give = (app: TestApp, user: string, micros: number) =>
    test.as(app.basic).createGrant({
      clientId: app.clientId,
      externalUserId: user,
      amountUsdMicros: String(micros),
      source: 'promo',
    })
  async function newApp(): Promise<TestApp> {
    const app = await test.newApp()
    for (let i = 0; i < 4; i++)
      await test.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: `u${i}` })
    return app
  }

  it('holds under concurrent calls for every source, separately per app', async () => {
    const [app, other] = [await newApp(), await newApp()]
    let i = 0
    const outcomes = await atOnce(16, () => outcome(give(app, `u${i++ % 4}`, 1_500_000)))
    expect(outcomes.filter((each) => each === 'OK')).toHaveLength(6)
    expect(new Set(outcomes)).toEqual(new Set(['OK', 'CONFLICT']))
    expect(await refusal(give(app, 'u0', 1_500_000))).toMatchObject({
      message: expect.stringContaining(
        'quota manual credit per app: its users would have 10.5 of 10 USD unspent',
      ),
    })
    const { rows } = await test.sql.query(
      "select sum(g.remaining_attos)::text as sum from grants g join clients c on c.app_id = g.app_id and c.client_id = $1 where g.kind = 'grant'",
      [app.clientId],
    )
    expect(rows[0].sum).toBe('9000000000000000000')
    expect(await outcome(give(app, 'u0', 1_000_000))).toBe('OK')
    expect(await outcome(give(other, 'u0', 10_000_000))).toBe('OK')
  })

  it('counts the unspent credit', async () => {
    const app = await newApp()
    await give(app, 'u0', 10_000_000)
    expect(await outcome(give(app, 'u0', 1))).toBe('CONFLICT')
    await test.as().createAdjustment({
      clientId: app.clientId,
      externalUserId: 'u0',
      amountUsdMicros: '-8000000',
    })
    expect(await outcome(give(app, 'u1', 4_000_000))).toBe('CONFLICT')
    expect(await outcome(give(app, 'u1', 3_000_000))).toBe('OK')
  })

  it('ends while the app has an account that takes payments', async () => {
    const app = await newApp()
    await test.sql.query(
      `insert into processor_accounts (app_id, id, processor, plane, account, charges_enabled, payouts_enabled, details_submitted,
         connected_at, created_at, read_at)
       select app_id, gen_random_uuid(), 'simulated', 'live', 'acct_quota', false, false, true, now(), now(), now()
       from clients where client_id = $1`,
      [app.clientId],
    )
    const setCharges = (on: boolean) =>
      test.sql.query(
        "update processor_accounts set charges_enabled = $1 where account = 'acct_quota'",
        [on],
      )
    // Without a row of the quota, and with one.
    expect(await outcome(give(app, 'u0', 11_000_000))).toBe('CONFLICT')
    await setCharges(true)
    expect(await outcome(give(app, 'u0', 11_000_000))).toBe('OK')
    expect(await outcome(give(app, 'u0', 2_000_000))).toBe('OK')
    await setCharges(false)
    expect(await refusal(give(app, 'u0', 1_000_000))).toMatchObject({
      message: expect.stringContaining('would have 14 of 10 USD unspent'),
    })
  })

  it('is raised by platform admins and operators, with an audit row', async () => {
    const app = await newApp()
    await give(app, 'u0', 10_000_000)
    const owner = await logInTo(test, app, 'owner')
    const admin = await logIn(test, { isPlatformAdmin: true })
    const raise = (session: string) =>
      unary(credit.updateCreditQuota.bind(credit))(
        { clientId: app.clientId, maxUsdMicros: '12000000' },
        as(session),
      )
    expect(await outcome(raise(owner.token))).toBe('EDIT_FORBIDDEN')
    expect(await raise(admin.token)).toMatchObject({
      maxUsdMicros: '12000000',
      outstandingUsdMicros: '10000000',
    })
    expect([await outcome(give(app, 'u0', 2_000_000)), await outcome(give(app, 'u0', 1))]).toEqual([
      'OK',
      'CONFLICT',
    ])
    test.clock.advance(1_000)
    const replace = unary(credit.updateCreditQuota.bind(credit))
    await replace({ clientId: app.clientId, maxUsdMicros: undefined }, as())
    expect(await outcome(replace({ clientId: app.clientId, maxUsdMicros: '1.5' }, as()))).toBe(
      'AMOUNT_INVALID',
    )
    expect((await actions('manual_credit')).map(({ actor }) => actor)).toEqual([
      admin.accountId,
      'operator',
    ])
  })
})
