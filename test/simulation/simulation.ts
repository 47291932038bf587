import { spendableAt } from '../../core/balances/accounts/credits.ts'
import { type UsdAttos, networkRatio, usdAttos } from '../../core/lib/money.ts'
import { createRandom } from '../support/random.ts'
import { type TicketEvent, createBroker } from './actors/broker.ts'
import { createClients } from './actors/clients.ts'
import { createCores } from './actors/core.ts'
import { createDatabase } from './actors/database.ts'
import { createEarlyRefusals } from './early-refusal.ts'
import { createFleet } from './actors/fleet.ts'
import { createHistory } from './history.ts'
import type { Mutation } from './mutations.ts'
import { createNetwork } from './actors/network.ts'
import type { Action, OwnerPlan, Plan, UserPlan } from './plan.ts'
import { createRule } from './rule.ts'
import { createScheduler } from './scheduler.ts'
import { createSidecars } from './actors/sidecar.ts'
import { createSteps } from './actors/steps.ts'
import { createTruth } from './truth.ts'
import { type VirtualTime, epochMs } from './virtual-time.ts'
import { attosPerMicro, createWorld, observeMs } from './actors/world.ts'

export interface Outcome {
  /** The broken rule; null if the rule held after every event. */
  readonly violation: string | null
  /** When the simulation ended, in milliseconds from its start. */
  readonly atMs: number
  readonly events: number
  readonly allowed: number
  readonly lines: readonly string[]
}

export interface SimulationOptions {
  readonly virtualTime: VirtualTime
  readonly keepsHistory?: boolean
  /** A defect to find. */
  readonly mutation?: Mutation
}

const leastOf = (amount: bigint, other: bigint | null): bigint =>
  other !== null && other < amount ? other : amount

/** An owner has money and terms like a user. */
const toUserPlan = ({ granted, ...terms }: OwnerPlan): UserPlan => ({
  ...terms,
  isLimited: false,
  grants: granted === 0 ? [] : [{ micros: granted, featureKey: null }],
})

const attosOf = (micros: number): UsdAttos => usdAttos(BigInt(micros) * attosPerMicro)

/** Time before the first step, in which processes start and accounts are opened. */
const warmUpMs = 500
const upkeepMs = 1_500
/** As in production. */
const ownerRecallMs = 500

/** Runs one plan and checks the rule after every event. */
export async function simulate(plan: Plan, options: SimulationOptions): Promise<Outcome> {
  const setting = createSetting(plan, options)
  const { scheduler, rule, history, fault } = setting
  let events = 0

  async function runUntil(until: number): Promise<string | null> {
    while (await scheduler.step(until)) {
      events += 1
      const problem = fault() ?? rule.check(scheduler.now())
      if (problem) return problem
    }
    return null
  }

  let violation: string | null = null
  for (const phase of phasesOf(plan, setting)) {
    violation ??= (await runUntil(phase.until)) ?? phase.end()
    if (violation) break
  }
  if (violation) history.note(scheduler.now(), `VIOLATION: ${violation}`)
  return {
    violation,
    atMs: scheduler.now(),
    events,
    allowed: setting.allowed(),
    lines: history.lines,
  }
}

interface Phase {
  /** True time in milliseconds. */
  readonly until: number
  /** Ends the phase. Returns a problem, or null. */
  readonly end: () => string | null
}

/**
 * Yields the plan's steps first. Then everything heals and comes to rest, and users spend what they
 * have left.
 */
function* phasesOf(plan: Plan, setting: Setting): Generator<Phase> {
  const { scheduler, heal, stopSidecars, strandedMoney, upkeep } = setting
  const pass = (): null => null
  const { world } = plan
  const { leaseSeconds, lagSeconds, holdMaxSeconds } = world
  setting.begin()
  yield { until: warmUpMs + world.activeMs, end: pass }
  yield { until: heal() + 2_000, end: () => (setting.price(), null) }
  yield {
    until: scheduler.now() + (plan.seed % 4 === 0 ? 12_000 : 1_000),
    end: () => (stopSidecars(), null),
  }
  yield { until: scheduler.now() + 3_000, end: () => (setting.rest(), null) }
  // Holds from a time when the database's clock was ahead last longer by that difference.
  const jumpsMs = plan.steps.reduce(
    (sum, step) => (step.kind === 'database jump' ? sum + Math.abs(step.byMs) : sum),
    0,
  )
  const restMs =
    (Math.max(leaseSeconds + 6 + lagSeconds, holdMaxSeconds) + 15) * 1_000 + 2 * jumpsMs
  for (let part = 1; part <= 6; part++)
    yield { until: scheduler.now() + restMs / 6, end: () => (upkeep(), null) }
  yield { until: scheduler.now() + 100, end: strandedMoney }
  yield { until: scheduler.now() + 1, end: () => (setting.probe(), null) }
  yield { until: scheduler.now() + 8_000, end: setting.refusedProbe }
  yield { until: scheduler.now(), end: pass }
}

const disconnecting: ReadonlySet<Action['kind']> = new Set([
  'kill',
  'freeze',
  'suspend',
  'stop',
  'impostor',
  'cut',
  'lossy',
  'slow',
  'jump',
  'database jump',
])

/** Whether all processes reach each other at all times, so that a recall takes no longer than it should. */
const isConnected = ({ steps }: Plan): boolean => !steps.some(({ kind }) => disconnecting.has(kind))

type Setting = ReturnType<typeof createSetting>

function createSetting(
  plan: Plan,
  { virtualTime, keepsHistory = false, mutation = {} }: SimulationOptions,
) {
  const scheduler = createScheduler()
  const draw = (stream: number) => createRandom(plan.seed * 16 + stream)
  const common = draw(0)
  virtualTime.run(scheduler, () => common.below(2 ** 30) / 2 ** 30)
  const history = createHistory(keepsHistory)
  const network = createNetwork(scheduler, draw(1))
  const world = createWorld(plan)
  const database = createDatabase(mutation)
  const { lagSeconds, holdMaxSeconds, leaseSeconds } = plan.world
  // Core waits 6 s after a lease's end. A reserved call is answered within 10 s.
  const leaseMs = (leaseSeconds + 12) * 1_000
  const promises = {
    leaseMs,
    ownerRecallMs: isConnected(plan) ? 1_000 : leaseMs,
    lagMs: lagSeconds * 1_000,
    holdMaxMs: holdMaxSeconds * 1_000,
    toleranceMs: 1_000,
  }
  const ownerId = world.owner?.userId ?? null
  const truth = createTruth(promises, ownerId)
  const rule = createRule(truth, database, ownerId)
  for (const payer of world.payers) database.payers.set(payer.appId, payer)
  const shared = { plan, mutation, scheduler, network, database, world, truth, history }
  const cores = createCores({
    ...shared,
    recall: (from, userId) => {
      for (const { process, recall } of fleet.sidecars)
        network.send(from, process, () => recall(userId))
    },
    recallApp: (from, appId) => {
      const client = world.users.find((user) => user.appId === appId)?.clientId ?? ''
      for (const { process, recallApp } of fleet.sidecars)
        network.send(from, process, () => recallApp(client))
    },
  })
  const sidecars = createSidecars({ ...shared, core: () => fleet.anyCore(common.below(2)) })
  const fleet = createFleet({ ...shared, startCore: cores.start, startSidecar: sidecars.start })
  const broker = createBroker(scheduler, draw(2), book)
  let problem: string | null = null
  let allowed = 0
  const refusedProbes: string[] = []
  const clients = createClients({
    ...shared,
    random: draw(3),
    fleet,
    broker,
    onAnswer: (call, answer) => {
      if (answer.status === 200) allowed += 1
      problem ??= earlyRefusal(call, answer, scheduler.now())
    },
  })
  const earlyRefusal = createEarlyRefusals({ ...shared, waiting: () => clients.waiting })
  const perform = createSteps({ ...shared, broker, fleet, clients })

  function book(events: readonly TicketEvent[]): void {
    const core = fleet.liveCore()
    if (!core) return void scheduler.schedule(null, 500, () => book(events))
    scheduler.schedule(core.process, 0, () => {
      for (const { call } of events)
        history.note(
          scheduler.now(),
          `${core.process.name} reads the ticket of call ${call.sequence} of session ${call.session.id}`,
        )
      guard(core.ingest(events))
    })
  }

  const guard = (work: Promise<unknown>): void =>
    void work.catch((error: unknown) => {
      problem ??= error instanceof Error ? (error.stack ?? error.message) : String(error)
    })

  const withCore = (work: (core: ReturnType<typeof cores.start>) => Promise<unknown>): void => {
    const core = fleet.liveCore()
    if (core) scheduler.schedule(core.process, 0, () => guard(work(core)))
  }

  function begin(): void {
    fleet.start()
    repeat(observeMs, () => {
      world.observe(scheduler.now())
      withCore((core) => core.price())
    })
    repeat(upkeepMs, upkeep)
    if (plan.world.owner) repeat(ownerRecallMs, recallForOwners)
    plan.world.users.forEach((terms, index) => openUser(terms, index))
    if (plan.world.owner) openUser(toUserPlan(plan.world.owner), plan.world.users.length)
    for (const step of plan.steps) scheduler.schedule(null, warmUpMs + step.at, () => perform(step))
  }

  let isResting = false
  function repeat(ms: number, work: () => void): void {
    const round = (): void => {
      if (isResting) return
      work()
      scheduler.schedule(null, ms, round)
    }
    scheduler.schedule(null, 0, round)
  }

  function openUser(
    {
      included,
      includedNext,
      ceiling,
      periodEndsMs,
      isLimited,
      grants,
    }: Plan['world']['users'][number],
    index: number,
  ): void {
    const user = world.userOf(index)
    truth.openUser({ ...user, includedNext: attosOf(includedNext), ceiling: 0n })
    if (isLimited) database.limited.add(user.userId)
    database.terms.set(user.userId, {
      userId: user.userId,
      // The plan sets the end of the period that contains the start.
      anchorAt: new Date(epochMs + periodEndsMs - 86_400_000),
      cycle: 'daily',
      planId: 'plan',
      planVersion: 1,
      includedAttos: attosOf(included),
      next: { at: new Date(epochMs + periodEndsMs), includedAttos: attosOf(includedNext) },
    })
    scheduler.schedule(null, 1, () =>
      withCore(async (core) => {
        await core.open(user)
        if (ceiling > 0) await core.limitDebt(user, attosOf(ceiling))
        for (const { micros, featureKey } of grants)
          await core.grant(user, attosOf(micros), featureKey)
      }),
    )
  }

  const upkeep = (): void => {
    for (const core of fleet.cores) scheduler.schedule(core.process, 0, () => guard(core.upkeep()))
  }

  const recallForOwners = (): void => {
    for (const core of fleet.cores)
      scheduler.schedule(core.process, 0, () => guard(core.recallForOwners()))
  }

  function heal(): number {
    history.note(scheduler.now(), 'everything heals')
    network.heal()
    broker.heal()
    world.endOutage()
    database.clock.skewMs = 0
    withCore((core) => core.price())
    return fleet.heal()
  }

  function price(): void {
    world.observe(scheduler.now())
    withCore((core) => core.price())
  }

  function stopSidecars(): void {
    fleet.sidecars.forEach((_, index) => fleet.stop(index, null))
  }

  function rest(): void {
    isResting = true
  }

  function strandedMoney(): string | null {
    for (const [userId, { lent, pending }] of database.accounts)
      if (lent > 0n || pending > 0n)
        return `at rest ${userId} has ${lent} attos lent and ${pending} pending`
    return null
  }

  /** Makes one call for each user, for most of what is left. */
  function probe(): void {
    fleet.heal()
    world.observe(scheduler.now())
    const at = new Date(epochMs + scheduler.now())
    world.users.forEach(({ userId }, index) => {
      const account = database.accounts.get(userId)
      const own = account
        ? spendableAt(account.credits, at) + truth.creditLine(userId, account)
        : 0n
      const left = leastOf(own, ownerShare(index, at))
      if (left < attosPerMicro) return
      const name = `${userId} with ${left} attos`
      refusedProbes.push(name)
      scheduler.schedule(null, 1_500, () =>
        clients.spend(index, (left * 9n) / 10n, () => {
          refusedProbes.splice(refusedProbes.indexOf(name), 1)
        }),
      )
    })
  }

  /** Returns the part of the owner's money that each user may spend, at the user's retail price. */
  function ownerShare(index: number, at: Date): bigint | null {
    const account = world.owner && database.accounts.get(world.owner.userId)
    if (!account) return null
    const { appId, userId } = world.userOf(index)
    const cut = database.payers.get(appId)?.cut ?? 0n
    const money = spendableAt(account.credits, at) + truth.creditLine(account.userId, account)
    const network = (money * 10_000n) / (BigInt(world.users.length) * (10_000n + cut))
    return (network * world.ratioOf(userId)) / networkRatio
  }

  const refusedProbe = (): string | null =>
    refusedProbes.length > 0 ? `at rest this user is refused: ${refusedProbes.join(', ')}` : null

  return {
    scheduler,
    rule,
    history,
    fault: () => problem,
    allowed: () => allowed,
    begin,
    heal,
    price,
    stopSidecars,
    rest,
    upkeep,
    strandedMoney,
    probe,
    refusedProbe,
  }
}
