import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  ethRate,
  formatEth,
  microsDown,
  microsToAttos,
  microsUp,
  parseDecimal18,
  computePrice,
  usdAttos,
  usdMicros,
  wei,
} from '../../core/lib/money.ts'
import { UsageError, changeCore, parse, withCore } from '../cli/command.ts'
import { findCore, requireConsent } from '../cli/target.ts'
import { type Quickstart, resolveDataDir, readQuickstart } from '../all-in-one/data-dir.ts'
import { directSink } from '../signer-double/events/direct-sink.ts'
import { type SignerDouble, createSignerDouble } from '../signer-double/signer-double.ts'
import { type DemoApi, createDemoApi } from './api.ts'
import { createScreen, type Screen, usd } from './screen.ts'

const demoRate = '3000'
const centPerEv = 10_000_000_000_000_000n // 0.01 USD in atto-dollars
const callSeconds = 5
const callsMax = 200
const settleMs = 20_000

/** Plays the demo; resolves to 0 when all sums agree. */
export async function runDemo(argv: readonly string[]): Promise<number> {
  const { pauseMs, target } = readOptions(argv)
  const service = await findService(target)
  const screen = createScreen(process.stdout)
  const rate = await usableRate(service, { target, screen })
  const api = createDemoApi(service)
  const { user, apiKey, included } = await provision(api, service, screen)
  const signer = createSignerDouble(signerOptions(service, rate))
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
 * Finds the all-in-one service of this folder, because the demo's users, signer and core must
 * belong to one deployment.
 */
async function findService(target: string | undefined): Promise<Quickstart> {
  const dataDir = resolveDataDir(process.env)
  const service = await readQuickstart(dataDir)
  if (!service)
    throw new Error(`no service found in ${dataDir}; start one with npm start, in another terminal`)
  const core = await findCore(target)
  if (core.address.target !== service.coreTarget)
    throw new Error(
      `the demo plays against the service of ${dataDir} (core at ${service.coreTarget}) only; ` +
        `${target === undefined ? 'CORE_TARGET' : '--target'} names another core, ${core.address.target}`,
    )
  requireConsent(core)
  return service
}

function readOptions(argv: readonly string[]) {
  const { values } = parse(argv, { pause: { type: 'string' } })
  const pauseMs = Number(values.pause ?? '120')
  if (Number.isInteger(pauseMs) && pauseMs >= 0 && pauseMs <= 60_000)
    return { pauseMs, target: values.target }
  throw new UsageError('--pause must be from 0 to 60000')
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

const currentRate = async (target: Target) =>
  (await withCore({ target }, (core) => core.meteringStatus())).usableRate

/**
 * Returns the current rate. Without one the demo records a rate, but never in a database that
 * others may share.
 */
async function usableRate(
  service: Quickstart,
  { target, screen }: { target: Target; screen: Screen },
) {
  const known = await currentRate(target)
  if (!known && service.database !== 'embedded')
    throw new Error(
      'no exchange returned a price, and the demo does not record one in a database that others may share; set ' +
        'one: ./tollgate rate set USD_PER_ETH',
    )
  const observed = known ?? (await recordDemoRate(target))
  const value = parseDecimal18(observed?.usdPerEth ?? '')
  if (!observed || value === null) throw new Error('the service has no usable ETH rate')
  screen.step(
    'Rate',
    `1 ETH = ${observed.usdPerEth} USD (${observed.source})${known ? '' : '; no exchange returned a price, so the demo recorded one'}`,
  )
  return ethRate(value)
}

const recordDemoRate = async (target: Target) =>
  (await changeCore({ target }, (core) => core.recordRate({ usdPerEth: demoRate, source: 'demo' })))
    .rate

type Target = string | undefined
type Rate = Awaited<ReturnType<typeof usableRate>>

/** Wei that cost `cents` at `rate`. */
const weiOf = (cents: bigint, rate: Rate): bigint => (cents * centPerEv * 10n ** 18n) / rate

function signerOptions(service: Quickstart, rate: Rate) {
  const secret = service.webhookSecret
  const startedAt = BigInt(Date.now()) * 1_000_000n
  return {
    ev: weiOf(5n, rate),
    webhook: {
      url: `${service.sidecarUrl}/authorize`,
      headers: [['Authorization', `Bearer ${secret}`]] as const,
    },
    sinks: [directSink({ url: service.sidecarUrl, secret })],
    keepTickets: 1_000,
    // Only the demo moves this clock, so that each payment is for exactly five seconds.
    now: () => startedAt,
  }
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
    orchestrator: { pricePerUnit: weiOf(5n, rate) },
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
    const video = { pricePerUnit: weiOf(1n, rate) / 2n, pixelsPerUnit: 27_648_000n }
    const kinds = [
      { type: 'lv2v', app: 'demo/video', manifestId: 'demo-video', headers, orchestrator: video },
      {
        type: 'fixed',
        app: 'demo/image',
        manifestId: 'demo-image',
        headers,
        orchestrator: { pricePerUnit: weiOf(8n, rate) },
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
}: AuditDeps): Promise<number> {
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
  return checks.every(([, ours, theirs]) => ours === theirs) ? 0 : 1
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
