import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Pool } from '../../core/lib/sql.ts'
import { type Stops, openPool, startParts } from '../support/deployment/parts.ts'
import { type Random, createRandom } from '../support/random.ts'
import { type Check, type Expected, checkDatabase, checkVerify, overlent } from './checks.ts'
import { type PlantName, checkWithPlant, findPlants } from './plants.ts'
import { type Product, type Surroundings, startProduct } from './product.ts'
import { type Signers, startSigners } from './signers.ts'
import type { Recovery } from './timeline.ts'
import { type Writer, createWriter } from './writes.ts'

/** Something that is broken while the product works under load. */
export interface Outage {
  readonly what: string
  /** Breaks it, and heals it unless the product must do so. Returns when the recovery begins. */
  readonly act: () => Promise<number>
  /** Milliseconds after which writes must be acknowledged again. */
  readonly writesWithinMs: number
  /** Restores what is still broken, after the recovery. Returns what it found. */
  readonly after?: () => Promise<Findings>
}

export interface Findings {
  /** For the report. */
  readonly notes?: readonly string[]
  readonly faults?: readonly string[]
}

export interface Environment extends Surroundings {
  readonly databaseUrl: string
  readonly kafkaBrokers?: readonly string[]
  readonly outages: (product: Product, load: Load) => readonly Outage[]
}

export interface Scenario {
  readonly name: string
  readonly title: string
  /** One sentence about what runs, for the report. */
  readonly setup: string
  readonly start: (
    stops: Stops,
    options: { folder: string; random: Random },
  ) => Promise<Environment>
}

export interface Load {
  readonly writers: readonly Writer[]
  readonly signers: Signers
}

export interface Observation {
  readonly what: string
  /** Seconds since the load began. */
  readonly at: number
  readonly writes: Recovery | null
  readonly calls: Recovery | null
  readonly ticketsMs: number | null
  readonly notes: readonly string[]
  readonly faults: readonly string[]
}

export interface Result {
  readonly name: string
  readonly title: string
  readonly setup: string
  readonly seed: number
  readonly seconds: number
  readonly observations: readonly Observation[]
  readonly checks: readonly Check[]
  readonly plants: readonly { readonly name: string; readonly found: string | null }[]
  readonly figures: Readonly<Record<string, number>>
}

export interface RunOptions {
  readonly seed: number
  /** Damage that the run must report as a failure. */
  readonly plant: PlantName | null
  readonly parent: string
  readonly print: (line: string) => void
}

const warmMs = 5_000
const settleMs = 120_000
const sampleMs = 500
const spenders = 12
const poor = 20
const richMicros = 1_000_000_000n
const poorMicros = 120_000n

/** Starts everything, breaks one thing after the other under load, and checks what is left. */
export async function runScenario(scenario: Scenario, options: RunOptions): Promise<Result> {
  const { seed, print } = options
  const random = createRandom(seed)
  const folder = await mkdtemp(join(options.parent, `tollgate-chaos-`))
  // Other users run the clusters in it.
  await chmod(folder, 0o711)
  print(`== ${scenario.title}, seed ${seed}`)
  const parts = await startParts((stops) => startAll(stops, { scenario, folder, random, seed }))
  try {
    return await breakAll(parts, { scenario, ...options })
  } finally {
    await parts.stop()
    await rm(folder, { recursive: true, force: true })
  }
}

interface Started extends Load {
  readonly environment: Environment
  readonly product: Product
  readonly pool: Pool
  readonly payers: readonly { name: string; key: string }[]
  readonly credited: readonly string[]
}

async function startAll(
  stops: Stops,
  {
    scenario,
    folder,
    random,
    seed,
  }: { scenario: Scenario; folder: string; random: Random; seed: number },
): Promise<Started> {
  const environment = await scenario.start(stops, { folder, random })
  const product = await startProduct(stops, { ...environment, folder })
  const pool = openPool(stops, environment.databaseUrl)
  const { kafka, kafkaBrokers } = environment
  const signers = await startSigners(stops, {
    product,
    seed,
    kafka: kafka && { brokers: kafkaBrokers ?? [], topic: kafka.topic },
  })
  const rich = await createWriter(product, richMicros)
  const poorer = await createWriter(product, poorMicros)
  const payers: { name: string; key: string }[] = []
  for (let i = 0; i < spenders; i++)
    payers.push({ name: `rich-${i}`, key: await rich.addUser(`rich-${i}`) })
  const credited = payers.map(({ name }) => name)
  for (let i = 0; i < poor; i++)
    payers.push({ name: `poor-${i}`, key: await poorer.addUser(`poor-${i}`) })
  return { environment, product, pool, signers, writers: [rich, poorer], payers, credited }
}

async function breakAll(
  started: Started,
  { scenario, seed, plant, print }: RunOptions & { scenario: Scenario },
): Promise<Result> {
  const { environment, product, pool, signers, writers, payers, credited } = started
  const began = performance.now()
  signers.start(payers)
  writers[0]?.start(credited)
  const watch = startWatch(started)
  await sleep(warmMs)
  const observations: Observation[] = []
  for (const outage of environment.outages(product, started)) {
    const observation = await observe(outage, { started, began })
    print(lineOf(observation))
    observations.push(observation)
  }
  await sleep(warmMs)
  for (const writer of writers) await writer.stop()
  await signers.stop()
  const expected: Expected = { tickets: signers.tickets(), writers }
  const unbooked = await untilBooked(pool, expected)
  const watched = await watch.stop()
  const checks = [
    ...(plant === null
      ? await checkDatabase(pool, expected)
      : await checkWithPlant(pool, plant, expected)),
    await checkVerify(product),
    await checkHeld(pool),
    watched,
  ]
  if (unbooked > 0) print(`   ${unbooked} tickets are not booked after ${settleMs / 1000} s`)
  for (const { claim, counted, faults } of checks)
    print(
      `   ${faults.length === 0 ? 'holds' : 'BROKEN'}: ${claim} (${counted})${faults.map((fault) => `\n     ${fault}`).join('')}`,
    )
  for (const [message, count] of countMessages(product.errors()))
    print(`   logged ${count} times as an error: ${message}`)
  const plants = plant === null ? await findPlants(pool, expected) : []
  for (const { name, found } of plants)
    print(`   planted ${name}: ${found ?? 'NOT FOUND BY THE CHECKS'}`)
  const [writes, calls] = [writers[0]?.timeline.count(), signers.timeline.count()]
  return {
    ...scenario,
    seed,
    seconds: Math.round((performance.now() - began) / 1_000),
    observations,
    checks,
    plants,
    figures: {
      'calls to the signers': calls.all,
      'of these failed': calls.failed,
      'tickets produced': expected.tickets.length,
      'writes over REST': writes?.all ?? 0,
      'of these not acknowledged': writes?.failed ?? 0,
    },
  }
}

/** The messages of log lines, with their numbers. */
function countMessages(lines: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>()
  for (const line of lines) {
    const { msg, reason, err } = JSON.parse(line) as Record<string, unknown>
    const message = [msg, reason, JSON.stringify(err)?.slice(0, 120)].filter(Boolean).join(', ')
    counts.set(message, (counts.get(message) ?? 0) + 1)
  }
  return counts
}

/** Observes that processes keep running, and that nothing is lent beyond a balance. */
function startWatch({ product, pool }: Started) {
  const stopping = new AbortController()
  const ends: string[] = []
  const lent: string[] = []
  let samples = 0

  async function run(): Promise<void> {
    while (!stopping.signal.aborted) {
      ends.push(...(await product.revive()))
      await overlent(pool).then(
        (lines) => {
          samples += 1
          lent.push(...lines)
        },
        // The database is unavailable during its outage.
        () => {},
      )
      await sleep(sampleMs)
    }
  }
  const running = run()

  async function stop(): Promise<Check> {
    stopping.abort()
    await running
    return {
      claim: 'No process ended by itself, and at no time was more lent than a balance covered.',
      counted: `${samples} samples`,
      faults: [...ends, ...lent].slice(0, 5),
    }
  }
  return { stop }
}

async function observe(
  outage: Outage,
  { started, began }: { started: Started; began: number },
): Promise<Observation> {
  const { writers, signers, pool } = started
  const at = performance.now()
  const wallAt = Date.now()
  const from = await outage.act()
  const [writes = null, ticketsMs] = await Promise.all([
    writers[0]?.timeline.recovery(at, from),
    bookedAfter(pool, { signers, from, fromWall: wallAt + (from - at) }),
  ])
  // Leases allow calls during the first seconds of an outage, so their recovery is read after it.
  const calls = await signers.timeline.recovery(at, from)
  const { notes = [], faults: found = [] } = (await outage.after?.()) ?? {}
  const faults = [...found]
  if (writes === null || writes.ms > outage.writesWithinMs)
    faults.push(`writes are not back in ${outage.writesWithinMs / 1000} s`)
  if (calls === null) faults.push('calls do not succeed again within a minute')
  if (ticketsMs === null) faults.push('tickets are not booked again within a minute')
  return {
    what: outage.what,
    at: Math.round((at - began) / 1_000),
    writes,
    calls,
    ticketsMs,
    notes,
    faults,
  }
}

const bookWithinMs = 60_000
const sampled = 10

/** Milliseconds from `from` until the first tickets signed after it are in the ledger. */
async function bookedAfter(
  pool: Pool,
  { signers, from, fromWall }: { signers: Signers; from: number; fromWall: number },
): Promise<number | null> {
  const since = BigInt(Math.round(fromWall)) * 1_000_000n
  for (
    const until = performance.now() + bookWithinMs;
    performance.now() < until;
    await sleep(100)
  ) {
    const ids = signers
      .tickets()
      .filter(({ currentTime }) => currentTime >= since)
      .slice(0, sampled)
      .map(({ id }) => id)
    if (ids.length < sampled) continue
    const count = await countBooked(pool, ids).catch(() => 0)
    if (count === ids.length) return performance.now() - from
  }
  return null
}

async function countBooked(pool: Pool, ids: readonly string[]): Promise<number> {
  const { rows } = await pool.query<{ count: string }>(
    'select count(*)::text as count from tickets where event_id = any($1)',
    [ids],
  )
  return Number(rows[0]?.count)
}

/** Waits until all tickets are booked. Returns how many are not. */
async function untilBooked(pool: Pool, { tickets }: Expected): Promise<number> {
  const ids = tickets.map(({ id }) => id)
  for (const until = Date.now() + settleMs; ; await sleep(500)) {
    const left = ids.length - (await countBooked(pool, ids).catch(() => 0))
    if (left <= 0 || Date.now() > until) return left
  }
}

/** Waits until all held money is released or charged. */
async function checkHeld(pool: Pool): Promise<Check> {
  const claim =
    'In the end no money is held: every lease ended, every call was charged or released.'
  for (const until = Date.now() + settleMs; ; await sleep(500)) {
    const { rows } = await pool.query<{ held: string }>(
      'select coalesce(sum(lent_attos + pending_attos), 0)::text as held from balances',
    )
    const held = rows[0]?.held ?? '0'
    if (held !== '0' && Date.now() < until) continue
    return {
      claim,
      counted: 'all balances',
      faults: held === '0' ? [] : [`${held} atto-dollars are held`],
    }
  }
}

export const secondsOf = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`

const lineOf = ({ at, what, writes, calls, ticketsMs, notes, faults }: Observation): string =>
  `   ${at} s: ${what}: writes ${textOf(writes)}, calls ${textOf(calls)}, tickets booked after ` +
  `${ticketsMs === null ? 'more than a minute' : secondsOf(ticketsMs)}${notes.map((note) => `\n     ${note}`).join('')}${faults.map((fault) => `\n     BROKEN: ${fault}`).join('')}`

export const textOf = (recovery: Recovery | null): string => {
  if (recovery === null) return 'not back in a minute'
  return recovery.failed === 0
    ? 'without a failure'
    : `back after ${secondsOf(recovery.ms)} (${recovery.failed} failed)`
}

export const isGood = ({ observations, checks, plants }: Result): boolean =>
  observations.every(({ faults }) => faults.length === 0) &&
  checks.every(({ faults }) => faults.length === 0) &&
  plants.every(({ found }) => found !== null)
