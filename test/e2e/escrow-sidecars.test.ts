import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { type Gate, type GateUser, startGate } from '../support/gate.ts'

/**
 * Several sidecars: one process per id, and money that was lent to one sidecar when another needs
 * it.
 */

/**
 * Makes calls in sequence until one is refused with 483, or 200 at most. Returns their durations in
 * ms.
 */
async function spend(gate: Gate, sidecar: number, user: GateUser) {
  const allowed: number[] = []
  for (let i = 0; i < 200; i++) {
    const { status, ms } = await gate.decide(sidecar, user)
    if (status === 483) return allowed
    expect(status).toBe(200)
    allowed.push(ms)
  }
  return allowed
}

describe('two sidecars with one id', () => {
  let gate: Gate
  let user: GateUser
  beforeAll(async () => {
    gate = await startGate({ sidecars: 2, sidecarEnv: { SIDECAR_ID: 'twin' } })
    user = await gate.createUser(1_000_000_000n)
  }, 120_000)
  afterAll(() => gate?.stop(), 60_000)

  const conflicts = (sidecar: number): number =>
    (gate.sidecars[sidecar]?.errors ?? []).filter((line) =>
      line.includes('another process uses the id of this sidecar'),
    ).length

  it('refuse all calls at the second while the first runs', async () => {
    for (let i = 0; i < 20; i++) expect((await gate.decide(0, user)).status).toBe(200)
    for (let i = 0; i < 20; i++) expect((await gate.decide(1, user)).status).toBe(503)
    expect([await gate.isReady(0), await gate.isReady(1)]).toEqual([true, false])
    // After a kill the id stays taken for three seconds, without an error; then one line in ten
    // seconds.
    expect([conflicts(0), conflicts(1)]).toEqual([0, 0])
    await expect.poll(() => conflicts(1), { timeout: 10_000 }).toBe(1)
    expect(conflicts(0)).toBe(0)
    await gate.sidecars[0]?.kill()
    const killed = performance.now()
    while ((await gate.decide(1, user)).status !== 200) {
      expect(performance.now() - killed).toBeLessThan(10_000)
      await sleep(20)
    }
    expect(performance.now() - killed).toBeGreaterThan(2_000)
    expect(await gate.isReady(1)).toBe(true)
    // The first restarts as another process, so the id is taken.
    await gate.sidecars[0]?.start()
    expect((await gate.decide(0, user)).status).toBe(503)
    expect((await gate.decide(1, user)).status).toBe(200)
  }, 60_000)
})

describe('money lent to another sidecar', () => {
  let gate: Gate
  beforeAll(async () => {
    // With several cores, Redis carries the recall to the other core's sidecar.
    gate = await startGate({ sidecars: 2, cores: inject('parts').redisUrl ? 2 : 1 })
  }, 120_000)
  afterAll(() => gate?.stop(), 60_000)

  it('is returned within a decision, before the next report', async () => {
    const slowest: number[] = []
    for (const user of await gate.createUsers(9, 100_000n)) {
      expect((await gate.decide(0, user)).status).toBe(200)
      const allowed = await spend(gate, 1, user)
      // Ten calls of a cent in total: nothing remains at the first sidecar.
      expect(allowed).toHaveLength(9)
      slowest.push(Math.max(...allowed))
    }
    const [median = 0] = slowest.toSorted((a, b) => a - b).slice(4)
    expect(median).toBeLessThan(300)
  }, 60_000)
})
