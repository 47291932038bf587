import { newSecret } from '../../../core/lib/crypto.ts'
import { type Figures, type Helper, figure } from '../helper.ts'
import type { Bench, Finding } from '../row.ts'
import { median, pairedRatio } from '../stats.ts'
import { type Gate, connections, openGate, portOf, requestsOf } from './parts.ts'
import { alternate, measure, processorFinding, throughputFinding } from './rounds.ts'
import { newTokens } from './tokens.ts'

const credentialCount = 10_000
const tokenCount = 1_000
// Few, because a refusal is cached for only five seconds, and a busy machine would look it up
// again.
const unknownCount = 200

/**
 * Compares warm decisions of the real sidecar with answers of a server that only reads, parses and
 * answers. Measures the processor time of the *server's* process per request: it determines how
 * many requests a core can answer, and hardly changes when others use the machine. Requests per
 * second also depend on the load and other processes on the two cores; they are shown in addition.
 * There is no target, because core is a double here and no session continues: `paid-call` is the
 * row that counts.
 */
export async function authorizeWarm(bench: Bench): Promise<Finding[]> {
  const gate = await openGate(bench)
  // No identity must expire during a round.
  const sidecar = await gate.sidecar({
    IDENTITY_TTL_SECONDS: '3600',
    REVOCATION_BOUND_SECONDS: '3660',
  })
  const compare = (credentials: readonly string[], wanted: Comparison) =>
    compareWarm({ bench, gate, sidecar, credentials, ...wanted })
  const keys = gate.newKeys(credentialCount)
  const { bare, pair } = await compare(keys, { name: 'authorize-warm' })
  const findings = [
    processorFinding(pair, { name: 'authorize-warm', atLeast: null }),
    throughputFinding(pair, 'authorize-warm'),
    await tail({ bench, gate, bare, sidecar }),
  ]
  const tokens = await newTokens(gate.core, tokenCount)
  const seen = { name: 'authorize-warm, seen JWT', atLeast: null }
  findings.push(processorFinding((await compare(tokens, seen)).pair, seen))
  const strangers = Array.from({ length: unknownCount }, () => newSecret('svc_ak_'))
  const unknown = { name: 'authorize-warm, unknown credential', atLeast: null, status: 401 }
  findings.push(processorFinding((await compare(strangers, unknown)).pair, unknown))
  return findings
}

interface Comparison {
  readonly name: string
  readonly status?: number
}

interface WarmOptions extends Comparison {
  readonly bench: Bench
  readonly gate: Gate
  readonly sidecar: Helper
  readonly credentials: readonly string[]
}

async function compareWarm({ bench, gate, sidecar, credentials, name, status }: WarmOptions) {
  const rounds = bench.quick ? 5 : 8
  const count = bench.quick ? 10_000 : 30_000
  const { load } = gate
  const bare = await gate.bare(sidecar, credentials[0] ?? '')
  await load.ask(requestsOf(credentials))
  const own = { load, server: sidecar, ...(status !== undefined && { status }) }
  const other = { ...own, server: bare }
  await measure({ ...own, count: credentials.length })
  for (const one of [other, own]) await measure({ ...one, count })
  const before = await sidecar.ask({})
  const pair = await alternate(
    rounds,
    () => measure({ ...other, count }),
    () => measure({ ...own, count }),
  )
  requireMemory({ name, before, after: await sidecar.ask({}), count: rounds * count })
  return { bare, pair }
}

interface Counts {
  readonly name: string
  readonly before: Figures
  readonly after: Figures
  readonly count: number
}

// An entry that expires within a round is looked up again; a few of those do not matter.
function requireMemory({ name, before, after, count }: Counts): void {
  const hits = figure(after, 'memory') - figure(before, 'memory')
  if (hits < count * 0.97) throw new Error(`${name}: only ${hits} of ${count} came from memory`)
}

interface TailOptions {
  readonly bench: Bench
  readonly gate: Gate
  readonly bare: Helper
  readonly sidecar: Helper
}

const perSecond = 4_000

/** Measures the p99 at an even rate, independent of the answers. */
async function tail({ bench, gate: { load }, bare, sidecar }: TailOptions): Promise<Finding> {
  const [rounds, seconds] = bench.quick ? [3, 1] : [7, 2]
  const run = async (server: Helper): Promise<number> => {
    const count = perSecond * seconds
    const figures = await load.ask({ port: portOf(server), count, connections, perSecond })
    return figure(figures, 'p99Ms')
  }
  const [other, own]: [number[], number[]] = [[], []]
  for (let round = 0; round < rounds; round++) {
    other.push(await run(bare))
    own.push(await run(sidecar))
  }
  return {
    name: `authorize-warm, p99 at ${perSecond}/s, open loop`,
    unit: '',
    target: null,
    ...pairedRatio(own, other),
    detail: `${median(own).toFixed(2)} ms, bare ${median(other).toFixed(2)} ms`,
  }
}
