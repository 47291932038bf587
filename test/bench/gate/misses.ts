import { type Helper, figure } from '../helper.ts'
import type { Bench, Finding } from '../row.ts'
import { count as inWords } from '../table.ts'
import { type Gate, openGate, portOf, requestsOf, rpcsOf } from './parts.ts'
import { alternate, measure, processorFinding } from './rounds.ts'

const warmUp = 2_000
const herd = 1_000

/**
 * Compares decisions about keys that are new to the process with answers of a server that only
 * reads, parses and answers. First the keys are known to Redis, then only to core. Each key is used
 * once, so that this process cannot have cached it.
 */
export async function authorizeMisses(bench: Bench): Promise<Finding[]> {
  const gate = await openGate(bench)
  const findings: Finding[] = []
  if (bench.redis === null)
    bench.say(
      'authorize-misses, Redis: no row, because BENCH_REDIS_URL (or TEST_REDIS_URL) is unset',
    )
  else findings.push(await redisHits(bench, gate, bench.redis))
  const settings = bench.redis === null ? {} : { REDIS_URL: bench.redis }
  const cold = await gate.sidecar(settings)
  const rounds = roundsOf(bench)
  const keys = gate.newKeys(warmUp + rounds.total)
  findings.push(
    await compare({ gate, sidecar: cold, keys, ...rounds, name: 'cold', atLeast: 0.1 }),
    await gathered(gate, cold),
  )
  return findings
}

function roundsOf({ quick }: Bench) {
  const [rounds, count] = quick ? [5, 1_000] : [7, 4_000]
  return { rounds, count, total: rounds * count }
}

/** All keys belong to one user, so that only the identity is missing. */
async function redisHits(bench: Bench, gate: Gate, url: string): Promise<Finding> {
  const rounds = roundsOf(bench)
  const keys = gate.newKeys(warmUp + rounds.total, 'user-of-many-keys')
  const settings = {
    REDIS_URL: url,
    IDENTITY_TTL_SECONDS: '3600',
    REVOCATION_BOUND_SECONDS: '3660',
  }
  const [writer, reader] = [await gate.sidecar(settings), await gate.sidecar(settings)]
  await gate.load.ask(requestsOf(keys))
  await measure({ load: gate.load, server: writer, count: keys.length })
  await writer.stop()
  const before = rpcsOf(gate.core)
  const wanted = { name: 'Redis hit', atLeast: 0.5 }
  const finding = await compare({ gate, sidecar: reader, keys, ...rounds, ...wanted })
  const misses = rpcsOf(gate.core) - before
  // On a busy machine a few Redis commands time out.
  if (misses > keys.length / 20) throw new Error(`${misses} of ${keys.length} were asked of core`)
  await reader.stop()
  return finding
}

interface Misses {
  readonly gate: Gate
  readonly sidecar: Helper
  readonly keys: readonly string[]
  readonly rounds: number
  readonly count: number
  readonly name: string
  readonly atLeast: number
}

async function compare({ gate, sidecar, keys, rounds, count, name, atLeast }: Misses) {
  const { load } = gate
  await load.ask(requestsOf(keys))
  await measure({ load, server: sidecar, count: warmUp })
  const bare = await gate.bare(sidecar, keys[0] ?? '')
  await measure({ load, server: bare, count: 10_000 })
  const pair = await alternate(
    rounds,
    () => measure({ load, server: bare, count: 10_000 }),
    (round) => measure({ load, server: sidecar, count, first: warmUp + round * count }),
  )
  await bare.stop()
  return processorFinding(pair, { name: `authorize-misses, ${name}`, atLeast })
}

/** Counts core's RPCs for a thousand new keys at the same moment. */
async function gathered({ core, load, newKeys }: Gate, sidecar: Helper): Promise<Finding> {
  await load.ask(requestsOf(newKeys(herd)))
  const before = rpcsOf(core)
  const run = await load.ask({ port: portOf(sidecar), count: herd, connections: herd })
  return {
    name: `authorize-misses, RPCs for ${inWords(herd)} new keys at once`,
    unit: '',
    target: { atMost: 20 },
    value: rpcsOf(core) - before,
    spread: null,
    detail: `slowest hundredth ${figure(run, 'p99Ms').toFixed(0)} ms`,
  }
}
