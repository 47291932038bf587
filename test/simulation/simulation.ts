import { spendableAt } from '../../core/allowances/account.ts'
import { usdAttos } from '../../core/lib/money.ts'
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
import type { Plan } from './plan.ts'
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

/** Time before the first step, in which processes start and accounts are opened. */
const warmUpMs = 500
const upkeepMs = 1_500

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
  const { lagSeconds, holdMaxSeconds } = plan.world
  const promises = {
    lagMs: lagSeconds * 1_000,
    holdMaxMs: holdMaxSeconds * 1_000,
    toleranceMs: 1_000,
  }
  const truth = createTruth(promises)
  const rule = createRule(truth, database)
  const shared = { plan, mutation, scheduler, network, database, world, truth, history }
  const cores = createCores({
    ...shared,
    recall: (from, userId) => {
      for (const { process, recall } of fleet.sidecars)
        network.send(from, process, () => recall(userId))
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
    plan.world.users.forEach((terms, index) => openUser(terms, index))
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
    { included, periodEndsMs, isLimited, grants }: Plan['world']['users'][number],
    index: number,
  ): void {
    const user = world.userOf(index)
    truth.openUser(user)
    if (isLimited) database.limited.add(user.userId)
    database.terms.set(user.userId, {
      userId: user.userId,
      // The plan sets the end of the period that contains the start.
      anchorAt: new Date(epochMs + periodEndsMs - 86_400_000),
      cycle: 'daily',
      planId: 'plan',
      planVersion: 1,
      includedAttos: BigInt(included) * attosPerMicro,
    })
    scheduler.schedule(null, 1, () =>
      withCore(async (core) => {
        await core.open(user)
        for (const { micros, featureKey } of grants)
          await core.grant(user, usdAttos(BigInt(micros) * attosPerMicro), featureKey)
      }),
    )
  }

  const upkeep = (): void => {
    for (const core of fleet.cores) scheduler.schedule(core.process, 0, () => guard(core.upkeep()))
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
      const left = account ? spendableAt(account.credits, at) : 0n
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
