import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import type { SignedState } from '../../deploy/signer-double/payment/state.ts'
import {
  type Gate,
  type GateSigner,
  type GateUser,
  ethUsd,
  startGate,
  weiOf,
} from '../support/gate.ts'
import { type Random, createRandom } from '../support/random.ts'

/**
 * Runs three sidecars, two cores and 200 users with kills, duplicates and lost events; through
 * Kafka if this vitest project has it. `E2E_SOAK_SECONDS` is how long the users pay, `E2E_SEED`
 * repeats the choices.
 */

const onKafka = inject('parts').kafkaBrokers !== null
const seconds = Number(process.env['E2E_SOAK_SECONDS'] ?? (onKafka ? 40 : 10))
const seed = Number(
  (process.env['E2E_SEED'] ?? '').split('@')[0] || Math.floor(Math.random() * 2 ** 31),
)
process.stdout.write(`escrow soak: E2E_SEED=${seed}, ${seconds} s\n`)

const userCount = 200
const grantMicros = 200_000n
const lagSeconds = 5

let gate: Gate
let users: GateUser[]
let signers: GateSigner[]
const random = createRandom(seed)

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

/** Pays as one user through one signer, in sessions of one type. Sometimes replays states. */
async function payAs({ headers }: GateUser, own: Random, until: number): Promise<void> {
  const signer = signers[own.below(3)]
  const type = own.pick(['live', 'fixed', 'fixed', 'live'])
  const states: SignedState[] = []
  const manifestId = own.hex(8)
  if (!signer) return
  while (performance.now() < until) {
    const state = own.chance(0.1) ? states.at(-1 - own.below(3)) : states.at(-1)
    const call = { type, headers, manifestId }
    const answer = await signer.pay(state ? { ...call, state } : call).catch(() => null)
    if (answer?.state) states.push(answer.state)
    if (own.chance(0.05)) states.length = 0
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
        Promise.all(users.map((user, i) => payAs(user, createRandom(seed + i + 1), end)))
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
