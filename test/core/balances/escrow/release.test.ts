import { array, assert, asyncProperty, integer, record } from 'fast-check'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { connectCore } from '../../../../deploy/cli/client.ts'
import { insertAdjustment } from '../../../../core/balances/accounts/store.ts'
import { createLedger } from '../../../../core/balances/ledger/ledger.ts'
import { createLosses } from '../../../../core/balances/escrow/losses.ts'
import { type ReleaseSums, createRelease } from '../../../../core/balances/escrow/release.ts'
import { escrowStore } from '../../../../core/balances/escrow/store.ts'
import { clockBy } from '../../../../core/shared/database-clock.ts'
import { createPool, type Pool, tx } from '../../../../core/lib/sql.ts'
import {
  type TestApp,
  type TestCore,
  day,
  observedRate,
  second,
  serviceToken,
  startTestCore,
} from '../../support.ts'
import { emptyEscrow, escrowUser, usd } from './support.ts'

let core: TestCore
let pool: Pool
let app: TestApp
let ada: Awaited<ReturnType<typeof escrowUser>>
let sidecarId: string
let sidecars = 0
beforeAll(async () => {
  // With these settings, core's own rounds end nothing.
  core = await startTestCore({
    ...observedRate,
    RATE_MAX_AGE_SECONDS: '86400',
    EVENT_LAG_SECONDS: '3600',
    HOLD_MAX_SECONDS: '86400',
  })
  pool = createPool({ url: core.databaseUrl, max: 6, name: 'test', statementTimeoutMs: 10_000 })
  pool.on('error', () => {})
})
afterAll(async () => {
  await pool.end()
  await core.stop()
})
beforeEach(async () => {
  // Deletes the rows of other tests, which could be due.
  await emptyEscrow(core)
  core.clock.advance(2 * day)
  const observedAt = new Date(core.clock.now().getTime() - second).toISOString()
  await core.as().recordRate({ usdPerEth: '3000', observedAt })
  app = await core.newApp({ starterUsdMicros: '1000000' })
  ada = await escrowUser(core, app)
  sidecarId = `sidecar-${sidecars++}`
})

const sums: ReleaseSums[] = []

/** Returns a release as a core with these settings runs it. */
function releaseOf(lostTickets: 'write_off' | 'charge' = 'write_off', jumpedAt = new Date(0)) {
  return createRelease({
    pool,
    store: escrowStore,
    accounts: createLedger(),
    losses: createLosses({ store: escrowStore, insertAdjustment, lostTickets }),
    leaseSeconds: 30,
    lagSeconds: 20,
    holdMaxSeconds: 900,
    time: { ...clockBy(core.clock.now), jumpedAt: () => jumpedAt },
    onReleased: (sum) => sums.push(sum),
  })
}

const round = (lostTickets?: 'write_off' | 'charge') => releaseOf(lostTickets).round()
const at = (seconds: number): void => core.clock.set(new Date(ada.begin + seconds * second))

/** Authorises calls of one session, one second apart. */
async function authorise(...numbers: number[]): Promise<void> {
  for (const n of numbers)
    await ada.authorise({ sequence: n, ms: n * second, bound: 0.1 }, { sidecarId })
}
/** Books tickets, each after its call. */
function book(...numbers: number[]) {
  const latest = Math.max(...numbers)
  if (core.clock.now().getTime() < ada.begin + latest * second) at(latest)
  return ada.book(...numbers.map((n) => ({ sequence: n, ms: n * second, cost: 0.05 })))
}
const prove = (...numbers: number[]) =>
  escrowStore.prove(
    core.sql,
    numbers.map((n) => ({ ...ada.user, sessionId: 's1', sequence: BigInt(n) })),
  )

/** Returns what `verify` finds in the app. */
async function differences(): Promise<unknown[]> {
  const books = connectCore({ target: core.core.target, token: serviceToken })
  try {
    const found: unknown[] = []
    for await (const { difference } of books.books.verifyBooks({ clientId: app.clientId }))
      if (difference) found.push(difference)
    return found
  } finally {
    books.close()
  }
}

/** Runs SQL that triggers would reject. */
const withoutTriggers = (text: string) =>
  tx(pool, async (db) => {
    await db.query('set local session_replication_role = replica')
    await db.query(text)
  })

describe('a call without a ticket', () => {
  it('is lost if it is proven and the stream has passed it', async () => {
    await authorise(0, 1, 21)
    await prove(0)
    await book(1)
    at(60)
    await round()
    expect(await ada.authorisations()).toEqual(['0 pending', '21 pending'])
    await book(21)
    await round()
    expect(await ada.authorisations()).toEqual(['0 lost'])
    expect(await ada.account()).toMatchObject({ pending: 0, balance: 0.9, lent: 0 })
    expect(await ada.session()).toMatchObject({ authorised: 3, ticketed: 2, lost: 1, released: 0 })
    expect(sums.at(-1)).toMatchObject({ lost: { count: 1, amount: 10n ** 17n } })
  })

  it('is released if it is not proven', async () => {
    await authorise(0, 21)
    await book(21)
    await round()
    expect(await ada.authorisations()).toEqual(['0 released'])
    expect(await ada.account()).toMatchObject({ pending: 0, balance: 0.95 })
  })

  it('stays held while its stream is stalled and calls continue', async () => {
    for (const minute of [0, 10, 20, 30, 40]) {
      await ada.authorise({ sequence: minute, ms: minute * 60 * second }, { sidecarId })
      at(minute * 60)
      await round()
    }
    expect(await ada.account()).toMatchObject({ pending: 0.5 })
    // The stream of another sidecar does not count for this one.
    await ada.authorise({ sequence: 90, ms: 2_500_000 }, { sidecarId: 'other' })
    await ada.book({ sequence: 90, ms: 2_500_000 })
    await round()
    expect(await ada.account()).toMatchObject({ pending: 0.5 })
  })

  it('is released when its sidecar has allowed nothing for HOLD_MAX_SECONDS', async () => {
    await authorise(0, 2)
    at(901)
    await round()
    expect(await ada.account()).toMatchObject({ pending: 0.2 })
    at(902)
    await round()
    expect(await ada.authorisations()).toEqual(['0 released', '2 released'])
    expect(await ada.account()).toMatchObject({ pending: 0 })
  })

  it('stays held while its ticket waits for a price', async () => {
    await ada.authorise({ sequence: 0, ms: -60 * day }, { sidecarId })
    await ada.book({ sequence: 0, ms: -60 * day })
    at(5_000)
    await round()
    expect(await ada.authorisations()).toEqual(['0 pending ticketed'])
  })

  it('is charged by its bound with LOST_TICKETS=charge, and given back when the ticket comes', async () => {
    await authorise(0, 21)
    await prove(0)
    await book(21)
    await round('charge')
    expect(await ada.authorisations()).toEqual(['0 charged'])
    expect(await ada.account()).toMatchObject({ pending: 0, balance: 0.85, consumed: 0.05 })
    expect(await ada.session()).toMatchObject({ charged: 1, lost: 0 })
    await book(0)
    expect(await ada.account()).toMatchObject({ balance: 0.9, consumed: 0.1, overage: 0 })
    expect(await ada.session()).toMatchObject({ charged: 0, late: 1, ticketed: 2 })
    const { rows } = await core.sql.query(
      `select amount_attos, author from adjustments where user_id = $1 order by created_at, amount_attos`,
      [ada.user.userId],
    )
    expect(rows).toEqual([
      { amount_attos: '-100000000000000000', author: 'tollgate' },
      { amount_attos: '100000000000000000', author: 'tollgate' },
    ])
  })

  it('returns what its estimate drew and cancels the unpaid overage', async () => {
    await ada.authorise({ sequence: 0, ms: 0, bound: 0.4 }, { sidecarId })
    await ada.authorise({ sequence: 1, ms: second, bound: 0.4 }, { sidecarId })
    await authorise(21)
    await prove(0, 1)
    // The ticket costs more than was held, which leaves 0.5 for estimates of 0.8.
    at(21)
    await ada.book({ sequence: 21, ms: 21 * second, cost: 0.5 })
    await round('charge')
    expect(await ada.authorisations()).toEqual(['0 charged', '1 charged'])
    expect(await ada.account()).toMatchObject({ balance: 0, overage: 0.3 })
    await ada.book({ sequence: 1, ms: second, cost: 0.05 })
    expect(await ada.account()).toMatchObject({ balance: 0.05, overage: 0 })
    await ada.book({ sequence: 0, ms: 0, cost: 0.05 })
    expect(await ada.account()).toMatchObject({ balance: 0.4, overage: 0 })
    const { rows } = await core.sql.query(
      `select kind, count(*)::integer from grants where user_id = $1 group by kind`,
      [ada.user.userId],
    )
    expect(rows).toEqual([{ kind: 'included', count: 1 }])
  })

  it('leaves no trace of its estimate in any figure when its ticket comes', async () => {
    // Multiples of 3 cents are whole wei at 3000 USD for one ETH.
    const cents = integer({ min: 1, max: 24 }).map((n) => 3 * n)
    const calls = array(record({ bound: cents, cost: cents, turn: integer() }), {
      minLength: 1,
      maxLength: 5,
    })
    let runs = 0
    await assert(
      asyncProperty(calls, async (lost) => {
        ada = await escrowUser(core, app, `user-${runs++}`)
        for (const [n, { bound }] of lost.entries())
          await ada.authorise({ sequence: n, ms: n, bound: bound / 100 }, { sidecarId })
        await prove(...lost.keys())
        await authorise(60)
        await ada.book({ sequence: 60, ms: 60 * second, cost: 0.06 })
        await round('charge')
        const spent = lost.reduce((sum: bigint, { cost }) => sum + usd(cost / 100), usd(0.06))
        const numbered = lost.map((call, sequence) => ({ ...call, sequence }))
        for (const { sequence, cost } of numbered.toSorted((a, b) => a.turn - b.turn))
          await ada.book({ sequence, ms: sequence, cost: cost / 100 })
        const { rows } = await core.sql.query(
          `select adjusted_attos, (balance_attos - overage_attos)::text as rest, consumed_attos
           from balances where user_id = $1`,
          [ada.user.userId],
        )
        expect(rows).toEqual([
          { adjusted_attos: '0', rest: String(usd(1) - spent), consumed_attos: String(spent) },
        ])
      }),
      { numRuns: 15, seed: 45 },
    )
    expect(await differences()).toEqual([])
  })

  it('is reported by verify when more overage was taken back than estimated', async () => {
    await ada.authorise({ sequence: 0, ms: 0, bound: 1.3 }, { sidecarId })
    await authorise(21)
    await prove(0)
    await book(21)
    await round('charge')
    expect(await ada.account()).toMatchObject({ balance: 0, overage: 0.35 })
    await ada.book({ sequence: 0, ms: 0, cost: 0.2 })
    expect(await ada.account()).toMatchObject({ balance: 0.75, overage: 0 })
    expect(await differences()).toEqual([])
    await withoutTriggers(
      `update ledger_entries set overage_attos = overage_attos - 7
       where user_id = '${ada.user.userId}' and overage_attos < 0`,
    )
    expect(await differences()).toContainEqual(
      expect.objectContaining({ check: 'ledger_entries', column: 'overage_attos', by: '-7' }),
    )
  })

  it('is charged with LOST_TICKETS=charge when it is proven after its release', async () => {
    await authorise(0, 1, 25)
    await book(25)
    await round('charge')
    expect(await ada.authorisations()).toEqual(['0 released', '1 released'])
    const proven = await prove(0)
    const ledger = createLedger()
    await tx(pool, async (db) => {
      const locked = await ledger.lock(db, [ada.user], core.clock.now())
      const losses = createLosses({ store: escrowStore, insertAdjustment, lostTickets: 'charge' })
      await losses.end(db, { authorisations: proven, find: () => locked[0] }, core.clock.now())
      await ledger.save(db, locked, core.clock.now())
    })
    expect(await ada.authorisations()).toEqual(['0 charged', '1 released'])
    expect(await ada.session()).toMatchObject({ released: 1, charged: 1 })
    expect(await ada.account()).toMatchObject({ balance: 0.85, pending: 0 })
  })

  it('is counted as late when its ticket comes after its release', async () => {
    await authorise(0, 21)
    await book(21)
    await round()
    await book(0)
    expect(await ada.account()).toMatchObject({ balance: 0.9, pending: 0 })
    expect(await ada.session()).toMatchObject({ released: 0, late: 1, ticketed: 2 })
  })

  it('is forgotten after thirty days, so that its ticket is like any other', async () => {
    await authorise(0, 21)
    await book(21)
    await round()
    core.clock.advance(30 * day + second)
    await round()
    expect(await ada.authorisations()).toEqual([])
    await book(0)
    expect(await ada.session()).toMatchObject({ released: 1, late: 0 })
  })
})

describe('after a jump of the clock', () => {
  const clocks = async () =>
    (await core.sql.query('select 1 from sidecar_clocks where sidecar_id = $1', [sidecarId]))
      .rowCount

  it('ignores and deletes a stream clock that is later than now', async () => {
    await authorise(0, 60)
    await book(60)
    at(5)
    await round()
    expect([await ada.authorisations(), await clocks()]).toEqual([['0 pending'], 0])
    at(65)
    await round()
    expect(await ada.authorisations()).toEqual(['0 pending'])
  })

  it('takes no stream clock from a call that was authorised later than now', async () => {
    await authorise(0, 60)
    await ada.book({ sequence: 60, ms: 60 * second })
    expect(await clocks()).toBe(0)
  })

  it('releases nothing until earlier leases have ended', async () => {
    await ada.lend(0.4, -3600 * second, { sidecarId })
    const afterJump = releaseOf('write_off', new Date(ada.begin))
    // 30 s of a lease, 6 s of grace, 20 s of lag, and 2 s in which cores notice the jump.
    at(57)
    await afterJump.round()
    expect(await ada.account()).toMatchObject({ lent: 0.4 })
    at(58)
    await afterJump.round()
    expect(await ada.account()).toMatchObject({ lent: 0 })
  })

  it('compares neither stream clocks nor idle sidecars with earlier authorisations', async () => {
    await ada.authorise({ sequence: 0, ms: -3600 * second }, { sidecarId })
    await authorise(10)
    await book(10)
    const afterJump = releaseOf('write_off', new Date(ada.begin))
    at(899)
    await afterJump.round()
    expect(await ada.authorisations()).toEqual(['0 pending'])
    await authorise(850)
    await book(850)
    await afterJump.round()
    expect(await ada.authorisations()).toEqual(['0 released'])
  })
})

describe('an orphan', () => {
  it('is released when the event lag has passed since its end', async () => {
    await ada.lend(0.4, 0, { sidecarId })
    at(19)
    await round()
    expect(await ada.account()).toMatchObject({ lent: 0.4 })
    at(20)
    await round()
    expect(await ada.account()).toMatchObject({ lent: 0, balance: 1 })
    expect(sums.at(-1)).toMatchObject({ orphaned: { count: 1, amount: 4n * 10n ** 17n } })
  })

  it('stays while a call of its sidecar from before its end is pending', async () => {
    await authorise(0)
    await ada.lend(0.4, 5 * second, { sidecarId })
    at(60)
    await round()
    expect(await ada.account()).toMatchObject({ lent: 0.4, pending: 0.1 })
    await book(0)
    await round()
    expect(await ada.account()).toMatchObject({ lent: 0, pending: 0 })
  })

  it('stays while the stream is stalled, for at most HOLD_MAX_SECONDS', async () => {
    await ada.lend(0.4, 5 * second, { sidecarId })
    await ada.authorise({ sequence: 7, ms: 6 * second }, { sidecarId: 'other' })
    at(100)
    await round()
    expect(await ada.account()).toMatchObject({ lent: 0.4 })
    await ada.authorise({ sequence: 8, ms: 100 * second }, { sidecarId: 'other' })
    at(905)
    await round()
    expect(await ada.account()).toMatchObject({ lent: 0, pending: 0.2 })
  })

  it('is lowered by tickets of calls that were never reported, including early ones', async () => {
    await ada.lend(0.2, 5 * second, { sidecarId })
    await book(0)
    expect(await ada.earlyTickets()).toBe(1)
    // An early ticket waits 15 s for the report of its call.
    at(15)
    await round()
    expect(await ada.account()).toMatchObject({ lent: 0.2, balance: 0.95 })
    at(16)
    await round()
    expect(await ada.account()).toMatchObject({ lent: 0.15, balance: 0.95 })
    await book(1)
    expect(await ada.account()).toMatchObject({ lent: 0.1, balance: 0.9 })
  })
})

describe('concurrent rounds of several cores', () => {
  it('end each hold once', async () => {
    const users = [ada, await escrowUser(core, app, 'bea'), await escrowUser(core, app, 'cyd')]
    for (const user of users) {
      for (const n of [0, 1, 2])
        await user.authorise({ sequence: n, ms: n, bound: 0.1 }, { sidecarId })
      await user.lend(0.3, 0, { sidecarId })
    }
    at(1000)
    await Promise.all([round(), round(), round()])
    for (const user of users) {
      expect(await user.account()).toMatchObject({ pending: 0, lent: 0, balance: 1 })
      expect(await user.session()).toMatchObject({ released: 3 })
    }
  })
})
