import type { Deployment } from './deployment.ts'
import type { RunningProcess } from './processes.ts'
import type { Random } from '../random.ts'

type Fault = () => Promise<void>

const crash =
  (victim: () => RunningProcess | undefined): Fault =>
  async () => {
    const one = victim()
    await one?.kill()
    await one?.start()
  }

/**
 * Returns faults to cause while a service works, in an order set by the seed: kill -9, and outages
 * of its database and broker.
 */
export function faultsOf(
  { core, sidecar, collectors, outages }: Deployment,
  random: Random,
): Fault[] {
  const ofCore = crash(() => core)
  if (!outages) return [ofCore, ofCore, crash(() => sidecar), ofCore]
  const ofCollector = crash(() => random.pick([...collectors]))
  const { database, broker } = outages
  // A collector dies during a database outage.
  const both: Fault = async () => void (await Promise.all([ofCollector(), database()]))
  return [
    ...shuffled([ofCore, ofCore, ofCollector, ofCollector, ofCollector, database, broker], random),
    both,
  ]
}

const shuffled = <T>(all: readonly T[], random: Random): T[] =>
  all
    .map((one) => ({ one, place: random.below(2 ** 31) }))
    .sort((a, b) => a.place - b.place)
    .map(({ one }) => one)
