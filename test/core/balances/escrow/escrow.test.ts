import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  type TestApp,
  type TestCore,
  atOnce,
  lockWaits,
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
const lend = (call: Parameters<TestSidecar['lend']>[2] = {}) => sidecar.lend(app, 'ada', call)

describe('a call that is proven after its release', () => {
  it.each(['reservation', 'report'])('is counted as lost by the next %s', async (way) => {
    const lost = async () =>
      (await core.metrics.metrics()).match(
        /^tollgate_escrow_ended_total\{end="lost",[^}]*\} (\d+)$/m,
      )?.[1]
    const before = Number(await lost())
    await sidecar.reserve(app, 'ada', { sequence: 0 })
    await core.sql.query(
      `with ended as (
         update authorisations set state = 'released', state_at = now()
         where app_id = (select app_id from clients where client_id = $1) returning app_id, user_id, bound_attos)
       update balances b set pending_attos = pending_attos - e.bound_attos
       from ended e where b.app_id = e.app_id and b.user_id = e.user_id`,
      [app.clientId],
    )
    if (way === 'reservation') await sidecar.reserve(app, 'ada', { sequence: 1 })
    else await sidecar.report(app, 'ada', { refused: [{ sessionId: 's1', sequence: 1n }] })
    expect(Number(await lost())).toBe(before + 1)
  })
})

describe('lend', () => {
  it('provisions an unknown user and lends a first slice', async () => {
    const { lease, ...answer } = await lend()
    expect(answer).toMatchObject({ refusal: '', active: true, tokensValidAfter: 0n })
    expect(lease).toMatchObject({ amountUsdAttos: attos(0.05), seconds: 30 })
    expect(dollars(answer.remainingUsdAttos)).toBe(4.95)
    expect(await money()).toEqual({ balance: 5, lent: 0.05, pending: 0 })
  })

  it.each(['owner:somebody', 'user:somebody', 'ada\u202e'])(
    'creates no user with the name %j',
    async (name) => {
      const call = { bound: 1, sequence: 0 }
      expect(await sidecar.reserve(app, name, call)).toMatchObject({ refusal: 'invalid_identity' })
      expect((await sidecar.lend(app, name)).lease).toBeUndefined()
      const { rowCount } = await core.sql.query(
        'select 1 from end_users where external_user_id = $1',
        [name],
      )
      expect(rowCount).toBe(0)
    },
  )

  it('lends what the user spends in the time of a lease, at least four calls, at most a quarter', async () => {
    expect((await lend({ boundUsdAttos: attos(0.1) })).lease?.amountUsdAttos).toBe(attos(0.4))
    const other = (call: Parameters<TestSidecar['lend']>[2]) => sidecar.lend(app, 'bob', call)
    const fast = await other({ boundUsdAttos: attos(0.001), spendingUsdAttos: attos(0.02) })
    expect(fast.lease?.amountUsdAttos).toBe(attos(0.6))
    const fastest = await sidecar.lend(app, 'eve', { spendingUsdAttos: attos(1) })
    expect(fastest.lease?.amountUsdAttos).toBe(attos(1.25))
  })

  it('lends nothing when a quarter does not cover the call', async () => {
    const answer = await lend({ boundUsdAttos: attos(1.3) })
    expect(answer.lease).toBeUndefined()
    expect(dollars(answer.remainingUsdAttos)).toBe(5)
  })

  it('raises a lease by what was used and keeps its id', async () => {
    const { lease } = await lend({ boundUsdAttos: attos(0.1) })
    const used = { leaseId: lease?.id ?? '', usedUsdAttos: attos(0.3), boundUsdAttos: attos(0.1) }
    const renewed = await lend(used)
    expect(renewed.lease).toEqual({ id: lease?.id, amountUsdAttos: attos(0.7), seconds: 30 })
    expect(await money()).toMatchObject({ lent: 0.7 })
  })
})

describe('reserve', () => {
  it('holds the bound until its ticket comes', async () => {
    expect(await sidecar.reserve(app, 'ada', { bound: 4 })).toMatchObject({
      refusal: '',
      recalled: false,
      remainingUsdAttos: attos(1),
    })
    expect(await money()).toEqual({ balance: 5, lent: 0, pending: 4 })
    expect(await sidecar.reserve(app, 'ada', { bound: 1.1, sequence: 2 })).toMatchObject({
      refusal: 'insufficient_balance',
      recalled: false,
    })
  })

  it('fills the balance exactly with concurrent calls', async () => {
    const others = [sidecar, await startSidecar(core.as()), await startSidecar(core.as())]
    const users = ['ada', 'bob']
    const answers = await atOnce(180, (index) =>
      (others[index % 3] ?? sidecar).reserve(app, users[index % 2] ?? '', {
        bound: 0.1,
        sequence: index,
      }),
    )
    expect(answers.filter(({ refusal }) => refusal === '')).toHaveLength(100)
    expect(await money()).toEqual({ balance: 5, lent: 0, pending: 5 })
    expect(await money('bob')).toEqual({ balance: 5, lent: 0, pending: 5 })
  })
})

describe('a reservation that waits for its user', () => {
  it("does not block the sidecar's reports", async () => {
    await core.as().getAccess({ clientId: app.clientId, externalUserId: 'ada' })
    const blocker = await core.sql.connect()
    await blocker.query('begin')
    await blocker.query(
      'select from balances where app_id = (select app_id from clients where client_id = $1) for update',
      [app.clientId],
    )
    const waiting = sidecar.reserve(app, 'ada')
    await until(async () => ((await core.sql.query(lockWaits)).rowCount ?? 0) > 0)
    await sidecar.heartbeat()
    await blocker.query('commit')
    blocker.release()
    expect(await waiting).toMatchObject({ refusal: '' })
  })
})

describe('report', () => {
  it('moves bounds from the lease to what is pending, once per batch', async () => {
    const { lease } = await lend({ boundUsdAttos: attos(0.1) })
    const calls = [1, 2].map((sequence) =>
      authorisation({ sequence, bound: 0.1, more: { leaseId: lease?.id ?? '' } }),
    )
    const { through, rate } = await sidecar.report(app, 'ada', { calls })
    expect(through).toBe(1n)
    expect(rate).toMatchObject({ usdAttosPerEth: attos(3000), raised: false })
    await sidecar.report(app, 'ada', { calls, batch: 1n })
    await sidecar.report(app, 'ada', { calls, batch: 3n })
    expect(await money()).toEqual({ balance: 5, lent: 0.2, pending: 0.2 })
  })

  it('accepts the most extreme values that a sidecar may send', async () => {
    const extreme = {
      sessionId: '~'.repeat(128),
      sequence: 2n ** 53n - 1n,
      app: '\uffff'.repeat(256),
      boundUsdAttos: `${2n ** 53n - 1n}000000000`,
      ageMillis: 2 ** 31 - 1,
    }
    const times = [-62_135_596_800n, 253_402_300_799n]
    const calls = times.map((signedSeconds) =>
      authorisation({ more: { ...extreme, signedSeconds, signedNanos: 999_999_999 } }),
    )
    const refused = [{ sessionId: extreme.sessionId, sequence: extreme.sequence }]
    expect((await sidecar.report(app, 'ada', { calls, refused })).through).toBe(1n)
    expect((await sidecar.report(app, 'ada', { calls })).through).toBe(2n)
  })

  it('dates a call by its age, even if the report had to wait', async () => {
    await sidecar.report(app, 'ada', { calls: [authorisation({ more: { ageMillis: 30_000 } })] })
    const { rows } = await core.sql.query<{ authorised_at: Date }>(
      'select a.authorised_at from authorisations a join clients c on c.app_id = a.app_id and c.client_id = $1',
      [app.clientId],
    )
    expect(rows).toEqual([{ authorised_at: new Date(core.clock.now().getTime() - 30_000) }])
  })

  it('takes back a lease', async () => {
    const { lease } = await lend({ boundUsdAttos: attos(0.1) })
    const leaseId = lease?.id ?? ''
    await sidecar.report(app, 'ada', {
      calls: [authorisation({ more: { leaseId } })],
      returned: [{ leaseId, usedUsdAttos: attos(0.1) }],
    })
    expect(await money()).toEqual({ balance: 5, lent: 0, pending: 0.1 })
    expect((await lend()).lease?.id).not.toBe(leaseId)
  })

  it('rejects another process with the same id while the first is alive', async () => {
    const other = { id: sidecar.sidecar.id, instance: randomUUID() }
    expect(await outcome(core.as().report({ sidecar: other }))).toBe('CONFLICT')
    expect(await outcome(core.as().lend({ sidecar: other, calls: [lendCall(app, 'ada')] }))).toBe(
      'CONFLICT',
    )
    core.clock.advance(3 * second + 1)
    expect(await outcome(core.as().report({ sidecar: other }))).toBe('OK')
    expect(await outcome(sidecar.heartbeat())).toBe('CONFLICT')
  })

  it('accepts another process with the same id after the clock was set back', async () => {
    const at = core.clock.now()
    core.clock.advance(600 * second)
    await sidecar.heartbeat()
    core.clock.set(at)
    const other = { id: sidecar.sidecar.id, instance: randomUUID() }
    expect(await outcome(core.as().report({ sidecar: other }))).toBe('OK')
  })
})

describe('an orphan without a remaining amount', () => {
  it('is closed', async () => {
    const { lease } = await lend({ boundUsdAttos: attos(0.1) })
    await sidecar.report(app, 'ada', {
      calls: [authorisation({ bound: 0.4, more: { leaseId: lease?.id ?? '' } })],
    })
    expect(await money()).toMatchObject({ lent: 0, pending: 0.4 })
    core.clock.advance(1_000 * second)
    const leases = () => core.sql.query(`select 1 from leases where id = $1`, [lease?.id])
    await until(async () => (await leases()).rowCount === 0)
    expect(await money()).toEqual({ balance: 5, lent: 0, pending: 0 })
  })
})
