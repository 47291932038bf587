import { setTimeout as sleep } from 'node:timers/promises'
import { newSecret } from '../../../core/lib/crypto.ts'
import { type Figures, type Helper, figure, startHelper } from '../helper.ts'
import type { Bench, Finding } from '../row.ts'
import { median, middleHalf, pairedRatio } from '../stats.ts'
import { count as inWords } from '../table.ts'
import { clientId, connections, portOf, serverCore } from './parts.ts'
import { type Usage, attosPerWei, openCircle, totalOf, usedUs } from './paid-call-parts.ts'
import type { LoadQuestion } from './paid-call-load.ts'
import type { Payer } from './paid-call-session.ts'
import { describeWrites, readWrites, writesEach } from './paid-call-tables.ts'
import { issuer } from './tokens.ts'

const userCount = 2_000
// As many keys as fit into the argument of a process.
const peerKeys = 1_000
const reportedMs = 500
const settledMs = 30_000
const rates = [
  { perSecond: 1_000, decisionUs: 150, paidUs: 250, p99ByPeer: 1.3 },
  { perSecond: 4_000, decisionUs: 60, paidUs: 150, p99ByPeer: 1 },
] as const

type Rate = (typeof rates)[number]

/**
 * What a paid call costs: decision, report, ticket and settlement of sessions that go on, through
 * all processes and the database. The load's own time is left out.
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

type Run = Awaited<ReturnType<typeof openRun>>

async function openRun(bench: Bench) {
  const circle = await openCircle(bench, userCount)
  const { load, sidecar, secret, payers, pool, operator } = circle
  const ask = (question: LoadQuestion): Promise<Figures> => load.ask(question)
  const strangers = newStrangers()
  const bare = await startServer(bench, 'bare-server.ts', bareAnswer(payers[0]))
  const keys = Object.fromEntries(
    strangers.map(({ credential }, i) => [credential, `stranger-${i}`]),
  )
  const settings = JSON.stringify({ secret, issuer, clientId, keys })
  const peer = await startServer(bench, 'gate/other-webhook.ts', settings)
  for (const open of ['bare', 'peer'])
    await ask({ open, secret, payers: strangers, count: userCount })
  await ask({ open: 'own', secret, payers, count: userCount })
  const sum = { allowed: 0, booked: 0, feeWei: 0n }

  /** Calls of the sidecar; throws when one is refused. */
  async function call(options: CallOptions): Promise<Figures> {
    const figures = await tryCall(options)
    if (figure(figures, 'allowed') !== options.calls)
      throw new Error(`not all of ${options.calls} calls were allowed: ${refusalsIn(figures)}`)
    return figures
  }

  /** Calls that may be refused. */
  async function tryCall(options: CallOptions): Promise<Figures> {
    const figures = await ask({ of: 'own', ports: [sidecar.port], connections, ...options })
    note(figures)
    return figures
  }

  function note(figures: Figures): void {
    sum.allowed += figures['allowed'] ?? 0
    sum.booked += figures['booked'] ?? 0
    sum.feeWei += BigInt(figures['feeWei'] ?? 0)
    if (figures['duplicates'] || figures['quarantined'] || figures['ignored'])
      throw new Error(`tickets were not booked: ${JSON.stringify(figures)}`)
  }

  /** Pushes the tickets that were kept, and waits until all are settled. */
  async function push(): Promise<void> {
    note(await ask({ push: sidecar.port }))
    await settle()
  }

  async function settle(): Promise<void> {
    for (const until = Date.now() + settledMs; ; await sleep(50)) {
      const pending = await pendingAttos()
      if (pending === '0') return
      if (Date.now() > until) throw new Error(`${pending} attos are still pending`)
    }
  }

  async function pendingAttos(): Promise<string> {
    const { rows } = await pool.query<{ pending: string }>(
      'select sum(pending_attos)::text as pending from balances',
    )
    return rows[0]?.pending ?? ''
  }

  /** Throws unless each allowed call was charged once, and nothing is held when the sidecars are gone. */
  async function check(): Promise<void> {
    await settle()
    for (const one of circle.sidecars()) {
      await one.stop()
      if (one.errors.length > 0) throw new Error(`a sidecar logged ${one.errors.join('\n')}`)
    }
    const { rows } = await pool.query<Record<'tickets' | 'calls' | 'consumed' | 'held', string>>(
      `select (select count(*) from tickets)::text as tickets,
              (select count(distinct (session_id, sequence_number, signed_at)) from tickets)::text as calls,
              sum(consumed_attos)::text as consumed, sum(lent_attos + pending_attos)::text as held
       from balances`,
    )
    const { calls: lost } = await operator.lossReport({
      clientId: undefined,
      startDate: undefined,
      endDate: undefined,
    })
    const expected = {
      tickets: String(sum.allowed),
      calls: String(sum.allowed),
      consumed: String(sum.feeWei * attosPerWei),
      held: '0',
    }
    if (JSON.stringify(rows[0]) !== JSON.stringify(expected) || sum.booked !== sum.allowed)
      throw new Error(`${JSON.stringify(rows[0])} instead of ${JSON.stringify(expected)}`)
    bench.say(`paid-call: ${JSON.stringify(expected)}, losses ${JSON.stringify(lost)}`)
  }

  // Every session begins, and every part has done everything once.
  await call({ calls: 3 * userCount, perSecond: 1_000, tickets: 'pushed' })
  await settle()
  await call({ calls: 4 * userCount, tickets: 'kept' })
  await push()
  for (const [of, server] of [
    ['bare', bare],
    ['peer', peer],
  ] as const)
    await ask({ of, ports: [portOf(server)], connections, calls: 5_000, tickets: 'forgotten' })
  return { circle, ask, bare, peer, call, tryCall, push, settle, check }
}

interface CallOptions {
  readonly calls: number
  readonly of?: string
  readonly ports?: readonly number[]
  readonly repeats?: boolean
  readonly perSecond?: number
  readonly tickets: 'pushed' | 'kept'
}

const newStrangers = (): Payer[] =>
  Array.from({ length: peerKeys }, (_, i) => ({
    credential: newSecret('svc_ak_'),
    authId: `${clientId}:stranger-${i}`,
  }))

const bareAnswer = (payer: Payer | undefined): string =>
  JSON.stringify({ status: 200, auth_id: payer?.authId, expiry: 0 })

async function startServer(bench: Bench, program: string, arg: string): Promise<Helper> {
  const helper = await startHelper({ program, args: [arg], core: serverCore })
  bench.defer(helper.stop)
  return helper
}

/** `status503: 17, ...` */
const refusalsIn = (figures: Figures): string =>
  Object.entries(figures)
    .filter(([name]) => name.startsWith('status') && name !== 'status200')
    .map(([name, value]) => `${name}: ${value}`)
    .join(', ') || 'none'

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

/** Rounds by turns of the bare server, the peer, decisions alone, their tickets, and paid calls. */
async function atRate(bench: Bench, run: Run, rate: Rate): Promise<Finding[]> {
  const { perSecond } = rate
  const { circle, bare, peer } = run
  const [rounds, seconds] = bench.quick ? [1, 2] : [4, 3]
  const calls = perSecond * seconds
  const tails = { bare: newTail(), peer: newTail(), decided: newTail(), paid: newTail() }
  const used = { decided: [] as Usage[], ticket: [] as Usage[], paid: [] as Usage[] }
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
  const measure = async (into: Usage[], work: () => Promise<void>): Promise<void> => {
    const before = circle.usage()
    await work()
    into.push(usedUs(before, circle.usage(), calls))
  }
  for (let round = 0; round < rounds; round++) {
    await beside('bare', bare)
    await beside('peer', peer)
    await measure(used.decided, async () => {
      noteTail(tails.decided, await run.call({ calls, perSecond, tickets: 'kept' }))
      await sleep(reportedMs)
    })
    await measure(used.ticket, run.push)
    await measure(used.paid, async () => {
      noteTail(tails.paid, await run.call({ calls, perSecond, tickets: 'pushed' }))
      await sleep(reportedMs)
      await run.settle()
    })
  }
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

/** `sidecar 38, core 120, PostgreSQL 260 us`. */
function describeUsage(samples: readonly Usage[]): string {
  const part = (name: string, us: (usage: Usage) => number): string =>
    `${name} ${median(samples.map(us)).toFixed(0)}`
  return `${[
    part('sidecar', (usage) => usage.get('sidecar') ?? NaN),
    part('core', (usage) => usage.get('core') ?? NaN),
    part('PostgreSQL', (usage) => totalOf(usage, 'sidecar', 'core')),
  ].join(', ')} us`
}

/** As many decisions as 64 connections get, of 2,000 sessions. */
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
      unit: 's',
      target: { atMost: 0.01 },
      value: median(tail.p99) / 1000,
      spread: null,
      detail: `most ${Math.max(...tail.p99).toFixed(1)} ms`,
    },
  ]
}

/** Calls that the sidecar knows too little about to decide by itself. */
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

const [warmMs, windowMs] = [2_000, 6_000]

interface Window {
  readonly used: Usage
  readonly writes: Usage
}

/** Prints what each step takes of each process, and what it writes, for a call. */
async function profile(bench: Bench, { circle, call, push, settle }: Run, perSecond: number) {
  const seconds = (2 * warmMs + windowMs) / 1000

  /** Within a longer run, so that what idle backends have not published yet is the same at both ends. */
  async function observe(tickets: 'pushed' | 'kept'): Promise<Window> {
    const running = call({ calls: perSecond * seconds, perSecond, tickets })
    await sleep(warmMs)
    const [before, writes, at] = [circle.usage(), await readWrites(circle.pool), performance.now()]
    await sleep(windowMs)
    const calls = (perSecond * (performance.now() - at)) / 1000
    const used = usedUs(before, circle.usage(), calls)
    const written = writesEach(writes, await readWrites(circle.pool), calls)
    await running
    return { used, writes: written }
  }

  const print = (name: string, { used, writes }: Window): void =>
    bench.say(
      [
        `\n${name} at ${inWords(perSecond)}/s, for a call:`,
        ...[...used].map(([kind, us]) => `${us.toFixed(1).padStart(10)} us ${kind}`),
        ...describeWrites(writes),
      ].join('\n'),
    )

  const decided = await observe('kept')
  await push()
  const paid = await observe('pushed')
  await settle()
  print('decision and report', decided)
  print('ticket and settlement, the difference', {
    used: difference(paid.used, decided.used),
    writes: difference(paid.writes, decided.writes),
  })
  print('paid call', paid)
}

const difference = (all: Usage, part: Usage): Usage =>
  new Map([...all].map(([name, value]) => [name, value - (part.get(name) ?? 0)]))
