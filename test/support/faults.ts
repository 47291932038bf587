import type { Deployment } from './deployment.ts'
import type { RunningProcess } from './processes.ts'
import type { Random } from './random.ts'

type Blow = () => Promise<void>

const crash =
  (victim: () => RunningProcess | undefined): Blow =>
  async () => {
    const one = victim()
    await one?.kill()
    await one?.start()
  }

/** What happens to a service while it works, in an order of the seed's: kill -9, and what it stands on going away. */
export function blows({ core, sidecar, collectors, outages }: Deployment, random: Random): Blow[] {
  const ofCore = crash(() => core)
  if (!outages) return [ofCore, ofCore, crash(() => sidecar), ofCore]
  const ofCollector = crash(() => random.pick([...collectors]))
  const { database, broker } = outages
  // Both at once, too: a collector dies while the database is away.
  const both: Blow = async () => void (await Promise.all([ofCollector(), database()]))
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
