import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { Authorisation } from '../../../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import {
  type TestApp,
  type TestCore,
  outcome,
  second,
  startTestCore,
  until,
} from '../../support.ts'
import {
  type TestSidecar,
  attos,
  authorisation,
  dollars,
  lendCall,
  moneyOf,
  startSidecar,
} from './granting.ts'

let core: TestCore
let app: TestApp
let sidecar: TestSidecar
beforeAll(async () => {
  core = await startTestCore()
})
afterAll(() => core.stop())
beforeEach(async () => {
  app = await core.newApp()
  sidecar = await startSidecar(core.as())
})

const money = (user = 'ada') => moneyOf(core, app, user)
const process = () => sidecar.sidecar
const named = (externalUserId = 'ada') => ({ clientId: app.clientId, externalUserId })

describe('a malformed request', () => {
  const bad: readonly [string, Partial<Authorisation>][] = [
    ['no session', { sessionId: '' }],
    ['a session with NUL', { sessionId: 'a\0' }],
    ['a long session', { sessionId: 'x'.repeat(513) }],
    ['a negative number', { sequence: -1n }],
    ['an invalid year', { signedSeconds: 10n ** 12n }],
    ['more than a second of nanoseconds', { signedNanos: 1_000_000_000 }],
    ['a bound of zero', { boundUsdAttos: '0' }],
    ['a bound below a nano-dollar', { boundUsdAttos: '1' }],
    ['a negative bound', { boundUsdAttos: '-1000000000' }],
    ['a foreign lease id', { leaseId: 'x' }],
  ]
  it.each(bad)('with %s is rejected', async (_, more) => {
    const call = authorisation({ more })
    const reserve = core.as().reserve({
      sidecar: process(),
      calls: [{ ...named(), authorisation: call }],
    })
    expect(await outcome(reserve)).toBe('REQUEST_INVALID')
    expect(await outcome(sidecar.report(app, 'ada', { calls: [call] }))).toBe('REQUEST_INVALID')
  })

  it('is rejected if it is too large or names no sidecar', async () => {
    const calls = Array.from({ length: 1_001 }, () => lendCall(app, 'ada'))
    expect(await outcome(sidecar.lendMany(calls))).toBe('REQUEST_INVALID')
    const many = Array.from({ length: 5_001 }, (_, sequence) => authorisation({ sequence }))
    expect(await outcome(sidecar.report(app, 'ada', { calls: many }))).toBe('REQUEST_INVALID')
    expect(await outcome(core.as().report({}))).toBe('REQUEST_INVALID')
    const unnamed = { id: 'x', instance: 'not a uuid' }
    expect(await outcome(core.as().report({ sidecar: unnamed }))).toBe('REQUEST_INVALID')
  })
})

describe('a reservation', () => {
  const sell = (rate: string) =>
    core.sql.query(
      `insert into plan_versions (app_id, plan_id, version, type, price_amount, price_currency, included_attos, retail_rate,
                                  billing_cycle, created_at)
       select app_id, plan_id, version + 1, type, price_amount, price_currency, included_attos, $2, billing_cycle, created_at
       from plan_versions
       where plan_id = (select p.id from plans p join clients c using (app_id) where c.client_id = $1 and is_starter_default)`,
      [app.clientId, rate],
    )
  let sequence = 0
  const reserve = (retailRatio?: string) =>
    sidecar.reserve(app, 'ada', {
      sequence: sequence++,
      more: retailRatio === undefined ? {} : { retailRatio },
    })

  it('is refused, with the price, if its bound was made at less than the plan sells at', async () => {
    await sell('0.000003')
    const ratio = `3${'0'.repeat(18)}`
    for (const less of ['', '0', String(BigInt(ratio) - 1n)])
      expect(await reserve(less)).toMatchObject({ refusal: 'price_changed', retailRatio: ratio })
    expect(await money()).toEqual({ balance: 5, lent: 0, pending: 0 })
    for (const enough of [ratio, String(BigInt(ratio) + 1n), undefined])
      expect(await reserve(enough)).toMatchObject({ refusal: '', retailRatio: ratio })
    expect(await money()).toEqual({ balance: 5, lent: 0, pending: 0.3 })
  })

  it('is rejected with an invalid ratio', async () => {
    for (const ratio of ['-1', '1.5', '1e18', 'x'])
      expect(await outcome(reserve(ratio))).toBe('REQUEST_INVALID')
  })
})

describe('an invalid or inactive user', () => {
  it('gets a separate answer, without effect on the others', async () => {
    const { answers } = await sidecar.lendMany([
      lendCall(app, 'ada'),
      lendCall({ ...app, clientId: `app_${'0'.repeat(24)}` }, 'ada'),
      lendCall(app, 'a\nb'),
      lendCall(app, 'bob'),
    ])
    expect(answers.map(({ refusal }) => refusal)).toEqual(['', 'NOT_FOUND', 'NOT_FOUND', ''])
    const unknown = { ...app, clientId: `app_${'0'.repeat(24)}` }
    expect(await sidecar.reserve(unknown, 'ada')).toMatchObject({ refusal: 'invalid_identity' })
  })

  it('is lent nothing while inactive', async () => {
    await sidecar.lend(app, 'ada')
    await core.as(app.basic).deactivateUser(named())
    const { active, lease, tokensValidAfter } = await sidecar.lend(app, 'ada')
    expect({ active, lease }).toEqual({ active: false, lease: undefined })
    expect(tokensValidAfter).toBeGreaterThan(0n)
    expect(await sidecar.reserve(app, 'ada')).toMatchObject({ refusal: 'user_inactive' })
  })
})

describe('a sidecar that never reported', () => {
  it('can neither borrow nor reserve', async () => {
    const unknown = { id: 'unknown', instance: randomUUID() }
    const calls = [lendCall(app, 'ada')]
    expect(await outcome(core.as().lend({ sidecar: unknown, calls }))).toBe('CONFLICT')
    const reserve = { ...named(), authorisation: authorisation() }
    expect(await outcome(core.as().reserve({ sidecar: unknown, calls: [reserve] }))).toBe(
      'CONFLICT',
    )
  })

  it('can take the id of a stopped process at once', async () => {
    await sidecar.stop()
    expect(await outcome(startSidecar(core.as(), process().id))).toBe('OK')
  })
})

describe('a recall', () => {
  it('takes lent money back for a call that needs it', async () => {
    const other = await startSidecar(core.as())
    const { lease, userId } = await other.lend(app, 'ada', { boundUsdAttos: attos(1) })
    expect(dollars(lease?.amountUsdAttos)).toBe(1.25)
    expect(await sidecar.reserve(app, 'ada', { bound: 4 })).toMatchObject({
      refusal: 'insufficient_balance',
      recalled: true,
    })
    expect((await other.heartbeat()).recalled).toEqual([userId])
    expect((await other.lend(app, 'ada', { leaseId: lease?.id ?? '' })).lease).toBeUndefined()
    await other.report(app, 'ada', { returned: [{ leaseId: lease?.id ?? '', usedUsdAttos: '0' }] })
    expect(await sidecar.reserve(app, 'ada', { bound: 4 })).toMatchObject({ refusal: '' })
    expect(await money()).toEqual({ balance: 5, lent: 0, pending: 4 })
    expect((await other.lend(app, 'ada')).lease).toBeUndefined()
    core.clock.advance(10 * second)
    await other.heartbeat()
    expect((await other.lend(app, 'ada')).lease).toBeDefined()
  })

  it('is not made when it would not help', async () => {
    await (await startSidecar(core.as())).lend(app, 'ada')
    expect(await sidecar.reserve(app, 'ada', { bound: 6 })).toMatchObject({
      refusal: 'insufficient_balance',
      recalled: false,
    })
  })
})

describe('money that ends', () => {
  it('is not lent beyond its end, and is reserved against the next period', async () => {
    await sidecar.lend(app, 'ada')
    const { rows } = await core.sql.query<{ period_end: Date }>(
      `select b.period_end from balances b join clients c on c.app_id = b.app_id where c.client_id = $1`,
      [app.clientId],
    )
    const end = rows[0]?.period_end.getTime() ?? 0
    const before = core.clock.now()
    core.clock.set(new Date(end - 30 * second))
    await sidecar.heartbeat()
    expect((await sidecar.lend(app, 'bob')).lease).toBeDefined()
    core.clock.set(new Date(end - 12 * second))
    await sidecar.heartbeat()
    expect((await sidecar.lend(app, 'ada', { boundUsdAttos: attos(0.1) })).lease).toBeUndefined()
    expect(await sidecar.reserve(app, 'ada', { bound: 0.1 })).toMatchObject({ refusal: '' })
    expect(await sidecar.reserve(app, 'ada', { bound: 5, sequence: 2 })).toMatchObject({
      refusal: 'insufficient_balance',
    })
    core.clock.set(new Date(end))
    await sidecar.heartbeat()
    expect(await sidecar.reserve(app, 'ada', { bound: 0.1 })).toMatchObject({ refusal: '' })
    core.clock.set(before)
  })
})

describe('getBalance', () => {
  it('subtracts held money from what remains', async () => {
    await sidecar.reserve(app, 'ada', { bound: 3 })
    const reserved = await core.as(app.basic).getBalance(named())
    expect(reserved.balance).toMatchObject({
      balanceUsdMicros: '5000000',
      remainingUsdMicros: '2000000',
      hasAccess: true,
    })
    await sidecar.reserve(app, 'ada', { bound: 2, sequence: 2 })
    const full = await core.as(app.basic).getBalance(named())
    expect(full.balance).toMatchObject({ remainingUsdMicros: '0', hasAccess: false })
  })
})

describe('prior calls', () => {
  it('include those of sessions that another sidecar authorised', async () => {
    const other = await startSidecar(core.as())
    await other.reserve(app, 'ada', { sequence: 4, at: 1_773_000_000 })
    const ask = (sessionId: string, sequence: bigint) =>
      sidecar.lend(app, 'ada', { sessionId, sequence })
    expect((await ask('s1', 5n)).priorCall).toEqual({
      sequence: 4n,
      seconds: 1_773_000_000n,
      nanos: 250_000_789,
    })
    expect((await ask('s1', 4n)).priorCall).toBeUndefined()
    expect((await ask('s2', 5n)).priorCall).toBeUndefined()
  })
})

describe('the rate for bounds', () => {
  it('is the newest, then the last one raised, then absent', async () => {
    const start = core.clock.now()
    expect((await sidecar.heartbeat()).rate).toMatchObject({ raised: false })
    core.clock.advance(601 * second)
    await until(async () => (await sidecar.heartbeat()).rate?.raised === true)
    expect((await sidecar.heartbeat()).rate).toMatchObject({
      usdAttosPerEth: attos(3300),
      raised: true,
      observedAt: expect.any(BigInt),
    })
    core.clock.advance(3_601 * second)
    expect((await sidecar.heartbeat()).rate).toBeUndefined()
    core.clock.set(start)
  })
})
