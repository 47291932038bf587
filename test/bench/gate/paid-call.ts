import { type Figures, type Helper, figure } from '../helper.ts'
import type { Bench, Finding } from '../row.ts'
import { median, middleHalf, pairedRatio } from '../stats.ts'
import { count as inWords } from '../table.ts'
import { connections, portOf } from './parts.ts'
import { type Usage, totalOf } from './paid-call-parts.ts'
import { difference, observe, profile } from './paid-call-profile.ts'
import { type CallOptions, type Run, openRun, refusalsIn, userCount } from './paid-call-run.ts'

const rates = [
  { perSecond: 1_000, decisionUs: 150, paidUs: 250, p99ByPeer: 1.3 },
  { perSecond: 4_000, decisionUs: 60, paidUs: 150, p99ByPeer: 1 },
] as const

type Rate = (typeof rates)[number]

/**
 * Measures the cost of a paid call: decision, report, ticket and settlement in continuing sessions,
 * through all processes and the database. Excludes the load's own time.
 */
export async function paidCall(bench: Bench): Promise<Finding[]> {
  const run = await openRun(bench)
  const findings: Finding[] = []
  if (bench.profile) for (const { perSecond } of rates) await profile(bench, run, perSecond)
  for (const rate of rates) findings.push(...(await atRate(bench, run, rate)))
  findings.push(...(await saturated(bench, run)), ...(await cases(bench, run)))
  await run.check()
  return findings
}

interface Tail {
  readonly p50: number[]
  readonly p99: number[]
}
const newTail = (): Tail => ({ p50: [], p99: [] })
const describeTail = ({ p50, p99 }: Tail): string =>
  `p50 ${median(p50).toFixed(2)} ms, p99 ${median(p99).toFixed(2)} ms`

function noteTail(tail: Tail, figures: Figures): void {
  tail.p50.push(figure(figures, 'p50Ms'))
  tail.p99.push(figure(figures, 'p99Ms'))
}

/**
 * Measures processor time in windows while calls continue, then alternates rounds of the bare
 * server, the peer, decisions and paid calls.
 */
async function atRate(bench: Bench, run: Run, rate: Rate): Promise<Finding[]> {
  const { perSecond } = rate
  const used = await useAtRate(bench, run, perSecond)
  const tails = await tailsAtRate(bench, run, perSecond)
  const at = `at ${inWords(perSecond)}/s`
  const others = `bare ${describeTail(tails.bare)}; peer ${describeTail(tails.peer)}`
  const decidedUs = used.decided.map((usage) => totalOf(usage, 'sidecar'))
  const paidUs = used.paid.map((usage) => totalOf(usage))
  return [
    {
      name: `paid-call, core and PostgreSQL for a decision ${at}`,
      unit: 'us',
      target: { atMost: rate.decisionUs },
      value: median(decidedUs),
      spread: middleHalf(decidedUs),
      detail: describeUsage(used.decided),
    },
    {
      name: `paid-call, all processes for a paid call ${at}`,
      unit: 'us',
      target: { atMost: rate.paidUs },
      value: median(paidUs),
      spread: middleHalf(paidUs),
      detail: `${describeUsage(used.paid)}; tickets alone: ${describeUsage(used.ticket)}`,
    },
    {
      name: `paid-call, p99 of a decision ${at} by the peer's`,
      unit: '',
      target: { atMost: rate.p99ByPeer },
      ...pairedRatio(tails.decided.p99, tails.peer.p99),
      detail: `${describeTail(tails.decided)}; while tickets arrive ${describeTail(tails.paid)}; ${others}`,
    },
  ]
}

async function useAtRate(bench: Bench, run: Run, perSecond: number) {
  const used = { decided: [] as Usage[], ticket: [] as Usage[], paid: [] as Usage[] }
  for (let window = 0; window < (bench.quick ? 1 : 3); window++) {
    const decided = await observe(run, { perSecond, tickets: 'kept' })
    await run.push()
    const paid = await observe(run, { perSecond, tickets: 'pushed' })
    await run.settle()
    used.decided.push(decided.used)
    used.paid.push(paid.used)
    used.ticket.push(difference(paid.used, decided.used))
  }
  return used
}

async function tailsAtRate(bench: Bench, run: Run, perSecond: number) {
  const [rounds, seconds] = bench.quick ? [1, 2] : [4, 3]
  const calls = perSecond * seconds
  const tails = { bare: newTail(), peer: newTail(), decided: newTail(), paid: newTail() }
  const beside = async (of: 'bare' | 'peer', server: Helper): Promise<void> =>
    noteTail(
      tails[of],
      await run.ask({
        of,
        ports: [portOf(server)],
        connections,
        calls,
        perSecond,
        tickets: 'forgotten',
      }),
    )
  for (let round = 0; round < rounds; round++) {
    await beside('bare', run.bare)
    await beside('peer', run.peer)
    noteTail(tails.decided, await run.call({ calls, perSecond, tickets: 'kept' }))
    await run.push()
    noteTail(tails.paid, await run.call({ calls, perSecond, tickets: 'pushed' }))
    await run.settle()
  }
  return tails
}

/** Formats usage as `sidecar 38, core 120, PostgreSQL 260 us`. */
function describeUsage(samples: readonly Usage[]): string {
  const part = (name: string, us: (usage: Usage) => number): string =>
    `${name} ${median(samples.map(us)).toFixed(0)}`
  return `${[
    part('sidecar', (usage) => usage.get('sidecar') ?? NaN),
    part('core', (usage) => usage.get('core') ?? NaN),
    part('PostgreSQL', (usage) => totalOf(usage, 'sidecar', 'core')),
  ].join(', ')} us`
}

/** Measures the maximum rate of decisions on 64 connections with 2,000 sessions. */
async function saturated(bench: Bench, run: Run): Promise<Finding[]> {
  const [rounds, calls] = bench.quick ? [1, 20_000] : [3, 50_000]
  const tail = newTail()
  const [perSecond, loadUs]: [number[], number[]] = [[], []]
  for (let round = 0; round < rounds; round++) {
    const figures = await run.call({ calls, tickets: 'kept' })
    noteTail(tail, figures)
    perSecond.push(calls / figure(figures, 'seconds'))
    loadUs.push((figure(figures, 'cpuMs') * 1000) / calls)
    await run.push()
  }
  const name = `paid-call, ${inWords(userCount)} sessions on ${connections} connections`
  return [
    {
      name: `${name}, decisions/s`,
      unit: '',
      target: { atLeast: 20_000 },
      value: median(perSecond),
      spread: middleHalf(perSecond),
      detail: `${describeTail(tail)}; the load ${median(loadUs).toFixed(0)} us a call`,
    },
    {
      name: `${name}, p99`,
      unit: 'ms',
      target: { atMost: 10 },
      value: median(tail.p99),
      spread: null,
      detail: `most ${Math.max(...tail.p99).toFixed(1)} ms`,
    },
  ]
}

/** Measures calls that the sidecar cannot decide alone. */
async function cases(bench: Bench, { circle, ask, tryCall, push }: Run): Promise<Finding[]> {
  const { sidecar, secret, payers } = circle
  const calls = (bench.quick ? 1 : 4) * userCount
  const measure = async (name: string, options: Partial<CallOptions>): Promise<Finding> => {
    const figures = await tryCall({ calls, tickets: 'kept', ...options })
    await push()
    return {
      name: `paid-call, ${name}, decisions/s`,
      unit: '',
      target: null,
      value: calls / figure(figures, 'seconds'),
      spread: null,
      detail:
        `p50 ${figure(figures, 'p50Ms').toFixed(1)} ms, p99 ${figure(figures, 'p99Ms').toFixed(1)} ms, ` +
        `not 200: ${refusalsIn(figures)}`,
    }
  }
  const second = await circle.secondSidecar()
  await ask({ open: 'hopping', secret, payers, count: userCount })
  const hopped = await measure('sessions that change sidecars with every call', {
    of: 'hopping',
    ports: [sidecar.port, second.port],
  })
  await sidecar.stop()
  await sidecar.start()
  const restarted = await measure('a sidecar that has just restarted', {})
  await ask({ open: 'flooding', secret, payers, count: userCount, sequence: 184 })
  const flooded = await measure('one state of each user again and again', {
    of: 'flooding',
    repeats: true,
  })
  return [hopped, restarted, flooded]
}
