import { availableParallelism } from 'node:os'
import { describe, expect, it } from 'vitest'
import { mutations } from './mutations.ts'
import { failureText, runSeeds } from './run.ts'

/** Seeds of the rule; `npm run simulate` runs any number of them. */
const seeds = Number(process.env['SIMULATION_SEEDS'] ?? 10_000)
const workers = Math.min(4, availableParallelism())
const limitMs = 600_000

describe('a simulation of cores, sidecars, signers and their faults', () => {
  it(
    'never authorises more than what is there',
    async () => {
      const run = await runSeeds({ from: 0, seeds, workers })
      expect(run.failures.map(failureText)).toEqual([])
      expect(run.seeds).toBe(seeds)
      // A checker of nothing would hold, too.
      expect(run.allowed).toBeGreaterThan(seeds * 5)
    },
    limitMs,
  )

  it.each(Object.keys(mutations))(
    'finds a defect that %s',
    async (mutation) => {
      const { failures } = await runSeeds({ from: 0, seeds: 10_000, workers, mutation })
      expect(failures).not.toEqual([])
    },
    limitMs,
  )
})
