import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { SignedState } from '../../deploy/signer-double/payment/state.ts'
import {
  type Gate,
  type GateSigner,
  type GateUser,
  ethUsd,
  startGate,
  weiOf,
} from '../support/deployment/gate.ts'
import { type Random, createRandom } from '../support/random.ts'
import { readSize, testSeed } from '../support/run/sizes.ts'

/**
 * Runs three sidecars, two cores and 200 users with kills, duplicates and lost events; through
 * Kafka if this vitest project has it.
 */

const seconds = readSize('TEST_SOAK_SECONDS')
process.stdout.write(`escrow soak: TEST_SEED=${testSeed}, ${seconds} s\n`)

const userCount = 200
const grantMicros = 200_000n
const lagSeconds = 5

let gate: Gate
let users: GateUser[]
let signers: GateSigner[]
const random = createRandom(testSeed)

beforeAll(async () => {
  gate = await startGate({
    cores: 2,
    sidecars: 3,
    kafka: true,
    coreEnv: { EVENT_LAG_SECONDS: String(lagSeconds), LEASE_SECONDS: '8', HOLD_MAX_SECONDS: '30' },
    sidecarEnv: { UNTYPED_CALL_USD: '0.01' },
  })
  users = await gate.createUsers(userCount, grantMicros)
  signers = []
  for (const sidecar of [0, 1, 2]) {
    const faults = { drop: 0.02, duplicate: 0.05, reorder: 0.1, delayMs: 1_500 }
    signers.push(await gate.startSigner(sidecar, { pricePerUnit: weiOf(700n), faults }))
  }
}, 240_000)
afterAll(() => gate?.stop(), 60_000)

/** The caller of a session without a type chooses its pixels, within UNTYPED_CALL_USD. */
const sessionTypes = [{ type: 'live' }, { type: 'fixed' }, { type: '', inPixels: 5n }] as const

/**
 * Pays as one user through one signer, in sessions of any type one after another. Sometimes replays
 * states.
 */
async function payAs({ headers }: GateUser, own: Random, until: number): Promise<void> {
  const signer = signers[own.below(3)]
  const openSession = () => ({ ...own.pick(sessionTypes), headers, manifestId: own.hex(8) })
  let session = openSession()
  let states: SignedState[] = []
  if (!signer) return
  while (performance.now() < until) {
    const state = own.chance(0.1) ? states.at(-1 - own.below(3)) : states.at(-1)
    const answer = await signer.pay({ ...session, ...(state && { state }) }).catch(() => null)
    if (answer?.state) states.push(answer.state)
    if (own.chance(0.05)) {
      states = []
      session = openSession()
    }
    await sleep(answer?.status === 200 ? 300 + own.below(700) : 1_500 + own.below(1_500))
  }
}

async function injectKills(until: number): Promise<void> {
  while (performance.now() + 8_000 < until) {
    await sleep(2_000 + random.below(3_000))
    const victim = random.pick([...gate.sidecars, ...gate.cores])
    await victim.kill()
    await sleep(random.below(500))
    await victim.start()
  }
}

/** Returns the exact cost of each user's signed tickets, in atto-dollars, by `auth_id`. */
function signedByUser(): Map<string, bigint> {
  const sums = new Map<string, bigint>()
  for (const signer of signers)
    for (const { authId, fee } of signer.stats().tickets)
      sums.set(authId, (sums.get(authId) ?? 0n) + fee * ethUsd)
  return sums
}

describe('200 users at three sidecars and two cores', () => {
  it(
    'sign for no more than their balance, despite kills and lost events',
    async () => {
      const until = performance.now() + seconds * 1000
      const pay = (end: number) =>
        Promise.all(users.map((user, i) => payAs(user, createRandom(testSeed + i + 1), end)))
      await Promise.all([pay(until), injectKills(until)])
      // On a busy machine some users get no turn in that time.
      for (let i = 0; i < 6 && signedByUser().size <= userCount * 0.9; i++)
        await pay(performance.now() + 5_000)
      const sums = signedByUser()
      expect(sums.size).toBeGreaterThan(userCount * 0.9)
      const grant = grantMicros * 10n ** 12n
      const beyond = [...sums].filter(([, sum]) => sum > grant)
      expect(beyond).toEqual([])
    },
    seconds * 1000 + 60_000,
  )

  it('settle or release all holds in the end', async () => {
    await Promise.all(signers.map((signer) => signer.deliver()))
    const held = async () => {
      const { rows } = await gate.pool.query<{ held: string; overage: string }>(
        `select coalesce(sum(lent_attos + pending_attos), 0)::text as held,
                coalesce(sum(overage_attos), 0)::text as overage from balances`,
      )
      return rows[0]
    }
    await expect.poll(held, { timeout: 90_000, interval: 500 }).toEqual({ held: '0', overage: '0' })
  }, 120_000)
})
