import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { escrowStore } from '../../../../core/balances/escrow/store.ts'
import {
  type TestApp,
  type TestCore,
  begin,
  day,
  observedRate,
  startTestCore,
} from '../../support.ts'
import { attos, authorisation, startSidecar } from './granting.ts'
import { escrowUser } from './support.ts'

let core: TestCore
let app: TestApp
let ada: Awaited<ReturnType<typeof escrowUser>>
beforeAll(async () => {
  core = await startTestCore(observedRate)
})
afterAll(() => core.stop())
beforeEach(async () => {
  app = await core.newApp({ starterUsdMicros: '1000000' })
  ada = await escrowUser(core, app)
})

describe('a ticket that comes after the report of its call', () => {
  it('removes its authorisation from what is pending and is charged', async () => {
    await ada.authorise({ sequence: 0, ms: 0, bound: 0.1 })
    await ada.authorise({ sequence: 1, ms: 1000, bound: 0.2 })
    expect(await ada.account()).toMatchObject({ balance: 1, pending: 0.3 })
    await ada.book({ sequence: 0, ms: 0, cost: 0.09 })
    expect(await ada.account()).toMatchObject({ balance: 0.91, pending: 0.2, consumed: 0.09 })
    expect(await ada.authorisations()).toEqual(['1 pending'])
    expect(await ada.session()).toMatchObject({ authorised: 2, ticketed: 1, lost: 0, late: 0 })
  })

  it('moves the stream clock of its sidecar forward, never back', async () => {
    await ada.authorise({ sequence: 0, ms: 0 }, { sidecarId: 'clock' })
    await ada.authorise({ sequence: 1, ms: 5000 }, { sidecarId: 'clock' })
    core.clock.set(new Date(ada.begin + 5000))
    await ada.book({ sequence: 1, ms: 5000 })
    await ada.book({ sequence: 0, ms: 0 })
    const { rows } = await core.sql.query(
      `select booked_through from sidecar_clocks where sidecar_id = 'clock'`,
    )
    expect(rows).toEqual([
      { booked_through: ada.authorisation({ sequence: 1, ms: 5000 }).authorisedAt },
    ])
  })

  it('settles once, even if the broker replays it', async () => {
    await ada.authorise({ sequence: 0, ms: 0 })
    await ada.authorise({ sequence: 0, ms: 0 })
    const event = ada.event({ sequence: 0, ms: 0 })
    await ada.ingest(event, event)
    await ada.ingest(event)
    expect(await ada.authorisations()).toEqual(['0 pending'])
    expect(await ada.account()).toMatchObject({ balance: 0.9, pending: 0.1 })
  })

  it('settles replays of a sequence number separately, by the time of the state', async () => {
    await ada.authorise({ sequence: 3, ms: 0, bound: 0.1 })
    await ada.authorise({ sequence: 3, ms: 7, bound: 0.2 })
    await ada.book({ sequence: 3, ms: 7 })
    expect(await ada.account()).toMatchObject({ pending: 0.1 })
    await ada.book({ sequence: 3, ms: 8 })
    expect(await ada.account()).toMatchObject({ pending: 0.1, balance: 0.8 })
  })

  it('settles as many equal calls as there are equal tickets', async () => {
    for (const bound of [0.1, 0.2, 0.3]) await ada.authorise({ sequence: 3, ms: 0, bound })
    await ada.book({ sequence: 3, ms: 0 }, { sequence: 3, ms: 0 })
    expect(await ada.account()).toMatchObject({ pending: 0.3, balance: 0.8 })
  })

  it('settles the nearest approximate call with its number within five seconds', async () => {
    await ada.authorise({ sequence: 3, ms: 0, bound: 0.1 }, { isApproximate: true })
    await ada.authorise({ sequence: 3, ms: 2000, bound: 0.2 }, { isApproximate: true })
    await ada.book({ sequence: 3, ms: 9000 })
    expect(await ada.account()).toMatchObject({ pending: 0.3 })
    await ada.book({ sequence: 3, ms: 2300 })
    expect(await ada.account()).toMatchObject({ pending: 0.1 })
    await ada.book({ sequence: 4, ms: 0 })
    expect(await ada.account()).toMatchObject({ pending: 0.1 })
  })

  it('settles no call of another user', async () => {
    const bea = await escrowUser(core, app, 'bea')
    await ada.authorise({ sequence: 0, ms: 0 })
    await bea.book({ sequence: 0, ms: 0 })
    expect(await ada.account()).toMatchObject({ balance: 1, pending: 0.1 })
  })
})

describe('a ticket of an unreported call', () => {
  it('is charged and not kept if its user has no money lent', async () => {
    await ada.authorise({ sequence: 5, ms: 0 })
    await ada.book({ sequence: 0, ms: 0 })
    expect(await ada.earlyTickets()).toBe(0)
    expect(await ada.account()).toMatchObject({ balance: 0.9, pending: 0.1 })
  })

  it('bounds the next call of a session that is known only by its tickets', async () => {
    const { sessionId, appId, userId, signedMicros } = ada.authorisation({ sequence: 3, ms: 0 })
    await ada.book({ sequence: 3, ms: 0 })
    const join = (sequence: bigint) =>
      escrowStore.joinSessions(core.sql, [{ appId, userId, sessionId, sequence }], {
        instance: randomUUID(),
        at: begin,
      })
    const prior = { sequence: 3n, seconds: signedMicros / 1_000_000n, nanos: 0 }
    expect(await join(4n)).toEqual([{ prior, isShared: true, sharedAt: null }])
    expect(await join(3n)).toEqual([{ prior: null, isShared: true, sharedAt: null }])
  })

  it('waits for the report while a lease is open', async () => {
    await ada.lend(0.5, 30_000)
    await ada.book({ sequence: 0, ms: 0 })
    expect(await ada.earlyTickets()).toBe(1)
    expect(await ada.account()).toMatchObject({ balance: 0.9, lent: 0.5 })
  })

  it('lowers orphans by its cost, at most to zero', async () => {
    await ada.lend(0.15, -1)
    await ada.book({ sequence: 0, ms: 0, cost: 0.1 })
    expect(await ada.account()).toMatchObject({ balance: 0.9, lent: 0.05 })
    await ada.book({ sequence: 1, ms: 1, cost: 0.1 })
    expect(await ada.account()).toMatchObject({ balance: 0.8, lent: 0 })
    expect(await ada.earlyTickets()).toBe(0)
  })
})

describe('a ticket without a price', () => {
  // A different time for each test, because rates stay.
  let unrated = -30 * day
  beforeEach(() => {
    unrated -= day
  })

  it('keeps its authorisation pending until it is priced', async () => {
    await ada.authorise({ sequence: 0, ms: unrated, bound: 0.2 })
    await ada.book({ sequence: 0, ms: unrated, cost: 0.1 })
    expect(await ada.authorisations()).toEqual(['0 pending ticketed'])
    expect(await ada.account()).toMatchObject({ balance: 1, pending: 0.2 })
    await price()
    expect(await ada.authorisations()).toEqual([])
    expect(await ada.account()).toMatchObject({ balance: 0.9, pending: 0 })
    expect(await ada.session()).toMatchObject({ authorised: 1, ticketed: 1 })
  })

  it('holds money at the last rate and the margin if nothing was held', async () => {
    await ada.book({ sequence: 0, ms: unrated, cost: 0.1 })
    expect(await ada.account()).toMatchObject({ balance: 1, pending: 0.11 })
    await price()
    expect(await ada.account()).toMatchObject({ balance: 0.9, pending: 0 })
  })

  it('is not confused with another ticket of the same call', async () => {
    await ada.authorise({ sequence: 0, ms: unrated, bound: 0.2 })
    await ada.book({ sequence: 0, ms: unrated })
    await ada.book({ sequence: 0, ms: unrated })
    expect(await ada.authorisations()).toEqual(['0 pending ticketed', '0 pending ticketed'])
    await price()
    expect(await ada.authorisations()).toEqual([])
    expect(await ada.account()).toMatchObject({ balance: 0.8, pending: 0 })
  })

  async function price(): Promise<void> {
    const observedAt = new Date(core.clock.now().getTime() + unrated - 1000).toISOString()
    await core.as().recordRate({ usdPerEth: '3000', observedAt })
    await expect.poll(async () => (await ada.account())['balance'], { timeout: 10_000 }).not.toBe(1)
  }
})

describe('a ticket that comes after its call has ended', () => {
  const end = (state: string, ms = 30 * day) =>
    core.sql.query(
      `with ended as (
         update authorisations set state = $1, state_at = $2 where user_id = $3 returning bound_attos, session_id
       ), counted as (
         update authorised_sessions set ${state}_count = 1, ${state}_attos = (select sum(bound_attos) from ended)
         where user_id = $3
       )
       update balances set pending_attos = 0, late_until = $4 where user_id = $3`,
      [state, core.clock.now(), ada.user.userId, new Date(core.clock.now().getTime() + ms)],
    )

  it.each(['lost', 'released'])('is charged and counted late: %s', async (state) => {
    await ada.authorise({ sequence: 0, ms: 0, bound: 0.2 })
    await end(state)
    await ada.book({ sequence: 0, ms: 0, cost: 0.1 })
    expect(await ada.account()).toMatchObject({ balance: 0.9, pending: 0 })
    expect(await ada.authorisations()).toEqual([])
    expect(await ada.session()).toMatchObject({ [state]: 0, late: 1, ticketed: 1 })
  })

  it('gives the estimate back before it is charged', async () => {
    await ada.authorise({ sequence: 0, ms: 0, bound: 1 })
    await core.sql.query(`update balances set pending_attos = 0 where user_id = $1`, [
      ada.user.userId,
    ])
    await core.as().createAdjustment({
      clientId: app.clientId,
      externalUserId: 'ada',
      amountUsdMicros: '-1000000',
    })
    await end('charged')
    await ada.book({ sequence: 0, ms: 0, cost: 0.4 })
    expect(await ada.account()).toMatchObject({ balance: 0.6, consumed: 0.4 })
  })
})

describe('reports and tickets of one sidecar', () => {
  it('match in either order with the same result', async () => {
    const rpcs = core.as()
    const sidecar = await startSidecar(rpcs)
    await sidecar.heartbeat()
    const { lease } = await sidecar.lend(app, 'ada', {
      boundUsdAttos: attos(0.01),
      spendingUsdAttos: attos(0.01),
    })
    const at = Math.floor(core.clock.now().getTime() / 1000)
    const call = (sequence: number) =>
      authorisation({
        sequence,
        at,
        bound: 0.02,
        more: { leaseId: lease?.id ?? '', sessionId: 's1', signedNanos: 250_123_789 },
      })
    // The nanoseconds of a state and of its event count as the same microsecond, in any time zone.
    const event = (sequence: number) => ada.event({ sequence, ms: 0, cost: 0.01 })
    await ada.ingest(event(0))
    expect(await ada.earlyTickets()).toBe(1)
    await sidecar.report(app, 'ada', { calls: [call(0), call(1)] })
    expect(await ada.authorisations()).toEqual(['1 pending'])
    await ada.ingest(event(1))
    expect(await ada.authorisations()).toEqual([])
    expect(await ada.earlyTickets()).toBe(0)
    expect(await ada.account()).toMatchObject({ pending: 0, balance: 0.98 })
    expect(await ada.session()).toMatchObject({ authorised: 2, ticketed: 2 })
    const { rows } = await core.sql.query(
      `select sum(amount_attos - used_attos)::text as rest from leases where user_id = $1`,
      [ada.user.userId],
    )
    expect(rows).toEqual([{ rest: String(BigInt(lease?.amountUsdAttos ?? '0') - 4n * 10n ** 16n) }])
  })
})

describe('two concurrent collectors', () => {
  it('settle each call once', async () => {
    const numbers = Array.from({ length: 20 }, (_, n) => n)
    for (const sequence of numbers) await ada.authorise({ sequence, ms: sequence, bound: 0.01 })
    const events = numbers.map((sequence) => ada.event({ sequence, ms: sequence, cost: 0.01 }))
    const other = await core.startAnother()
    await Promise.all([
      ada.ingest(...events.slice(0, 12)),
      other.as().ingestEvents({ envelopes: events.slice(8) }),
    ])
    expect(await ada.authorisations()).toEqual([])
    expect(await ada.account()).toMatchObject({ balance: 0.8, pending: 0 })
    expect(await ada.session()).toMatchObject({ authorised: 20, ticketed: 20, late: 0 })
  })
})
