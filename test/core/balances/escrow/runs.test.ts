import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createLosses } from '../../../../core/balances/escrow/losses.ts'
import { createRelease } from '../../../../core/balances/escrow/release.ts'
import { escrowStore } from '../../../../core/balances/escrow/store.ts'
import { findHeldCalls, findHolders } from '../../../../core/balances/escrow/stores/hold-store.ts'
import { createLedger } from '../../../../core/balances/ledger/ledger.ts'
import { insertAdjustment } from '../../../../core/balances/accounts/store.ts'
import { type Pool, createPool } from '../../../../core/lib/sql.ts'
import { clockBy } from '../../../../core/shared/database-clock.ts'
import { SessionCalls } from '../../../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import {
  type TestApp,
  type TestCore,
  day,
  observedRate,
  outcome,
  second,
  startTestCore,
} from '../../support.ts'
import { type TestSidecar, authorisation, startSidecar } from './granting.ts'
import { emptyEscrow, escrowUser } from './support.ts'

/** Tests calls of a session with successive numbers, which a sidecar reports together. */

let core: TestCore
let pool: Pool
let app: TestApp
let ada: Awaited<ReturnType<typeof escrowUser>>
let sidecar: TestSidecar
beforeAll(async () => {
  // With these settings, core's own rounds end nothing.
  core = await startTestCore({
    ...observedRate,
    RATE_MAX_AGE_SECONDS: '86400',
    EVENT_LAG_SECONDS: '3600',
    HOLD_MAX_SECONDS: '86400',
  })
  pool = createPool({ url: core.databaseUrl, max: 2, name: 'test', statementTimeoutMs: 10_000 })
  pool.on('error', () => {})
})
afterAll(async () => {
  await pool.end()
  await core.stop()
})
beforeEach(async () => {
  await emptyEscrow(core)
  core.clock.advance(2 * day)
  const observedAt = new Date(core.clock.now().getTime() - second).toISOString()
  await core.as().recordRate({ usdPerEth: '3000', observedAt })
  app = await core.newApp({ starterUsdMicros: '1000000' })
  ada = await escrowUser(core, app)
  sidecar = await startSidecar(core.as())
})

interface Calls {
  readonly from?: number
  /** Bound of each call in dollars. */
  readonly bounds: readonly number[]
  readonly leaseId?: string
  /** Ages of the first and the last decision, in milliseconds. */
  readonly ages?: readonly [number, number]
  /** Delay of the signing times, in milliseconds. */
  readonly shiftMs?: number
}

/** Returns calls one second apart, starting with number 0 at the start of the test. */
function callsOf({
  from = 0,
  bounds,
  leaseId = '',
  ages = [0, 0],
  shiftMs = 0,
}: Calls): SessionCalls {
  const micros = bounds.map((_, n) => microsAt(from + n, shiftMs))
  const [first = 0n, last = 0n] = [micros.at(0), micros.at(-1)]
  const nanosOf = (micro: bigint): number => Number(micro % 1_000_000n) * 1_000
  return SessionCalls.fromPartial({
    leaseId,
    sessionId: 's1',
    sequence: BigInt(from + bounds.length - 1),
    signedMicros: micros,
    boundUsdNanos: bounds.map((bound) => BigInt(Math.round(bound * 1e9))),
    firstSeconds: first / 1_000_000n,
    firstNanos: nanosOf(first),
    lastSeconds: last / 1_000_000n,
    lastNanos: nanosOf(last),
    type: 'live',
    firstAgeMillis: ages[0],
    lastAgeMillis: ages[1],
  })
}

const msOf = (number: number): number => number * second
const microsAt = (number: number, shiftMs: number): bigint =>
  ada.authorisation({ sequence: number, ms: msOf(number) + shiftMs }).signedMicros
const ticket = (number: number, cost: number, shiftMs = 0) => ({
  sequence: number,
  ms: msOf(number) + shiftMs,
  cost,
})
const report = (calls: Calls) => sidecar.report(app, 'ada', { sessions: [callsOf(calls)] })

async function round(lostTickets: 'write_off' | 'charge' = 'write_off'): Promise<void> {
  await createRelease({
    pool,
    store: escrowStore,
    accounts: createLedger(),
    losses: createLosses({ store: escrowStore, insertAdjustment, lostTickets }),
    leaseSeconds: 30,
    lagSeconds: 20,
    holdMaxSeconds: 900,
    time: { ...clockBy(core.clock.now), jumpedAt: () => new Date(0) },
    onReleased: () => {},
  }).round()
}

/** Advances the clock and the sidecar's stream clock. */
async function passTime(seconds: number): Promise<void> {
  core.clock.advance(seconds * second)
  await escrowStore.advanceClocks(pool, new Map([[sidecar.sidecar.id, core.clock.now()]]))
}

describe('calls that are reported together', () => {
  it('are one authorisation, and are counted separately', async () => {
    await report({ bounds: [0.1, 0.2, 0.3] })
    expect(await ada.authorisations()).toEqual(['2 pending'])
    expect(await ada.account()).toMatchObject({ balance: 1, pending: 0.6 })
    expect(await ada.session()).toMatchObject({ authorised: 3, ticketed: 0 })
    const [holder] = await findHolders(pool, {
      appId: ada.user.appId,
      userId: null,
      after: null,
      limit: 1,
    })
    expect(holder).toMatchObject({ pendingCount: 3n })
    expect(await findHeldCalls(pool, holder ? [holder] : [], 10)).toMatchObject([
      { sequence: 2n, calls: 3, bound: 600_000_000_000_000_000n },
    ])
  })

  it('are settled separately by their tickets, each by its own bound', async () => {
    await report({ bounds: [0.1, 0.2, 0.3] })
    await ada.book(ticket(1, 0.19))
    expect(await ada.account()).toMatchObject({ pending: 0.4, consumed: 0.19 })
    await ada.book(ticket(2, 0.28), ticket(0, 0.09))
    expect(await ada.account()).toMatchObject({ balance: 0.44, pending: 0, consumed: 0.56 })
    expect(await ada.authorisations()).toEqual([])
    expect(await ada.session()).toMatchObject({ authorised: 3, ticketed: 3, lost: 0, late: 0 })
  })

  it('are not settled by a ticket with the same number and another time', async () => {
    await report({ bounds: [0.1, 0.2] })
    await ada.book(ticket(1, 0.1, 5))
    expect(await ada.account()).toMatchObject({ pending: 0.3 })
    await ada.book(ticket(1, 0.1))
    expect(await ada.account()).toMatchObject({ pending: 0.1 })
  })

  it('move the stream clock to the first call until the last ticket has come', async () => {
    const at = core.clock.now()
    const ago = (ms: number) => new Date(at.getTime() - ms)
    await report({ bounds: [0.1, 0.1], ages: [9_000, 1_000] })
    const clock = async () =>
      (await core.sql.query<{ at: Date }>('select booked_through as at from sidecar_clocks')).rows
    await ada.book(ticket(1, 0.1))
    expect(await clock()).toEqual([{ at: ago(9_000) }])
    await ada.book(ticket(0, 0.1))
    expect(await clock()).toEqual([{ at: ago(1_000) }])
  })

  it('lower their lease by the sum of their bounds', async () => {
    const { lease } = await sidecar.lend(app, 'ada', { boundUsdAttos: '50000000000000000' })
    await report({ bounds: [0.05, 0.06], leaseId: lease?.id ?? '' })
    expect(await ada.account()).toMatchObject({ balance: 1, lent: 0.09, pending: 0.11 })
  })

  it('hold nothing for tickets that came before the report', async () => {
    await sidecar.lend(app, 'ada', { boundUsdAttos: '50000000000000000' })
    await ada.book(ticket(0, 0.05), ticket(2, 0.07))
    expect(await ada.earlyTickets()).toBe(2)
    await report({ bounds: [0.05, 0.06, 0.07] })
    expect(await ada.earlyTickets()).toBe(0)
    expect(await ada.account()).toMatchObject({ pending: 0.06, consumed: 0.12 })
    expect(await ada.session()).toMatchObject({ authorised: 3, ticketed: 2 })
    await ada.book(ticket(1, 0.06))
    expect(await ada.account()).toMatchObject({ pending: 0, consumed: 0.18 })
  })

  it('count early tickets that cost nothing', async () => {
    await sidecar.lend(app, 'ada', { boundUsdAttos: '50000000000000000' })
    await ada.book(ticket(0, 0), ticket(1, 0.05))
    await report({ bounds: [0.05, 0.06] })
    expect(await ada.session()).toMatchObject({ authorised: 2, ticketed: 2 })
    expect(await ada.account()).toMatchObject({ pending: 0 })
  })

  it('wait for their prices separately', async () => {
    const shiftMs = -30 * day
    await report({ bounds: [0.1, 0.2, 0.3], shiftMs })
    await ada.book(ticket(1, 0.19, shiftMs))
    expect(await ada.authorisations()).toEqual(['0 pending', '1 pending ticketed', '2 pending'])
    expect(await ada.account()).toMatchObject({ pending: 0.6, consumed: 0 })
  })
})

describe('calls that were reported together and wait for a price', () => {
  it('are due when the last call is due', async () => {
    const shiftMs = -30 * day
    await report({ bounds: [0.1, 0.2, 0.3], ages: [15_000, 0], shiftMs })
    await ada.book(ticket(1, 0.19, shiftMs))
    await passTime(10)
    await round()
    expect(await ada.authorisations()).toEqual(['0 pending', '1 pending ticketed', '2 pending'])
    await passTime(10)
    await round()
    expect(await ada.authorisations()).toEqual(['0 lost', '1 pending ticketed', '2 released'])
  })
})

describe('calls that were reported together and have no tickets', () => {
  it('are lost except for the last, which is not proven', async () => {
    await report({ bounds: [0.1, 0.2, 0.3] })
    await ada.book(ticket(1, 0.2))
    await passTime(21)
    await round()
    expect(await ada.authorisations()).toEqual(['0 lost', '2 released'])
    expect(await ada.account()).toMatchObject({ pending: 0, consumed: 0.2 })
    expect(await ada.session()).toMatchObject({ lost: 1, released: 1, ticketed: 1 })
  })

  it('are all lost when the last ticket has come, or a later call', async () => {
    await report({ bounds: [0.1, 0.2] })
    await report({ from: 2, bounds: [0.1, 0.1] })
    await ada.book(ticket(3, 0.1))
    await passTime(21)
    await round()
    expect(await ada.authorisations()).toEqual(['0 lost', '1 lost', '2 lost'])
  })

  it('are not due before the last call is due', async () => {
    await report({ bounds: [0.1, 0.2], ages: [9_000, 0] })
    await passTime(19)
    await round()
    expect(await ada.authorisations()).toEqual(['1 pending'])
    await passTime(1)
    await round()
    expect(await ada.authorisations()).toEqual(['0 lost', '1 released'])
  })

  it('are charged by their own bounds, and given back when a ticket comes late', async () => {
    await report({ bounds: [0.1, 0.2, 0.3] })
    await passTime(21)
    await round('charge')
    expect(await ada.account()).toMatchObject({ balance: 0.7, pending: 0 })
    await ada.book(ticket(1, 0.15))
    expect(await ada.account()).toMatchObject({ balance: 0.75, consumed: 0.15 })
    expect(await ada.authorisations()).toEqual(['0 charged', '2 released'])
  })
})

describe('a report by session', () => {
  const whole = (): SessionCalls => callsOf({ bounds: [0.1, 0.1] })
  const bad: readonly [string, () => Partial<SessionCalls>][] = [
    ['no calls', () => ({ signedMicros: [], boundUsdNanos: [] })],
    ['fewer bounds than calls', () => ({ boundUsdNanos: [1n] })],
    ['more calls than numbers', () => ({ sequence: 0n })],
    ['a bound of zero', () => ({ boundUsdNanos: [0n, 1n] })],
    ['an invalid time', () => ({ signedMicros: [0n, 10n ** 18n] })],
    ['an invalid last second', () => ({ lastSeconds: 10n ** 12n })],
    ['several approximate calls', () => ({ approximate: true })],
    ['a negative age', () => ({ firstAgeMillis: -1 })],
    [
      'too many calls',
      () => ({
        sequence: 1_000n,
        signedMicros: Array.from({ length: 101 }, () => 0n),
        boundUsdNanos: Array.from({ length: 101 }, () => 1n),
      }),
    ],
  ]
  it.each(bad)('with %s is rejected and holds nothing', async (_, change) => {
    const refused = sidecar.report(app, 'ada', { sessions: [{ ...whole(), ...change() }] })
    expect(await outcome(refused)).toBe('REQUEST_INVALID')
    expect(await ada.account()).toMatchObject({ pending: 0 })
  })

  it('is required: a report by call, from an older sidecar, is rejected', async () => {
    const old = core.as().report({
      sidecar: sidecar.sidecar,
      number: 1n,
      users: [
        {
          clientId: app.clientId,
          externalUserId: 'ada',
          authorisations: [authorisation()],
          refused: [],
          returned: [],
          sessions: [],
        },
      ],
    })
    await expect(old).rejects.toThrow(/calls are reported by session; upgrade this sidecar/)
  })
})

describe('a session of several sidecars', () => {
  it('has unheard time while another sidecar has a lease', async () => {
    const other = await startSidecar(core.as())
    const asked = () => other.lend(app, 'ada', { sessionId: 'new', sequence: 9n })
    expect(Number((await asked()).unheardMs)).toBe(0)
    await sidecar.lend(app, 'ada', { boundUsdAttos: '50000000000000000' })
    expect(Number((await asked()).unheardMs)).toBe(2_000)
  })

  it('is listed for a process that reports its calls and did not begin it', async () => {
    const other = await startSidecar(core.as())
    await report({ bounds: [0.05] })
    const sessions = [callsOf({ from: 1, bounds: [0.05] })]
    expect((await other.report(app, 'ada', { sessions })).sharedSessions).toEqual(['s1'])
    expect((await other.heartbeat()).sharedSessions).toEqual([])
  })

  const ask = async (from: TestSidecar) => {
    const answer = await from.lend(app, 'ada', { sessionId: 's1', sequence: 9n })
    return Number(answer.unheardMs)
  }

  it('has unheard time since the oldest unreported call, until the other process knows', async () => {
    const other = await startSidecar(core.as())
    await sidecar.lend(app, 'ada', { boundUsdAttos: '50000000000000000' })
    await report({ bounds: [0.05] })
    const beat = (more: { unreportedMs?: bigint; sharedThrough?: bigint }) =>
      core.as().report({ sidecar: sidecar.sidecar, number: 0n, ...more })
    await beat({ unreportedMs: 8_000n })
    expect(await ask(other)).toBe(10_000)
    core.clock.advance(16 * second)
    const { sharedSessions, sharedThrough } = await beat({ unreportedMs: 8_000n })
    expect(sharedSessions).toEqual(['s1'])
    expect(await ask(other)).toBe(10_000)
    await beat({ unreportedMs: 8_000n, sharedThrough })
    expect(await ask(other)).toBe(2_000)
  })
})
