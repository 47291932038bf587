import {
  type EthRate,
  divCeil,
  ethRate,
  networkRatio,
  computePrice,
  computeRetail,
  wei,
} from '../../../core/lib/money.ts'
import { type AppId, type UserId, appId, userId } from '../../../core/shared/ids.ts'
import type { Plan } from '../plan.ts'
import type { SignerCall } from './signer.ts'
import { epochMs } from '../virtual-time.ts'

export interface WorldUser {
  readonly appId: AppId
  readonly userId: UserId
  readonly clientId: string
  readonly externalUserId: string
}

const apps = [
  { id: appId('00000000-0000-7000-8000-000000000001'), clientId: 'app_0123456789abcdef01234567' },
  { id: appId('00000000-0000-7000-8000-000000000002'), clientId: 'app_0123456789abcdef01234568' },
] as const
const platformApp = appId('00000000-0000-7000-8000-000000000003')
const wholeCut = 10_000n
const nanosPerMs = 1_000_000n
const coreSkewMs = 500
export const attosPerMicro = 10n ** 12n
const attosPerUsd = 10n ** 18n

/**
 * Time between observations of the rate in milliseconds. A ticket is priced by an observation of at
 * most `rateMaxAgeSeconds`.
 */
export const observeMs = 5_000
export const rateMaxAgeSeconds = 15
export const rateGraceSeconds = 30
export const rateMarginPercent = 10

/** An observation of the rate, at a time in Unix milliseconds. */
export interface Observation {
  readonly atMs: number
  readonly rate: EthRate
}

/**
 * Ratios of retail to network price: higher, lower, and with fractions that do not fit a double.
 */
const ratios = [1_500_000_000_000_000_000n, 333_333_333_333_333_333n, 7_000_000_000_000_000_001n]

/** Users, and the true rates, whether or not core knows them. */
export function createWorld({ world, seed }: Plan) {
  const users = world.users.map((_, index): WorldUser => {
    const app = apps[index % (world.owner?.apps ?? 1)] ?? apps[0]
    return {
      appId: app.id,
      userId: userId(`00000000-0000-4000-8000-00000000000${index}`),
      clientId: app.clientId,
      externalUserId: `user${index}`,
    }
  })
  /** The account of the users' owner. */
  const owner: WorldUser | null = world.owner && {
    appId: platformApp,
    userId: userId('00000000-0000-4000-8000-000000000009'),
    clientId: 'app_0123456789abcdef01234569',
    externalUserId: 'account:owner',
  }
  /** Who pays for each app. */
  const payers = owner
    ? apps.map(({ id }, index) => ({ appId: id, owner, cut: world.owner?.cuts[index] ?? 0n }))
    : []
  /** All true observations, and those that core has. */
  const observations: Observation[] = []
  const published: Observation[] = []
  let rate = rateOf(world.usdPerEth)
  let outageUntil = 0
  // Observed in advance, because the clock of a signer may be behind.
  observe(-2 * observeMs)
  observe(-observeMs)

  /**
   * Returns the ratio at which a user's plan sells, relative to network price: 1 for every second
   * user.
   */
  const ratioOf = (user: UserId): bigint => {
    const index = users.findIndex(({ userId }) => userId === user)
    return index % 2 === 0 ? networkRatio : (ratios[(seed + index) % ratios.length] ?? networkRatio)
  }

  const userOf = (index: number): WorldUser => {
    const user = users[index] ?? (index === users.length ? owner : null)
    if (!user) throw new Error(`no user ${index}`)
    return user
  }

  /** Observes the rate. After an outage, also publishes the missed observations. */
  function observe(at: number): void {
    observations.push({ atMs: epochMs + at, rate })
    if (at < outageUntil) return
    published.push(...observations.slice(published.length))
  }

  /** Returns the rate that prices a ticket signed at `ms`; null without an observation. */
  const priceAt = (ms: number): EthRate | null => {
    const last = published.findLast(({ atMs }) => atMs <= ms)
    return last && last.atMs >= ms - rateMaxAgeSeconds * 1_000 ? last.rate : null
  }

  /** Returns the newest observation. */
  function findRate() {
    const last = published.at(-1)
    return last
      ? { usdAttosPerEth: last.rate, observedAt: new Date(last.atMs), source: 'exchange' }
      : null
  }

  /**
   * Returns the promised cost of a call in atto-dollars: at the last rate sent to its sidecar if
   * that is lower, and for an untyped call at most what the operator set.
   */
  function promisedCost(call: SignerCall, toldRate: EthRate | null): bigint {
    const ms = Number(call.lastUpdate / nanosPerMs)
    const last = observations.findLast(({ atMs }) => atMs <= ms)?.rate ?? rate
    const told = toldRate !== null && toldRate < last ? toldRate : last
    const ratio = ratioOf(userOf(call.session.plan.user).userId)
    const cost = computeRetail(wei(call.feeWei), told, ratio)
    const untyped = BigInt(world.untypedUsdMicros ?? 0) * attosPerMicro
    const most = divCeil(untyped * ratio, networkRatio)
    return call.session.plan.type === '' && most < cost ? most : cost
  }

  /** Returns what a call costs the owner at a rate: network cost and the cut of its app. */
  function ownerCostAt({ feeWei, session }: SignerCall, at: EthRate): bigint {
    const { appId: app } = userOf(session.plan.user)
    const cut = payers.find((payer) => payer.appId === app)?.cut ?? 0n
    const network = computePrice(wei(feeWei), at)
    return network + (network * cut) / wholeCut
  }

  /** Like `promisedCost`, for the owner. */
  function promisedOwnerCost(call: SignerCall, toldRate: EthRate | null): bigint {
    const ms = Number(call.lastUpdate / nanosPerMs)
    const last = observations.findLast(({ atMs }) => atMs <= ms)?.rate ?? rate
    const cost = ownerCostAt(call, toldRate !== null && toldRate < last ? toldRate : last)
    const { appId: app } = userOf(call.session.plan.user)
    const cut = payers.find((payer) => payer.appId === app)?.cut ?? 0n
    const untyped = BigInt(world.untypedUsdMicros ?? 0) * attosPerMicro
    const most = untyped + (untyped * cut) / wholeCut
    return call.session.plan.type === '' && most < cost ? most : cost
  }

  /** Returns what a call costs the owner at the rate of its time. */
  function ownerCostNow(call: SignerCall): bigint {
    const ms = Number(call.lastUpdate / nanosPerMs)
    return ownerCostAt(call, observations.findLast(({ atMs }) => atMs <= ms)?.rate ?? rate)
  }

  /**
   * True if a period of its user ended between the signing of a call and `at`. Core's clock may be
   * a little ahead.
   */
  function isAcross({ session, lastUpdate }: SignerCall, at: number): boolean {
    const endsMs = world.users[session.plan.user]?.periodEndsMs ?? Infinity
    return Number(lastUpdate / nanosPerMs) - epochMs < endsMs && at > endsMs - coreSkewMs
  }

  /** Returns the cost of a call at the rate of its time, in atto-dollars. */
  function costNow({ session, lastUpdate, feeWei }: SignerCall): bigint {
    const ms = Number(lastUpdate / nanosPerMs)
    const now = observations.findLast(({ atMs }) => atMs <= ms)?.rate ?? rate
    return computeRetail(wei(feeWei), now, ratioOf(userOf(session.plan.user).userId))
  }

  return {
    users,
    owner,
    payers,
    ceilings: [...world.users, ...(world.owner ? [world.owner] : [])].map(({ ceiling }) => ceiling),
    ratioOf,
    costNow,
    isAcross,
    userOf,
    authIdOf: (index: number) => `${userOf(index).clientId}:${userOf(index).externalUserId}`,
    observe,
    published: published as readonly Observation[],
    priceAt,
    findRate,
    promisedCost,
    ownerCostAt,
    promisedOwnerCost,
    ownerCostNow,
    changeRate: (usdPerEth: number): void => void (rate = rateOf(usdPerEth)),
    startOutage: (until: number): void => void (outageUntil = Math.max(outageUntil, until)),
    endOutage: (): void => void (outageUntil = 0),
  }
}

export type World = ReturnType<typeof createWorld>

const rateOf = (usdPerEth: number): EthRate => ethRate(BigInt(usdPerEth) * attosPerUsd)
