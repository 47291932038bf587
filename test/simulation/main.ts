import { availableParallelism } from 'node:os'
import { parseArgs } from 'node:util'
import { mutations } from './mutations.ts'
import { failureText, runSeeds } from './run.ts'
import { sourceMutations } from './source-mutations.ts'

/**
 * The command of the model checker: `npm run simulate -- --seeds 1000000 --from 0`
 * (docs/escrow.md).
 */
const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '10000' },
    from: { type: 'string', default: '0' },
    workers: { type: 'string', default: String(availableParallelism()) },
    mutation: { type: 'string' },
  },
})

const { mutation } = values
const names = [...Object.keys(mutations), ...Object.keys(sourceMutations)]
if (mutation !== undefined && !names.includes(mutation))
  throw new Error(`--mutation is one of: ${names.join(', ')}`)

const print = (text: string): void => void process.stdout.write(`${text}\n`)
const started = performance.now()
let told = 0
const run = await runSeeds({
  from: Number(values.from),
  seeds: Number(values.seeds),
  workers: Number(values.workers),
  ...(mutation !== undefined && { mutation }),
  onProgress: ({ seeds }) => {
    if (seeds - told < 10_000) return
    told = seeds
    print(`${seeds} seeds, ${Math.round((performance.now() - started) / 1_000)} s`)
  },
})
for (const failure of run.failures) print(failureText(failure))
const seconds = ((performance.now() - started) / 1_000).toFixed(1)
print(
  `${run.seeds} seeds in ${seconds} s: ${run.events} events, ${run.allowed} calls allowed, ` +
    `${run.failures.length === 0 ? 'the rule held' : 'the rule broke'}`,
)
process.exitCode = run.failures.length === 0 ? 0 : 1
