import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { type Gate, type GateSigner, type GateUser, startGate } from '../support/deployment/gate.ts'
import { pgbouncer } from '../support/run/pgbouncer.ts'
import { eventually } from '../support/waiting.ts'

const calls = 12
const userCount = 20
const starterMicros = 1_000_000

/** Pays for a call. Tries again after a 503, which a slow machine causes, and a caller repeats. */
async function pay(
  signer: GateSigner | undefined,
  headers: GateUser['headers'],
): Promise<number | undefined> {
  for (let attempt = 1; ; attempt++) {
    const answer = await signer?.pay({ type: 'fixed', headers })
    if (answer?.status !== 503 || attempt === 10) return answer?.status
  }
}

// The cores may open 48 connections, and PgBouncer opens five.
describe.runIf(pgbouncer)('three cores behind a PgBouncer with five connections', () => {
  let gate: Gate
  beforeAll(async () => {
    const hasSeveral = inject('parts').redisUrl !== null
    gate = await startGate({
      cores: 3,
      sidecars: hasSeveral ? 3 : 1,
      kafka: true,
      poolerConnections: 5,
    })
  }, 180_000)
  afterAll(() => gate?.stop(), 60_000)

  it('create users and keys, decide concurrently, and charge each ticket once', async () => {
    const users = await gate.createUsers(userCount, BigInt(starterMicros))
    const signers = await Promise.all(gate.sidecars.map((_, index) => gate.startSigner(index)))
    const statuses = await Promise.all(
      users.map(async ({ headers }, index) => {
        const answers: (number | undefined)[] = []
        for (let call = 0; call < calls; call++)
          answers.push(await pay(signers[index % signers.length], headers))
        return answers
      }),
    )
    // 482 is a call that its session's credit pays for.
    expect(statuses.flat().filter((status) => status !== 200 && status !== 482)).toEqual([])
    await Promise.all(signers.map((signer) => signer.deliver()))
    const cost = signers.reduce((sum, signer) => sum + signer.signedAttos(), 0n)
    expect(cost).toBeGreaterThan(0n)
    const charged = async (): Promise<bigint> => {
      const { rows } = await gate.pool.query<{ cost: string }>(
        'select coalesce(sum(cost_attos), 0)::text as cost from tickets',
      )
      return BigInt(rows[0]?.cost ?? '0')
    }
    expect(await eventually(charged, (attos) => attos === cost)).toBe(cost)
    const balances = await Promise.all(users.map((user) => user.balance()))
    const left = balances.reduce((sum, each) => sum + Number(each['balanceUsdMicros']), 0)
    const expected = userCount * starterMicros - Number(cost / 10n ** 12n)
    expect(Math.abs(left - expected)).toBeLessThanOrEqual(userCount)
  }, 120_000)

  it('log no errors, and use five connections of PostgreSQL and their direct ones', async () => {
    expect(gate.cores.flatMap(({ errors }) => errors)).toEqual([])
    const { rows } = await gate.pool.query<{ name: string; count: bigint }>(
      `select application_name as name, count(*) from pg_stat_activity
       where datname = current_database() and application_name like 'tollgate-core%'
       group by 1`,
    )
    const pooled = rows.reduce((sum, { count }) => sum + count, 0n)
    expect(pooled).toBeLessThanOrEqual(5n)
    expect(pooled).toBeGreaterThan(0n)
  })
})
