import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Gate, type GateUser, startGate } from '../support/gate.ts'

/** What the gate says while something behind it is down (docs/architecture.md, "When something is down"). */

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

/** Asks for the active user until the lease is over and the answer is 503. */
async function untilUnavailable(): Promise<void> {
  for (const end = performance.now() + leaseSeconds * 1000; ; await sleep(100)) {
    const { status } = await gate.decide(0, active)
    if (status === 503) return
    if (status !== 200) throw new Error(`answered ${status}`)
    if (performance.now() > end) throw new Error(`no 503 in ${leaseSeconds} s`)
  }
}

/** A new active user, so that no call of an earlier story holds back its lease, and one who makes no call yet. */
async function createUsers(): Promise<GateUser> {
  active = await gate.createUser(1_000_000_000n)
  return gate.createUser(1_000_000n)
}

/**
 * Makes calls at a steady pace, because the first lease of a user covers four of them only, until twelve in a row are
 * allowed: right after a part came back, one more may find it not ready.
 */
async function warm(): Promise<void> {
  const end = performance.now() + 20_000
  for (let allowed = 0; allowed < 12; await sleep(100)) {
    const { status } = await gate.decide(0, active)
    if (status !== 200 && status !== 503) throw new Error(`answered ${status}`)
    if (performance.now() > end) throw new Error(`${allowed} of 12 calls in a row after 20 s`)
    allowed = status === 200 ? allowed + 1 : 0
  }
  // What the sidecar then asked core for is still on its way, and a busy machine takes its time.
  await sleep(1_000)
}

/** Decisions while core does not answer: inside a lease, of a user without one, and when the lease is over. */
async function decideWithoutCore(stranger: GateUser) {
  // The sidecar needs a moment, once, to see that core does not answer.
  await sleep(1_400)
  const inside = await gate.decide(0, active)
  const other = await gate.decide(0, stranger)
  await untilUnavailable()
  const after = [await gate.decide(0, active), await gate.decide(0, active)]
  return {
    inside: inside.status,
    other: other.status,
    after: after.map(({ status }) => status),
    // Well below the time that it would wait for core, also on a busy machine.
    atOnce: other.ms < atOnceMs && Math.min(...after.map(({ ms }) => ms)) < atOnceMs,
  }
}

const leaseThen503 = { inside: 200, other: 503, after: [503, 503], atOnce: true }

describe('the gate', () => {
  it('goes on inside leases while core is frozen, then says 503 at once, and recovers', async () => {
    const stranger = await createUsers()
    await warm()
    gate.cores[0]?.freeze()
    const decisions = await decideWithoutCore(stranger).finally(() => gate.cores[0]?.thaw())
    expect(decisions).toEqual(leaseThen503)
    await warm()
    expect((await gate.decide(0, stranger)).status).toBe(200)
  })

  it('does the same while core is gone', async () => {
    const stranger = await createUsers()
    await warm()
    await gate.cores[0]?.kill()
    const decisions = await decideWithoutCore(stranger)
    await gate.cores[0]?.start()
    expect(decisions).toEqual(leaseThen503)
    await warm()
    expect((await gate.decide(0, stranger)).status).toBe(200)
  })

  it('does the same while the database is gone', async () => {
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
    // Usable for 600 s, and then for an hour more.
    await observe(4_300)
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
