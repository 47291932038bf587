import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Gate, type GateUser, startGate } from '../support/deployment/gate.ts'

/**
 * Decisions while something behind the gate is down (docs/architecture.md, "When something is
 * down").
 */

const leaseSeconds = 8
const atOnceMs = 400
let gate: Gate
let active: GateUser
beforeAll(async () => {
  gate = await startGate({
    ownPostgres: true,
    coreEnv: { EVENT_LAG_SECONDS: '3', LEASE_SECONDS: String(leaseSeconds) },
  })
}, 120_000)
afterAll(() => gate?.stop(), 60_000)

/** Requests decisions for the active user until the lease ends and the answer is 503. */
async function untilUnavailable(): Promise<void> {
  for (const end = performance.now() + leaseSeconds * 1000; ; await sleep(100)) {
    const { status } = await gate.decide(0, active)
    if (status === 503) return
    if (status !== 200) throw new Error(`answered ${status}`)
    if (performance.now() > end) throw new Error(`no 503 in ${leaseSeconds} s`)
  }
}

/**
 * Creates a new active user, so that earlier calls do not reduce its lease. Returns another user,
 * who has made no call.
 */
async function createUsers(): Promise<GateUser> {
  active = await gate.createUser(1_000_000_000n)
  return gate.createUser(1_000_000n)
}

/**
 * Calls at a steady pace, because a user's first lease covers only four calls. Returns after twelve
 * allowed calls in a row: right after a restart, a single call may still fail.
 */
async function warm(): Promise<void> {
  const end = performance.now() + 20_000
  for (let allowed = 0; allowed < 12; await sleep(100)) {
    const { status } = await gate.decide(0, active)
    if (status !== 200 && status !== 503) throw new Error(`answered ${status}`)
    if (performance.now() > end) throw new Error(`${allowed} of 12 calls in a row after 20 s`)
    allowed = status === 200 ? allowed + 1 : 0
  }
  // Wait for the sidecar's open requests to core, which take time on a busy machine.
  await sleep(1_000)
}

/**
 * Decides while core does not answer: within a lease, for a user without one, and after the lease.
 */
async function decideWithoutCore(stranger: GateUser) {
  // The sidecar needs this time, once, to detect that core does not answer.
  await sleep(1_400)
  const inside = await gate.decide(0, active)
  const other = await gate.decide(0, stranger)
  await untilUnavailable()
  const after = [await gate.decide(0, active), await gate.decide(0, active)]
  return {
    inside: inside.status,
    other: other.status,
    after: after.map(({ status }) => status),
    // Well below the time for which it waits for core, also on a busy machine.
    atOnce: other.ms < atOnceMs && Math.min(...after.map(({ ms }) => ms)) < atOnceMs,
  }
}

const leaseThen503 = { inside: 200, other: 503, after: [503, 503], atOnce: true }

describe('the gate', () => {
  it('allows calls within leases while core is frozen, then refuses with 503, and recovers', async () => {
    const stranger = await createUsers()
    await warm()
    gate.cores[0]?.freeze()
    const decisions = await decideWithoutCore(stranger).finally(() => gate.cores[0]?.thaw())
    expect(decisions).toEqual(leaseThen503)
    await warm()
    expect((await gate.decide(0, stranger)).status).toBe(200)
  })

  it('does the same while core is down', async () => {
    const stranger = await createUsers()
    await warm()
    await gate.cores[0]?.kill()
    const decisions = await decideWithoutCore(stranger)
    await gate.cores[0]?.start()
    expect(decisions).toEqual(leaseThen503)
    await warm()
    expect((await gate.decide(0, stranger)).status).toBe(200)
  })

  it('does the same while the database is down', async () => {
    const stranger = await createUsers()
    await warm()
    const back = gate.stopDatabase((leaseSeconds + 4) * 1000)
    await sleep(1_000)
    const inside = (await gate.decide(0, active)).status
    const other = (await gate.decide(0, stranger)).status
    await untilUnavailable().finally(() => back)
    expect({ inside, other }).toEqual({ inside: 200, other: 503 })
    await warm()
    expect((await gate.decide(0, stranger)).status).toBe(200)
  })

  it('holds what it allowed during the outages', async () => {
    // Each allowed call was a cent and no event arrived, so the amounts are still held.
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

  it('allows nothing, and uses the last rate with a margin during its grace period', async () => {
    const user = await bare.createUser(1_000_000n)
    expect((await bare.decide(0, user)).status).toBe(503)
    // Usable for 600 s, then for another hour with a margin.
    await observe(4_300)
    await sleep(1_500)
    expect((await bare.decide(0, user)).status).toBe(503)
    await observe(2_000)
    await expect
      .poll(async () => (await bare.decide(0, user)).status, { timeout: 10_000 })
      .toBe(200)
    // With the margin a cent counts as 1.1 cents: at most 90 calls fit into a dollar without
    // tickets.
    let allowed = 1
    for (let i = 0; i < 200; i++) if ((await bare.decide(0, user)).status === 200) allowed++
    expect(allowed).toBeLessThanOrEqual(90)
    expect(allowed).toBeGreaterThan(85)
  })
})
