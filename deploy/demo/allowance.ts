import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  computePrice,
  formatEth,
  microsDown,
  microsToAttos,
  microsUp,
  parseDecimal18,
  usdAttos,
  usdMicros,
  wei,
} from '../../core/lib/money.ts'
import type { Quickstart } from '../local/data-dir.ts'
import type { SignerDouble } from '../signer-double/signer-double.ts'
import { type DemoApi, createDemoApi } from './api.ts'
import { type Screen, usd } from './screen.ts'
import { type Rate, type Target, currentRate } from './service.ts'
import { createDemoSigner, centsToWei } from './signer.ts'

const callSeconds = 5
const callsMax = 200
const settleMs = 20_000

export interface ActDeps {
  readonly service: Quickstart
  readonly rate: Rate
  readonly screen: Screen
  readonly target: Target
  readonly pauseMs: number
}

/**
 * A new user spends the included usage until the signer is refused, gets credit and goes on.
 * Resolves to whether all sums agree.
 */
export async function playAllowance({
  service,
  rate,
  screen,
  target,
  pauseMs,
}: ActDeps): Promise<boolean> {
  const api = createDemoApi(service)
  const { user, apiKey, included } = await provision(api, service, screen)
  const signer = createDemoSigner(service, rate, 5n)
  await signer.start()
  try {
    const session = createSession({ signer, apiKey, rate, api, user, screen, pauseMs })
    await session.warmUp()
    await session.spendUntilRefused()
    // Wait until all tickets are booked. Their cost above the allowance is then overage, so that
    // the credit does not pay for it.
    await signer.flush()
    await settled(api, user, signer.stats().signed.tickets)
    const overage = atLeastZero(costOf(signer, rate) - included)
    const credited = await api.grant(user, '1000000')
    screen.step('Credit', `${usd('1000000')} added; ${usd(credited.balanceUsdMicros)} to spend`)
    await session.goOn(2)
    await signer.flush()
    return await audit({ signer, api, user, rate, screen, overage, target })
  } finally {
    await signer.stop()
  }
}

/**
 * Creates a user with an API key; `included` is the included usage of the Starter plan, in
 * atto-dollars.
 */
async function provision(api: DemoApi, service: Quickstart, screen: Screen) {
  const user = `demo-${randomBytes(3).toString('hex')}`
  await api.createUser(user)
  const { apiKey } = await api.createKey(user)
  const start = await api.balance(user)
  screen.step(
    'Provision',
    `${user} in app ${service.clientId}, on the Starter plan with ${usd(start.balanceUsdMicros)}`,
  )
  screen.step('Key', `${apiKey.slice(0, 44)}… (shown once, stored as a hash)`)
  const included = microsToAttos(usdMicros(BigInt(start.lifetimeGrantedUsdMicros)))
  return { user, apiKey, included }
}

interface SessionDeps {
  readonly signer: SignerDouble
  readonly apiKey: string
  readonly rate: Rate
  readonly api: DemoApi
  readonly user: string
  readonly screen: Screen
  readonly pauseMs: number
}

/** A gateway's payment sessions for one user, with simulated time between payments. */
function createSession({ signer, apiKey, rate, api, user, screen, pauseMs }: SessionDeps) {
  const headers = [['Authorization', `Bearer ${apiKey}`]] as const
  const live = {
    type: 'live',
    app: 'demo/live',
    manifestId: 'demo-live',
    headers,
    orchestrator: { pricePerUnit: centsToWei(5n, rate) },
  }
  let state: Awaited<ReturnType<SignerDouble['pay']>>['state']

  async function pay() {
    const answer = await signer.pay({ ...live, ...(state ? { state } : {}) })
    if (answer.status === 200) state = answer.state
    signer.advance(callSeconds)
    await sleep(pauseMs)
    return answer
  }

  /** Makes one payment of each other type, so that the usage has several rows. */
  async function warmUp(): Promise<void> {
    const video = { pricePerUnit: centsToWei(1n, rate) / 2n, pixelsPerUnit: 27_648_000n }
    const kinds = [
      { type: 'lv2v', app: 'demo/video', manifestId: 'demo-video', headers, orchestrator: video },
      {
        type: 'fixed',
        app: 'demo/image',
        manifestId: 'demo-image',
        headers,
        orchestrator: { pricePerUnit: centsToWei(8n, rate) },
      },
    ]
    for (const kind of kinds) {
      const { status, body } = await signer.pay(kind)
      if (status !== 200) throw new Error(`the signer answered ${status}: ${body.trim()}`)
    }
    screen.step(
      'Sign',
      'a video prepayment and an image; now a live session, one payment for every 5 seconds',
    )
  }

  async function spendUntilRefused(): Promise<void> {
    for (let calls = 1; calls <= callsMax; calls++) {
      const { status, body } = await pay()
      if (status === 483) {
        screen.end()
        return screen.step('Refused', `HTTP 483 after ${calls - 1} live payments: ${body.trim()}`)
      }
      if (status !== 200) throw new Error(`the signer answered ${status}: ${body.trim()}`)
      screen.balance(await api.balance(user), calls)
    }
    throw new Error(`still allowed after ${callsMax} payments`)
  }

  async function goOn(calls: number): Promise<void> {
    for (let done = 0; done < calls; done++) {
      const { status, body } = await pay()
      if (status !== 200)
        throw new Error(`after the credit the signer answered ${status}: ${body.trim()}`)
    }
    screen.step('Go on', `${calls} more payments on the same session`)
  }

  return { warmUp, spendUntilRefused, goOn }
}

interface AuditDeps {
  readonly signer: SignerDouble
  readonly api: DemoApi
  readonly user: string
  readonly rate: Rate
  readonly screen: Screen
  readonly overage: bigint
  readonly target: Target
}

const atLeastZero = (value: bigint): bigint => (value > 0n ? value : 0n)

const costOf = (signer: SignerDouble, rate: Rate): bigint =>
  signer.stats().tickets.reduce((sum, ticket) => sum + computePrice(wei(ticket.fee), rate), 0n)

/** Compares the service's figures with those of the signer. */
async function audit({
  signer,
  api,
  user,
  rate,
  screen,
  overage,
  target,
}: AuditDeps): Promise<boolean> {
  const { signed } = signer.stats()
  const { balance, usage } = await settled(api, user, signed.tickets)
  screen.usage(usage)
  const cost = usdAttos(costOf(signer, rate))
  const consumed = microsUp(cost).toString()
  const granted = microsToAttos(usdMicros(BigInt(balance.lifetimeGrantedUsdMicros)))
  const counts = [
    ['payments', String(usage.totals.requestCount), String(signed.tickets)],
    ['fees, wei', usage.totals.totalFeeWei, signed.fee.toString()],
  ] as const
  const dollars = [
    ['fees, USD micros', usage.totals.networkFeeUsdMicros, consumed],
    ['consumed, USD micros', balance.consumedUsdMicros, consumed],
    [
      'balance, USD micros',
      balance.balanceUsdMicros,
      microsDown(usdAttos(granted - cost + overage)).toString(),
    ],
  ] as const
  const steady = parseDecimal18((await currentRate(target))?.usdPerEth ?? '') === rate
  if (!steady)
    screen.step('Rate', 'it changed during the demo, so dollars are not compared at one rate')
  const checks = steady ? [...counts, ...dollars] : counts
  screen.checks(checks, {
    eth: formatEth(wei(signed.fee)),
    overage: microsUp(usdAttos(overage)).toString(),
  })
  return checks.every(([, ours, theirs]) => ours === theirs)
}

async function settled(api: DemoApi, user: string, tickets: number) {
  const deadline = Date.now() + settleMs
  for (;;) {
    const usage = await api.usage(user)
    const balance = await api.balance(user)
    if (usage.totals.requestCount >= tickets || Date.now() > deadline) return { usage, balance }
    await sleep(200)
  }
}
