import { type Random, createRandom } from '../support/random.ts'

/**
 * The input of one simulation: the initial world, and steps in order of time. Everything else is
 * deterministic, so a plan determines a history, and a plan with fewer steps a shorter one.
 */
export interface Plan {
  readonly seed: number
  readonly world: World
  readonly steps: readonly Step[]
}

export interface World {
  /** There are no faults, so no call may be refused too early. */
  readonly isCalm: boolean
  /** Sessions change their sidecar between calls. */
  readonly roams: boolean
  /** All steps are within this time. Then everything heals and comes to rest. */
  readonly activeMs: number
  readonly leaseSeconds: number
  readonly lagSeconds: number
  readonly holdMaxSeconds: number
  readonly lostTickets: 'write_off' | 'charge'
  /** Micro-dollars; null if untyped calls are refused. */
  readonly untypedUsdMicros: number | null
  readonly usdPerEth: number
  /** Wall clocks minus true time, in milliseconds; one for each process. */
  readonly cores: readonly number[]
  readonly sidecars: readonly number[]
  readonly signers: readonly number[]
  readonly users: readonly UserPlan[]
  readonly sessions: readonly SessionPlan[]
  /** The payer of the users' apps; null without one. */
  readonly owner: OwnerPlan | null
}

export interface UserPlan {
  /** Micro-dollars of included usage in each period; may be 0. */
  readonly included: number
  /** The same from the second period on. */
  readonly includedNext: number
  /** Micro-dollars of debt that the user may run up; 0 without a credit line. */
  readonly ceiling: number
  /** End of the first period. */
  readonly periodEndsMs: number
  /** With a limit, each call is reserved at core. */
  readonly isLimited: boolean
  /** Money given at the start. */
  readonly grants: readonly { readonly micros: number; readonly featureKey: string | null }[]
}

/** An owner, whose account pays the owner charge of each call. Steps name it as the user after the last. */
export interface OwnerPlan {
  /** Micro-dollars, as of a user. */
  readonly included: number
  readonly includedNext: number
  readonly ceiling: number
  readonly periodEndsMs: number
  /** Micro-dollars given at the start. */
  readonly granted: number
  /** One or two; users belong to them in turn. */
  readonly apps: number
  /** The platform's cut of each app, in hundredths of a percent. */
  readonly cuts: readonly bigint[]
}

export interface SessionPlan {
  readonly user: number
  readonly signer: number
  readonly type: 'live' | 'lv2v' | 'fixed' | ''
  /** Wei for `units` units. */
  readonly price: bigint
  readonly units: bigint
  /**
   * Units of each call of an untyped session. The client chooses them; the operator sets the most
   * that they can cost.
   */
  readonly untypedUnits: bigint
  /**
   * Signed by v0.8.11: its state has no application, and the event's time differs from the state's.
   */
  readonly isOld: boolean
}

export type Step = { readonly at: number } & Action

export type Action =
  /** `back` is how many states before the newest one are skipped; null starts the session again. */
  | {
      readonly kind: 'call'
      readonly session: number
      readonly sidecar: number
      readonly back: number | null
    }
  /** Like `call`, but the signer fails after the call was allowed. */
  | {
      readonly kind: 'unsigned call'
      readonly session: number
      readonly sidecar: number
      readonly back: number | null
    }
  | {
      // A suspended process is frozen with its machine, and its monotonic clock stops.
      readonly kind: 'kill' | 'freeze' | 'suspend'
      readonly role: Role
      readonly index: number
      readonly ms: number
    }
  /** A sidecar stops cleanly and starts again after `ms`. */
  | { readonly kind: 'stop'; readonly index: number; readonly ms: number }
  /** Another process with this sidecar's id starts, and stops after `ms`. */
  | { readonly kind: 'impostor'; readonly index: number; readonly ms: number }
  | { readonly kind: 'cut'; readonly sidecar: number; readonly core: number; readonly ms: number }
  | {
      readonly kind: 'lossy'
      readonly sidecar: number
      readonly percent: number
      readonly ms: number
    }
  | { readonly kind: 'slow'; readonly sidecar: number; readonly byMs: number; readonly ms: number }
  /** The clock of a process jumps. */
  | { readonly kind: 'jump'; readonly role: Role; readonly index: number; readonly byMs: number }
  | { readonly kind: 'database jump'; readonly byMs: number }
  /** Delivers no events for `ms`, then all events. */
  | { readonly kind: 'stall'; readonly ms: number }
  | { readonly kind: 'lose events'; readonly percent: number; readonly ms: number }
  | { readonly kind: 'delay events'; readonly byMs: number; readonly ms: number }
  /** The broker delivers all events since the start again. */
  | { readonly kind: 'replay events' }
  | { readonly kind: 'rate'; readonly usdPerEth: number }
  | { readonly kind: 'rate outage'; readonly ms: number }
  | { readonly kind: 'grant'; readonly user: number; readonly micros: number }
  | { readonly kind: 'debit'; readonly user: number; readonly micros: number }
  /** The user's card cannot be charged for `ms`. */
  | { readonly kind: 'card lost'; readonly user: number; readonly ms: number }
  | { readonly kind: 'ceiling'; readonly user: number; readonly micros: number }
  /** Part of the debt is collected. */
  | { readonly kind: 'charge paid'; readonly user: number; readonly percent: number }
  /** The card is declined, and no longer counts as chargeable. */
  | { readonly kind: 'charge failed'; readonly user: number }
  /** Part of what was collected goes back to the user. */
  | { readonly kind: 'refund'; readonly user: number; readonly percent: number }
  /** The app's billing mode changes for `ms`; in the other one, its users have no credit lines. */
  | { readonly kind: 'mode change'; readonly ms: number }

export type Role = 'core' | 'sidecar' | 'signer'

type Fault =
  | 'network'
  | 'processes'
  | 'events'
  | 'lateEvents'
  | 'clocks'
  | 'coreClocks'
  | 'databaseClock'
  | 'suspensions'
  | 'rates'
  | 'operators'
  | 'debts'
  | 'replays'
  | 'unsigned'

type Faults = Readonly<Record<Fault | 'isCalm', boolean>>

/** Returns the plan of a seed. */
export function planOf(seed: number): Plan {
  const random = createRandom(seed)
  const faults = drawFaults(random)
  const world = drawWorld(random, faults)
  const steps = [...drawCalls(random, world, faults), ...drawFaultSteps(random, world, faults)]
  return { seed, world, steps: steps.toSorted((a, b) => a.at - b.at) }
}

/** A seventh of the seeds has no faults. In these, no call may be refused too early. */
function drawFaults(random: Random): Faults {
  const isCalm = random.chance(1 / 7)
  const one = (probability: number): boolean => random.chance(probability) && !isCalm
  const faults = {
    isCalm,
    network: one(0.4),
    processes: one(0.5),
    events: one(0.5),
    lateEvents: one(0.15),
    clocks: one(0.3),
    rates: one(0.25),
    operators: one(0.4),
    debts: one(0.5),
    replays: one(0.5),
    unsigned: one(0.4),
    coreClocks: one(0.3),
    suspensions: one(0.06),
  }
  // The rule covers a jump only while a core runs, the stream moves and no period ends.
  const { processes, events, lateEvents, operators } = faults
  const isSteady = !processes && !events && !lateEvents && !operators
  return { ...faults, databaseClock: one(0.4) && isSteady }
}

const between = (random: Random, from: number, to: number): number =>
  from + random.below(to - from + 1)

/** Draws evenly over the orders of magnitude. */
const magnitude = (random: Random, from: number, to: number): number =>
  Math.round(from * (to / from) ** (random.below(1_000_001) / 1_000_000))

const several = <T>(count: number, draw: (index: number) => T): T[] =>
  Array.from({ length: count }, (_, index) => draw(index))

function drawWorld(random: Random, faults: Faults): World {
  const skew = (): number => (faults.clocks ? between(random, -2_000, 2_000) : 0)
  const coreSkew = (): number =>
    faults.coreClocks && random.chance(0.5) ? drawError(random) : Math.trunc(skew() / 8)
  // Long enough for core to give up the leases of a suspended sidecar and lend their money again.
  const { suspensions } = faults
  const activeMs = suspensions ? between(random, 25_000, 40_000) : magnitude(random, 2_500, 20_000)
  const users = several(between(random, 1, 3), () => drawUser(random, activeMs, faults))
  const signers = several(between(random, 1, 2), skew)
  const untypedUsdMicros = random.chance(0.8) ? magnitude(random, 1_000, 500_000) : null
  const owners = { users: users.length, signers: signers.length, untypedUsdMicros }
  return {
    isCalm: faults.isCalm,
    roams: random.chance(0.4),
    activeMs,
    leaseSeconds: suspensions ? 5 : random.pick([5, 8, 20]),
    lagSeconds: suspensions ? 3 : random.pick([3, 5, 10]),
    holdMaxSeconds: random.pick([30, 60, 1_200]),
    lostTickets: random.pick(['write_off', 'charge']),
    untypedUsdMicros,
    usdPerEth: between(random, 1_000, 5_000),
    cores: several(between(random, 1, 2), coreSkew),
    sidecars: several(random.pick([1, 1, 2, 2, 3]), skew),
    signers,
    users,
    sessions: several(between(random, 1, 8), () => drawSession(random, owners)),
    owner: random.chance(0.5) ? drawOwner(random, activeMs, faults) : null,
  }
}

function drawOwner(random: Random, activeMs: number, { operators, isCalm }: Faults): OwnerPlan {
  const micros = (): number => magnitude(random, 2_000, 5_000_000)
  const included = random.chance(0.6) ? micros() : 0
  const endsWithin = (operators || isCalm) && random.chance(0.5)
  return {
    included,
    includedNext: random.chance(0.3) ? Math.round(included / 10) : included,
    ceiling: random.chance(0.5) ? magnitude(random, 1_000, 2_000_000) : 0,
    periodEndsMs: endsWithin ? between(random, 1_000, activeMs + 20_000) : 20 * 3_600_000,
    granted: included === 0 || random.chance(0.5) ? micros() : 0,
    apps: between(random, 1, 2),
    cuts: [random.pick([0n, 1_000n, 3_333n]), random.pick([0n, 2_500n])],
  }
}

/** Users and the owner, as steps name them. */
const accountsOf = ({ users, owner }: World): number => users.length + (owner ? 1 : 0)

function drawUser(random: Random, activeMs: number, { operators, isCalm }: Faults): UserPlan {
  const hasPlan = random.chance(0.5)
  const micros = (): number => magnitude(random, 1_000, 5_000_000)
  const grants = several(between(random, hasPlan ? 0 : 1, 2), () => ({
    micros: micros(),
    featureKey: random.chance(0.2) ? 'live-video-to-video' : null,
  }))
  const endsWithin = (operators || isCalm) && random.chance(0.5)
  const included = hasPlan ? micros() : 0
  const isReduced = hasPlan && !isCalm && random.chance(0.3)
  return {
    included,
    includedNext: isReduced ? Math.round(included / 10) : included,
    ceiling: random.chance(0.4) ? magnitude(random, 1_000, 2_000_000) : 0,
    periodEndsMs: endsWithin ? between(random, 1_000, activeMs + 20_000) : 20 * 3_600_000,
    isLimited: random.chance(0.1),
    grants,
  }
}

// At the lowest rate of a world.
const weiPerMicro = 1_000_000_000n

interface Owners {
  readonly users: number
  readonly signers: number
  readonly untypedUsdMicros: number | null
}

function drawSession(random: Random, { users, signers, untypedUsdMicros }: Owners): SessionPlan {
  const type = random.pick(['live', 'live', 'live', 'lv2v', 'fixed', 'fixed', ''] as const)
  // Micro-dollars per second, or per call.
  const micros = BigInt(magnitude(random, 1, type === 'fixed' ? 400_000 : 40_000))
  const units = random.chance(0.3) ? BigInt(between(random, 2, 9)) : 1n
  const pixels = type === 'lv2v' ? 27_648_000n : 1n
  // A price per pixel is seldom exact in whole wei.
  const price = (micros * weiPerMicro * units) / pixels + 1n
  // At the highest rate of a world, which is 5 × 1.4 times the lowest.
  const mostWei = (BigInt(untypedUsdMicros ?? 1_000) * weiPerMicro) / 7n
  const mostUnits = Number((mostWei * units) / price)
  const isUntyped = type === '' && mostUnits >= 1
  return {
    user: random.below(users),
    signer: random.below(signers),
    type: type === '' && !isUntyped ? 'fixed' : type,
    price,
    units,
    untypedUnits: BigInt(1 + random.below(Math.max(1, Math.min(mostUnits, 1_000_000)))),
    isOld: isUntyped && random.chance(0.3),
  }
}

/**
 * Draws calls. Sessions pay at their own pace, sometimes in bursts. A replay presents an older
 * state, or starts the session again.
 */
function drawCalls(random: Random, world: World, faults: Faults): Step[] {
  const home = world.sessions.map(() => random.below(world.sidecars.length))
  const count = magnitude(random, 8, 70)
  return several(count, (): Step => {
    const session = random.below(world.sessions.length)
    const sidecar = world.roams ? random.below(world.sidecars.length) : (home[session] ?? 0)
    const isReplay = faults.replays && random.chance(0.2)
    const back = random.chance(0.03) ? null : isReplay ? between(random, 1, 4) : 0
    const kind = faults.unsigned && random.chance(0.15) ? 'unsigned call' : 'call'
    return { at: random.below(world.activeMs), kind, session, sidecar, back }
  }).flatMap((call) => (random.chance(0.1) ? burstOf(random, call) : [call]))
}

const burstOf = (random: Random, call: Step): Step[] =>
  several(between(random, 2, 6), () => ({ ...call, at: call.at + random.below(30) }))

function drawFaultSteps(random: Random, world: World, faults: Faults): Step[] {
  const at = (): number => random.below(world.activeMs)
  const ms = (from: number, to: number): number => magnitude(random, from, to)
  const some = (isOn: boolean, most: number, draw: () => Action): Step[] =>
    isOn ? several(random.below(most + 1), () => ({ at: at(), ...draw() })) : []
  return [
    ...some(faults.network, 3, () => drawNetworkFault(random, world, ms)),
    ...some(faults.processes, 4, () => drawProcessFault(random, world, ms)),
    ...some(faults.events, 3, () => drawEventFault(random, world, ms)),
    ...some(faults.lateEvents, 2, () => ({
      kind: 'delay events',
      byMs: ms(1_000, 4 * world.lagSeconds * 1_000),
      ms: ms(100, 20_000),
    })),
    ...some(faults.clocks, 2, () => ({
      kind: 'jump',
      role: random.pick(['sidecar', 'signer'] as const),
      index: random.below(2),
      byMs: between(random, -3_000, 3_000),
    })),
    ...some(faults.suspensions, 3, () => ({
      kind: 'suspend',
      role: 'sidecar',
      index: random.below(world.sidecars.length),
      ms: between(random, 12_000, 35_000),
    })),
    ...some(faults.rates, 3, () => drawRateFault(random, world, ms)),
    ...(faults.coreClocks ? drawJumps(random, world, drawCoreJump) : []),
    ...(faults.databaseClock ? drawJumps(random, world, drawDatabaseJump) : []),
    ...some(faults.operators, 3, () => ({
      kind: random.pick(['grant', 'grant', 'debit'] as const),
      user: random.below(world.users.length),
      micros: magnitude(random, 1_000, 2_000_000),
    })),
    ...some(faults.debts, 5, () => drawDebtStep(random, world, ms)),
  ]
}

/** Draws the error of a clock that was set wrong, in milliseconds: up to ten minutes. */
const drawError = (random: Random): number =>
  magnitude(random, 2_000, 600_000) * random.pick([1, 1, -1])

type Jump = Extract<Action, { readonly byMs: number; readonly kind: 'jump' | 'database jump' }>

const drawCoreJump = (random: Random, world: World): Jump => ({
  kind: 'jump',
  role: 'core',
  index: random.below(world.cores.length),
  byMs: drawError(random),
})

const drawDatabaseJump = (random: Random): Jump => ({
  kind: 'database jump',
  byMs: drawError(random),
})

/** Draws jumps of clocks. Most clocks jump back after some seconds. */
function drawJumps(
  random: Random,
  world: World,
  draw: (random: Random, world: World) => Jump,
): Step[] {
  return several(random.below(3), (): Step[] => {
    const [at, jump] = [random.below(world.activeMs), draw(random, world)]
    const backAt = Math.min(at + magnitude(random, 500, 20_000), world.activeMs - 1)
    const there: Step = { at, ...jump }
    return random.chance(0.7) ? [there, { ...there, at: backAt, byMs: -jump.byMs }] : [there]
  }).flat()
}

type Duration = (from: number, to: number) => number

function drawDebtStep(random: Random, world: World, ms: Duration): Action {
  const user = random.below(accountsOf(world))
  const percent = random.pick([10, 50, 100])
  return random.pick<() => Action>([
    () => ({ kind: 'card lost', user, ms: ms(100, 20_000) }),
    () => ({ kind: 'ceiling', user, micros: magnitude(random, 1_000, 2_000_000) }),
    () => ({ kind: 'charge paid', user, percent }),
    () => ({ kind: 'charge paid', user, percent }),
    () => ({ kind: 'charge failed', user }),
    () => ({ kind: 'refund', user, percent }),
    () => ({ kind: 'mode change', ms: ms(100, 20_000) }),
  ])()
}

function drawNetworkFault(random: Random, world: World, ms: Duration): Action {
  const sidecar = random.below(world.sidecars.length)
  const kind = random.pick(['cut', 'lossy', 'slow'] as const)
  if (kind === 'cut')
    return { kind, sidecar, core: random.below(world.cores.length), ms: ms(100, 60_000) }
  if (kind === 'lossy')
    return { kind, sidecar, percent: between(random, 5, 90), ms: ms(100, 30_000) }
  return { kind, sidecar, byMs: ms(50, 6_000), ms: ms(100, 30_000) }
}

function drawProcessFault(random: Random, world: World, ms: Duration): Action {
  const role = random.pick(['sidecar', 'sidecar', 'core', 'signer'] as const)
  const index = random.below(
    { core: world.cores, sidecar: world.sidecars, signer: world.signers }[role].length,
  )
  const kinds = ['kill', 'kill', 'freeze', 'suspend', 'stop', 'impostor'] as const
  const kind = random.pick(kinds)
  if (kind === 'stop' || kind === 'impostor')
    return { kind, index: random.below(world.sidecars.length), ms: ms(100, 20_000) }
  return { kind, role, index, ms: ms(50, kind === 'kill' ? 60_000 : 40_000) }
}

function drawEventFault(random: Random, world: World, ms: Duration): Action {
  const kind = random.pick([
    'stall',
    'lose events',
    'lose events',
    'delay events',
    'replay events',
  ] as const)
  if (kind === 'replay events') return { kind }
  if (kind === 'stall') return { kind, ms: ms(1_000, world.holdMaxSeconds * 700) }
  if (kind === 'lose events') return { kind, percent: between(random, 5, 100), ms: ms(100, 60_000) }
  // Within the lag, with the second that an event takes at most without a fault.
  return { kind, byMs: ms(100, world.lagSeconds * 1_000 - 2_000), ms: ms(100, 60_000) }
}

function drawRateFault(random: Random, world: World, ms: Duration): Action {
  if (random.chance(0.5)) return { kind: 'rate outage', ms: ms(1_000, 60_000) }
  return { kind: 'rate', usdPerEth: Math.round((world.usdPerEth * between(random, 70, 140)) / 100) }
}
