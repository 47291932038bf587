import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { type Gate, type GateUser, startGate } from '../support/deployment/gate.ts'

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

describe("an owner's account that loses its credit", () => {
  let gate: Gate
  let users: GateUser[]
  const ownerEmail = 'owner@example.com'
  beforeAll(async () => {
    const cores = inject('parts').redisUrl ? 2 : 1
    // What the owner may use before paying: 100 USD.
    gate = await startGate({ sidecars: 2, cores, coreEnv: { STARTER_USD_MICROS: '100000000' } })
    users = [
      ...(await gate.createUsers(3, 1_000_000_000n, ownerEmail)),
      ...(await gate.createUsers(3, 1_000_000_000n, ownerEmail)),
      ...(await gate.createUsers(1, 1_000_000_000n, 'other@example.com')),
    ]
  }, 120_000)
  afterAll(() => gate?.stop(), 60_000)

  /** One decision for each user of the owner at each sidecar. */
  const decideAll = async (): Promise<number[]> =>
    Promise.all(
      users
        .slice(0, 6)
        .flatMap((user) =>
          [0, 1].map(async (sidecar) => (await gate.decide(sidecar, user)).status),
        ),
    )
  const all = (status: number): number[] => Array<number>(12).fill(status)

  /** Gives to the owner's account, or takes from it. */
  async function adjust(usdMicros: bigint): Promise<void> {
    const { rows } = await gate.pool.query<{ client_id: string; subject: string }>(
      `select c.client_id, u.external_user_id as subject
       from platform_app p
       join clients c on c.app_id = p.app_id and c.kind = 'public'
       join accounts a on a.email = $1
       join end_users u on u.app_id = p.app_id and u.external_user_id = 'account:' || a.id`,
      [ownerEmail],
    )
    await gate.operator.allowances.createAdjustment({
      clientId: rows[0]?.client_id ?? '',
      externalUserId: rows[0]?.subject ?? '',
      amountUsdMicros: String(usdMicros),
      reason: 'test',
      author: 'test',
      eventId: undefined,
      uncovered: undefined,
      idempotencyKey: undefined,
    })
  }

  /** The sidecars with leases of the owner's apps that were not recalled. */
  async function lentAt(): Promise<string[]> {
    const { rows } = await gate.pool.query<{ sidecar_id: string }>(
      `select distinct l.sidecar_id
       from leases l
       join app_payers p using (app_id)
       join accounts a on a.id = p.account_id
       where a.email = $1 and l.recalled_at is null
       order by l.sidecar_id`,
      [ownerEmail],
    )
    return rows.map((row) => row.sidecar_id)
  }

  it('stops every call of its apps within two seconds, and a top-up starts them again', async () => {
    await expect.poll(decideAll, { timeout: 10_000 }).toEqual(all(200))
    expect(await lentAt()).toEqual(['sidecar-0', 'sidecar-1'])
    const other = users.at(-1) as GateUser
    expect((await gate.decide(0, other)).status).toBe(200)

    await adjust(-100_000_000n)
    // No call makes the sidecars renew their leases.
    await expect.poll(lentAt, { interval: 50, timeout: 2_000 }).toEqual([])
    // A loaded machine may answer with 503.
    for (let i = 0; i < 20; i++) expect(await decideAll()).not.toContain(200)
    await expect.poll(decideAll).toEqual(all(483))
    expect((await gate.decide(0, other)).status).toBe(200)

    await adjust(100_000_000n)
    await expect.poll(decideAll, { timeout: 5_000 }).toEqual(all(200))
  }, 60_000)
})
