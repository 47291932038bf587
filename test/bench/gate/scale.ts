import { type Helper, figure, startHelper } from '../helper.ts'
import type { Bench, Finding } from '../row.ts'
import { median, middleHalf } from '../stats.ts'
import { count as inWords } from '../table.ts'
import {
  type Gate,
  connections,
  loadCore,
  openGate,
  portOf,
  requestsOf,
  rpcsOf,
  serverCore,
} from './parts.ts'
import { measure } from './rounds.ts'

const userCount = 10_000
const perSecond = 4_000

/**
 * Compares two sidecars with one, and counts core's RPCs per decision while many users are active.
 */
export async function authorizeScale(bench: Bench): Promise<Finding[]> {
  const gate = await openGate(bench)
  await gate.load.ask(requestsOf(gate.newKeys(userCount)))
  const one = await gate.sidecar()
  return [await askedOfCore(bench, gate, one), await twoByOne(bench, gate, one)]
}

/** Counts core's RPCs per decision while every user calls every few seconds. */
async function askedOfCore({ quick }: Bench, { core, load }: Gate, server: Helper) {
  const seconds = quick ? 10 : 40
  await measure({ load, server, count: userCount })
  const before = rpcsOf(core)
  const count = perSecond * seconds
  await load.ask({ port: portOf(server), count, connections, perSecond })
  const rpcs = rpcsOf(core) - before
  return {
    name: `authorize-scale, RPCs for a decision, ${inWords(userCount)} users`,
    unit: '' as const,
    target: { atMost: 0.1 },
    value: rpcs / count,
    spread: null,
    detail: `${inWords(rpcs / seconds)}/s at ${inWords(perSecond)} decisions/s over ${seconds} s`,
  }
}

/**
 * Compares decisions per second of processor time: two busy processes on separate cores with one
 * process alone. The load shares the cores here, so decisions per second of wall time would measure
 * the load.
 */
async function twoByOne(bench: Bench, gate: Gate, one: Helper): Promise<Finding> {
  const [rounds, count] = bench.quick ? [5, 10_000] : [9, 30_000]
  const other = await gate.sidecar({}, loadCore)
  const secondLoad = await startHelper({ program: 'load.ts', args: [], core: serverCore })
  bench.defer(secondLoad.stop)
  await secondLoad.ask(requestsOf(gate.newKeys(userCount)))
  const first = { load: gate.load, server: one, count }
  const second = { load: secondLoad, server: other, count }
  for (const run of [first, second]) await measure(run)
  const ratios: number[] = []
  const times: number[] = []
  for (let round = 0; round < rounds; round++) {
    const alone = await measure(first)
    const together = await Promise.all([measure(first), measure(second)])
    const perSecondTogether = together.reduce((sum, { cpuUs }) => sum + 1 / cpuUs, 0)
    ratios.push(perSecondTogether * alone.cpuUs)
    times.push(alone.cpuUs, ...together.map(({ cpuUs }) => cpuUs))
  }
  return {
    name: 'authorize-scale, two processes by one',
    unit: '',
    target: { atLeast: 1.7 },
    value: median(ratios),
    spread: middleHalf(ratios),
    detail: `${median(times).toFixed(1)} us a request; ${inWords(figure(await other.ask({}), 'rssMb'))} MB resident`,
  }
}
