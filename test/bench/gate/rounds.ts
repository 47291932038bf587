import { type Helper, figure } from '../helper.ts'
import type { Finding } from '../row.ts'
import { median, pairedRatio } from '../stats.ts'
import { count as inWords } from '../table.ts'
import { connections, portOf } from './parts.ts'

export interface Sample {
  readonly cpuUs: number
  readonly perSecond: number
  /** Share of a processor core that the load used. */
  readonly loadShare: number
}

export interface Round {
  readonly load: Helper
  readonly server: Helper
  readonly count: number
  readonly first?: number
  readonly status?: number
}

/** Sends `count` requests. Returns the processor time of the server per request, and the rate. */
export async function measure({ load, server, ...run }: Round): Promise<Sample> {
  const before = figure(await server.ask({}), 'cpuMs')
  const figures = await load.ask({ connections, ...run, port: portOf(server) })
  const used = figure(await server.ask({}), 'cpuMs') - before
  const seconds = figure(figures, 'seconds')
  return {
    cpuUs: (used * 1000) / run.count,
    perSecond: run.count / seconds,
    loadShare: figure(figures, 'cpuMs') / 1000 / seconds,
  }
}

export interface Pair {
  readonly baseline: readonly Sample[]
  readonly subject: readonly Sample[]
}

/** Alternates rounds of both, so that a busy machine slows neighbouring rounds alike. */
export async function alternate(
  rounds: number,
  baseline: (round: number) => Promise<Sample>,
  subject: (round: number) => Promise<Sample>,
): Promise<Pair> {
  const pair: { baseline: Sample[]; subject: Sample[] } = { baseline: [], subject: [] }
  for (let round = 0; round < rounds; round++) {
    pair.baseline.push(await baseline(round))
    pair.subject.push(await subject(round))
  }
  return pair
}

export interface Wanted {
  readonly name: string
  /** Null if there is no target. */
  readonly atLeast: number | null
  /** Name of the baseline in the detail. Default is `bare`. */
  readonly beside?: string
}

/** Ratio of the baseline's processor time per request to the subject's. */
export function processorFinding(pair: Pair, { name, atLeast, beside = 'bare' }: Wanted): Finding {
  const [other, own] = [timesOf(pair.baseline), timesOf(pair.subject)]
  return {
    name: `${name}, processor time`,
    unit: '',
    target: atLeast === null ? null : { atLeast },
    ...pairedRatio(other, own),
    detail: `${median(own).toFixed(1)} us a request, ${beside} ${median(other).toFixed(1)} us`,
  }
}

/** Ratio of requests per second, which also depends on the load and the machine. */
export function throughputFinding({ baseline, subject }: Pair, name: string): Finding {
  const [other, own] = [ratesOf(baseline), ratesOf(subject)]
  const share = median([...baseline, ...subject].map(({ loadShare }) => loadShare))
  return {
    name: `${name}, throughput`,
    unit: '',
    target: null,
    ...pairedRatio(own, other),
    detail: `${inWords(median(own))}/s, bare ${inWords(median(other))}/s; the load had ${Math.round(100 * share)} % of a core`,
  }
}

const timesOf = (samples: readonly Sample[]): number[] => samples.map(({ cpuUs }) => cpuUs)
const ratesOf = (samples: readonly Sample[]): number[] => samples.map((sample) => sample.perSecond)
