import { once } from 'node:events'
import { availableParallelism } from 'node:os'
import { Worker } from 'node:worker_threads'
import { describe, expect, it, onTestFinished } from 'vitest'
import { checks } from './checks.ts'
import { mutations } from './mutations.ts'
import { failureText, runSeeds } from './run.ts'
import { sourceMutations } from './source-mutations.ts'
import { readSize } from '../support/run/sizes.ts'

/** Number of seeds for the rule. */
const seeds = readSize('TEST_HISTORIES')
const workers = Math.min(4, availableParallelism())
const limitMs = 600_000

/**
 * The seeds at which the search for a rare defect begins, a little before the first that finds it.
 * Seeds change their meaning with the actors; a search goes on for 10,000 seeds.
 */
const searchFrom: Readonly<Record<string, number>> = {
  'counts a payment of debt twice': 2_300,
  'ends a run by the time of its first call': 800,
  'forgets what is lent against a credit line': 600,
  'ignores a lower ceiling of the owner': 600,
  'leaves the leases of an owner that lost money': 9_500,
  'lends without taking it from the owner': 800,
  'spends the leases of a machine that was suspended': 400,
}

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
        from: searchFrom[mutation] ?? 0,
        seeds: 10_000,
        workers: 1,
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
