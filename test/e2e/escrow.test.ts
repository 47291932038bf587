import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { SignedState } from '../../deploy/signer-double/payment/state.ts'
import {
  type Gate,
  type GateSigner,
  type GateUser,
  dollars,
  startGate,
  weiOf,
} from '../support/deployment/gate.ts'

/**
 * Checks with processes that the authorised amount never exceeds the balance (docs/escrow.md). Each
 * test compares the exact cost of all signed tickets with the user's one dollar.
 */

const oneUsd = 1_000_000n
const cent = weiOf(10_000n)
const dear = weiOf(500_000_000n)

let gate: Gate
beforeAll(async () => {
  gate = await startGate({
    cores: 2,
    sidecars: 2,
    coreEnv: { EVENT_LAG_SECONDS: '5', LEASE_SECONDS: '10' },
    sidecarEnv: { UNTYPED_CALL_USD: '0.05' },
  })
}, 120_000)
afterAll(() => gate?.stop(), 60_000)

interface Story {
  readonly type: string
  readonly inPixels?: bigint
  /** How long the clients pay at most. */
  readonly seconds?: number
  /** The dollars after which they pay for one more second, to try to overspend. */
  readonly enough?: number
  readonly clients?: number
  /** Milliseconds between the calls of a client. */
  readonly pauseMs?: number
}

/** Runs clients that each continue one session. Returns the count of each status. */
async function pay(
  signers: readonly GateSigner[],
  { headers }: GateUser,
  { type, inPixels, seconds = 15, enough = Infinity, clients = 10, pauseMs = 20 }: Story,
): Promise<Record<number, number>> {
  const statuses: Record<number, number> = {}
  let until = performance.now() + seconds * 1000
  await Promise.all(
    Array.from({ length: clients }, async (_, i) => {
      const signer = signers[i % signers.length]
      const manifestId = `m-${i}`
      let state: SignedState | undefined
      if (!signer) return
      while (performance.now() < until) {
        const call = { type, headers, manifestId, ...(inPixels && { inPixels }) }
        const answer = await signer.pay({ ...call, ...(state && { state }) }).catch(() => null)
        const status = answer?.status ?? 0
        statuses[status] = (statuses[status] ?? 0) + 1
        if (answer?.state) state = answer.state
        if (spentOf(signers) > enough) until = Math.min(until, performance.now() + 1_000)
        // A signer whose sidecar is down answers 500. Retry, as a gateway does.
        await sleep(answer?.status === 200 ? pauseMs : pauseMs * 5)
      }
    }),
  )
  return statuses
}

const spentOf = (signers: readonly GateSigner[]): number =>
  dollars(signers.reduce((sum, signer) => sum + signer.signedAttos(), 0n))

/**
 * Signs fixed jobs of a cent until a call is refused. Returns the number signed and the status of
 * the refusal.
 */
async function spendAll(signer: GateSigner, { headers }: GateUser) {
  for (let signed = 0; ; signed++) {
    const { status } = await signer.pay({ type: 'fixed', headers })
    if (status !== 200) return { signed, status }
  }
}

describe('a user with one dollar cannot overspend', () => {
  it('with one call that costs more than the balance', async () => {
    const user = await gate.createUser(oneUsd)
    const signer = await gate.startSigner(0, { pricePerUnit: dear, ev: dear * 10n ** 8n })
    expect((await signer.pay({ type: 'fixed', headers: user.headers })).status).toBe(483)
    expect((await signer.pay({ type: 'live', headers: user.headers })).status).toBe(483)
    expect((await signer.pay({ type: 'lv2v', headers: user.headers })).status).toBe(483)
    expect(spentOf([signer])).toBe(0)
  })

  it.each(['never', 'late'] as const)('with two sidecars, events %s', async (when) => {
    const user = await gate.createUser(oneUsd)
    const settings = { pricePerUnit: cent, delayMs: when === 'late' ? 5_000 : null }
    const signers = [await gate.startSigner(0, settings), await gate.startSigner(1, settings)]
    await pay(signers, user, { type: 'fixed', enough: 0.98 })
    expect(spentOf(signers)).toBeLessThanOrEqual(1)
    // Both share the balance, and less than two cents remain.
    expect(spentOf(signers)).toBeGreaterThan(0.98)
    await Promise.all(signers.map((signer) => signer.stop()))
  })

  it.each(['at once', 'never'] as const)(
    'with fifty live sessions at one sidecar, events %s',
    async (when) => {
      const user = await gate.createUser(oneUsd)
      const settings = { pricePerUnit: weiOf(1_000n), delayMs: when === 'never' ? null : 0 }
      const signer = await gate.startSigner(0, settings)
      await pay([signer], user, { type: 'live', clients: 50, enough: 0.9, pauseMs: 300 })
      expect(spentOf([signer])).toBeLessThanOrEqual(1)
      expect(spentOf([signer])).toBeGreaterThan(0.9)
      await signer.stop()
    },
  )

  it.each(['late', 'never'] as const)('with sessions without a type, events %s', async (when) => {
    const user = await gate.createUser(oneUsd)
    // The caller chooses pixels worth 5 cents, which UNTYPED_CALL_USD allows.
    const settings = { pricePerUnit: cent, delayMs: when === 'late' ? 5_000 : null }
    const signer = await gate.startSigner(0, settings)
    await pay([signer], user, { type: '', inPixels: 5n, enough: 0.9 })
    expect(spentOf([signer])).toBeLessThanOrEqual(1)
    expect(spentOf([signer])).toBeGreaterThan(0.9)
    await signer.stop()
  })

  it('with a replayed state', async () => {
    const user = await gate.createUser(oneUsd)
    const signer = await gate.startSigner(0, { pricePerUnit: cent, delayMs: null })
    const { headers } = user
    const first = await signer.pay({ type: 'live', headers, manifestId: 'm' })
    expect(first.status).toBe(200)
    for (let i = 0; i < 150; i++)
      await signer.pay({
        type: 'live',
        headers,
        manifestId: 'm',
        ...(first.state && { state: first.state }),
      })
    expect(spentOf([signer])).toBeLessThanOrEqual(1)
    expect(spentOf([signer])).toBeGreaterThan(0.9)
  })

  it('with a sidecar that is killed five times, events never', async () => {
    const user = await gate.createUser(oneUsd)
    const signer = await gate.startSigner(0, { pricePerUnit: cent, delayMs: null })
    const [sidecar] = gate.sidecars
    const paying = pay([signer], user, { type: 'fixed', seconds: 9, clients: 5 })
    for (let i = 0; i < 5; i++) {
      await sleep(1_000)
      await sidecar?.kill()
      await sidecar?.start()
    }
    const statuses = await paying
    expect(statuses[200]).toBeGreaterThan(10)
    expect(spentOf([signer])).toBeLessThanOrEqual(1)
  })

  it('with cores that are killed while sidecars spend', async () => {
    const user = await gate.createUser(oneUsd)
    const settings = { pricePerUnit: weiOf(2_000n), delayMs: 200 }
    const signers = [await gate.startSigner(0, settings), await gate.startSigner(1, settings)]
    const paying = pay(signers, user, { type: 'fixed', seconds: 12, clients: 10 })
    for (const core of gate.cores) {
      await sleep(1_500)
      await core.kill()
      await sleep(1_000)
      await core.start()
    }
    await paying
    expect(spentOf(signers)).toBeLessThanOrEqual(1)
    expect(spentOf(signers)).toBeGreaterThan(0.5)
  })
})

describe('a user with one dollar can spend', () => {
  it('the whole balance through one signer with prompt events', async () => {
    const user = await gate.createUser(oneUsd)
    const signer = await gate.startSigner(0, { pricePerUnit: cent, delayMs: 0 })
    expect(await spendAll(signer, user)).toEqual({ signed: 100, status: 483 })
  })

  it('settled amounts again: holds return to zero and the balance falls by the cost', async () => {
    const user = await gate.createUser(oneUsd)
    const signer = await gate.startSigner(1, { pricePerUnit: cent, delayMs: 0 })
    const pay = async () => (await signer.pay({ type: 'fixed', headers: user.headers })).status
    // Its core was killed before, and the sidecar may still be without it.
    await expect.poll(pay, { timeout: 20_000 }).toBe(200)
    for (let i = 0; i < 19; i++) expect(await pay()).toBe(200)
    const held = await user.balance()
    expect(Number(held['remainingUsdMicros'])).toBeLessThan(Number(held['balanceUsdMicros']))
    await expect
      .poll(async () => (await user.balance())['remainingUsdMicros'], { timeout: 30_000 })
      .toBe('800000')
    expect((await user.balance())['balanceUsdMicros']).toBe('800000')
  })
})
