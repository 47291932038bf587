import { access, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { isPlant, plants } from './plants.ts'
import { writeReport } from './report.ts'
import { type Result, type Scenario, isGood, runScenario } from './run.ts'
import { harness } from './scenarios/harness.ts'
import { kafka } from './scenarios/kafka.ts'
import { partitions } from './scenarios/partitions.ts'
import { postgres } from './scenarios/postgres.ts'
import { redis } from './scenarios/redis.ts'

/** `npm run chaos -- --only postgres --seed 7` (test/README.md). */
const scenarios: readonly Scenario[] = [postgres, redis, kafka, partitions]
const all = [...scenarios, harness]
const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    seed: { type: 'string', default: String(Date.now() % 100_000) },
    plant: { type: 'string' },
    report: { type: 'string', default: join(import.meta.dirname, '../../docs/chaos-report.md') },
  },
})

const { only, plant = null } = values
const chosen =
  only === undefined ? scenarios : all.filter(({ name }) => only.split(',').includes(name))
if (chosen.length === 0)
  throw new Error(`--only is one of: ${all.map(({ name }) => name).join(', ')}`)
if (plant !== null && !isPlant(plant))
  throw new Error(`--plant is one of: ${Object.keys(plants).join(', ')}`)
const seed = Number(values.seed)
if (!Number.isSafeInteger(seed) || seed < 0) throw new Error('--seed is a whole number')

const print = (line: string): void => void process.stdout.write(`${line}\n`)
// In memory, if there is any, so that the load on the disk does not decide the times.
const parent = await access('/dev/shm').then(
  () => '/dev/shm',
  () => tmpdir(),
)
const keptLogs = process.env['TOLLGATE_TEST_LOGS']
const logs = keptLogs ?? (await mkdtemp(join(tmpdir(), 'tollgate-chaos-logs-')))
process.env['TOLLGATE_TEST_LOGS'] = logs
// The exit ends all programs.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => process.exit(130))
const results: Result[] = []
for (const scenario of chosen)
  results.push(await runScenario(scenario, { seed, plant, parent, print }))
const good = results.every(isGood)
if (plant === null)
  await writeReport(
    values.report,
    results.filter(({ name }) => name !== harness.name),
  )
if (good && keptLogs === undefined) await rm(logs, { recursive: true, force: true })
print(good ? 'every invariant held' : `an invariant is broken; the logs are in ${logs}`)
process.exit(good ? 0 : 1)
