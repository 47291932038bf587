import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Gate, type GateUser, startGate } from '../support/gate.ts'

/** What the gate says while something behind it is down (docs/architecture.md, "When something is down"). */

const leaseSeconds = 8
let gate: Gate
let active: GateUser
beforeAll(async () => {
  gate = await startGate({
    ownPostgres: true,
    coreEnv: { EVENT_LAG_SECONDS: '3', LEASE_SECONDS: String(leaseSeconds) },
  })
  active = await gate.createUser(1_000_000_000n)
}, 120_000)
afterAll(() => gate?.stop(), 60_000)

/** Asks for the active user until the answer is `status`; returns after how many milliseconds it was. */
async function until(status: number, withinMs: number): Promise<number> {
  const began = performance.now()
  for (;;) {
    const decision = await gate.decide(0, active)
    if (decision.status === status) return performance.now() - began
    expect([200, 503]).toContain(decision.status)
    if (performance.now() - began > withinMs) throw new Error(`no ${status} in ${withinMs} ms`)
    await sleep(20)
  }
}

/** The active user has a fresh lease. */
async function warm(): Promise<void> {
  await until(200, 20_000)
  for (let i = 0; i < 5; i++) expect((await gate.decide(0, active)).status).toBe(200)
}

async function expectLeaseThen503(restore: () => Promise<void> | void): Promise<void> {
  const stranger = await strangerBefore
  // The sidecar needs a moment, once, to see that core does not answer.
  await sleep(800)
  expect((await gate.decide(0, active)).status).toBe(200)
  const refused = await gate.decide(0, stranger)
  expect(refused.status).toBe(503)
  expect(refused.ms).toBeLessThan(50)
  await until(503, leaseSeconds * 1000)
  const [first, second] = [await gate.decide(0, active), await gate.decide(0, active)]
  expect([first.status, second.status]).toEqual([503, 503])
  expect(Math.min(first.ms, second.ms)).toBeLessThan(50)
  await restore()
  await warm()
  expect((await gate.decide(0, stranger)).status).toBe(200)
}

let strangerBefore: Promise<GateUser>

describe('the gate', () => {
  it('goes on inside leases while core is frozen, then says 503 at once, and recovers', async () => {
    strangerBefore = gate.createUser(1_000_000n)
    await strangerBefore
    await warm()
    gate.cores[0]?.freeze()
    await expectLeaseThen503(() => gate.cores[0]?.thaw())
  })

  it('does the same while core is gone', async () => {
    strangerBefore = gate.createUser(1_000_000n)
    await strangerBefore
    await warm()
    await gate.cores[0]?.kill()
    await expectLeaseThen503(async () => gate.cores[0]?.start())
  })

  it('does the same while the database is gone', async () => {
    strangerBefore = gate.createUser(1_000_000n)
    const stranger = await strangerBefore
    await warm()
    const back = gate.stopDatabase(leaseSeconds * 1000)
    await sleep(1_000)
    expect((await gate.decide(0, active)).status).toBe(200)
    expect((await gate.decide(0, stranger)).status).toBe(503)
    await until(503, leaseSeconds * 1000)
    await back
    await warm()
    expect((await gate.decide(0, stranger)).status).toBe(200)
  })

  it('forgets nothing of what it allowed meanwhile', async () => {
    // Every allowed call was a cent and no event came: all of them are held.
    const { balanceUsdMicros, remainingUsdMicros } = await active.balance()
    expect(balanceUsdMicros).toBe('1000000000')
    expect(Number(remainingUsdMicros)).toBeLessThan(1_000_000_000)
  })
})

describe('without a rate', () => {
  let bare: Gate
  beforeAll(async () => {
    bare = await startGate({ rate: false, coreEnv: { RATE_GRACE_SECONDS: '3600' } })
  }, 120_000)
  afterAll(() => bare?.stop(), 60_000)

  const observe = (ageSeconds: number) =>
    bare.pool.query(
      `insert into rates (usd_attos_per_eth, source, observed_at)
       values (3000000000000000000000, 'test', now() - make_interval(secs => $1))`,
      [ageSeconds],
    )

  it('nothing is allowed, and the last rate serves for its grace with a margin', async () => {
    const user = await bare.createUser(1_000_000n)
    expect((await bare.decide(0, user)).status).toBe(503)
    await observe(3_700)
    await sleep(1_500)
    expect((await bare.decide(0, user)).status).toBe(503)
    await observe(2_000)
    await expect
      .poll(async () => (await bare.decide(0, user)).status, { timeout: 10_000 })
      .toBe(200)
    // A cent costs 1.1 cents by it: no more than 90 calls fit into a dollar, and no ticket comes.
    let allowed = 1
    for (let i = 0; i < 200; i++) if ((await bare.decide(0, user)).status === 200) allowed++
    expect(allowed).toBeLessThanOrEqual(90)
    expect(allowed).toBeGreaterThan(85)
  })
})
