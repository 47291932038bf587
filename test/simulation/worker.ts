import { parentPort, workerData } from 'node:worker_threads'
import { installSourceMutation, sourceMutations } from './source-mutations.ts'
import { installVirtualTime } from './virtual-time.ts'

/** Runs seeds in a separate thread, because virtual time replaces the thread's timers. */

export interface SeedsRequest {
  readonly from: number
  readonly count: number
  /** False if only the failure is needed. */
  readonly shrinks: boolean
}

export interface Failure {
  readonly seed: number
  readonly violation: string
  /** The shortest history that still fails. */
  readonly lines: readonly string[]
}

export interface SeedsAnswer {
  readonly count: number
  readonly events: number
  readonly allowed: number
  readonly failure: Failure | null
}

const name = String(workerData)
const source = sourceMutations[name]
if (source) installSourceMutation(source)
const virtualTime = installVirtualTime()
const { mutations } = await import('./mutations.ts')
const { planOf } = await import('./plan.ts')
const { shrink } = await import('./shrink.ts')
const { simulate } = await import('./simulation.ts')

const mutation = mutations[name] ?? {}
const options = { virtualTime, mutation }

/** Runs seeds up to the first that fails. */
async function runSeeds({ from, count, shrinks }: SeedsRequest): Promise<SeedsAnswer> {
  let [events, allowed] = [0, 0]
  for (let seed = from; seed < from + count; seed++) {
    const outcome = await simulate(planOf(seed), options)
    const { violation, lines } = outcome
    events += outcome.events
    allowed += outcome.allowed
    if (violation === null) continue
    const failure = shrinks ? await shortest(seed) : { seed, violation, lines }
    return { count: seed - from + 1, events, allowed, failure }
  }
  return { count, events, allowed, failure: null }
}

async function shortest(seed: number): Promise<Failure> {
  const plan = await shrink(
    planOf(seed),
    async (candidate) => (await simulate(candidate, options)).violation !== null,
  )
  const { violation, lines } = await simulate(plan, { ...options, keepsHistory: true })
  return { seed, violation: violation ?? 'nothing, the second time', lines }
}

parentPort?.on('message', (request: SeedsRequest) => {
  void runSeeds(request).then((answer) => parentPort?.postMessage(answer, []))
})
