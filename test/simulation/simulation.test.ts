import { once } from 'node:events'
import { availableParallelism } from 'node:os'
import { Worker } from 'node:worker_threads'
import { describe, expect, it, onTestFinished } from 'vitest'
import { checks } from './checks.ts'
import { mutations } from './mutations.ts'
import { failureText, runSeeds } from './run.ts'
import { sourceMutations } from './source-mutations.ts'

/** Number of seeds for the rule. `npm run simulate` runs any number. */
const seeds = Number(process.env['SIMULATION_SEEDS'] ?? 10_000)
const workers = Math.min(4, availableParallelism())
const limitMs = 600_000

describe('simulation of cores, sidecars, signers and faults', () => {
  it(
    'never authorises more money than there is',
    async () => {
      const run = await runSeeds({ from: 0, seeds, workers })
      expect(run.failures.map(failureText)).toEqual([])
      expect(run.seeds).toBe(seeds)
      // A simulation without allowed calls would pass, too.
      expect(run.allowed).toBeGreaterThan(seeds * 5)
    },
    limitMs,
  )

  it.each([
    ...Object.keys(mutations),
    ...Object.keys(sourceMutations).filter((name) => !(name in checks)),
  ])(
    'finds a defect that %s',
    async (mutation) => {
      const { failures } = await runSeeds({
        from: 0,
        seeds: 10_000,
        workers,
        mutation,
        shrinks: false,
      })
      expect(failures).not.toEqual([])
    },
    limitMs,
  )
})

describe('check of a single case', () => {
  it.each(Object.entries(checks))('finds a defect that %s', async (name, check) => {
    await check()
    const worker = new Worker(new URL('./check-worker.ts', import.meta.url), { workerData: name })
    onTestFinished(async () => void (await worker.terminate()))
    expect(await once(worker, 'message')).toEqual([true])
  })
})
