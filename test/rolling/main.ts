import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs, promisify } from 'node:util'
import { figure, startHelper } from '../bench/helper.ts'
import { type Stops, openPool, startParts } from '../support/deployment/parts.ts'
import { grownTables, readTableSizes, untilBooked, verifyAll } from './books.ts'
import { openDatabase } from './database.ts'
import { type Fleet, startFleet } from './fleet.ts'
import type { LoadQuestion } from './load/main.ts'
import { measureGrowth, sampleMemory } from './memory.ts'
import { prepareRelease } from './previous.ts'
import { startBackend, wrongCredits } from './rest.ts'
import { seedApp } from './seed.ts'
import { openStream } from './topic.ts'

/**
 * Replaces every process of a deployment under load, or only watches the load (test/README.md,
 * "Rolling"). Prints figures; exits with 1 if a promise is broken.
 */
const usage = `npm run roll -- [--from RELEASE] [--percent N] [--calls N] [--users N]
npm run soak:load -- [--minutes N] [--percent N] [--calls N] [--users N]
  --from RELEASE  start with the code of this tag or commit, or of the last release ("last"), migrate
                under load, and replace it by this one
  --minutes N   replace nothing: watch memory and tables for N minutes
  --percent N   of the measured capacity, 60 by default
  --calls N     authorizations a second, instead of a share of the capacity; at most 2000 otherwise
  --users N     users who pay, 200 by default
TEST_DATABASE_URL, TEST_REDIS_URL and TEST_KAFKA_BROKERS name real parts; an embedded PostgreSQL, no
Redis, and pushed events otherwise. Needs HAProxy.
`
const root = join(import.meta.dirname, '../..')
const callsMax = 2_000
const ticketsPerCall = 2.5
const say = (line: string): void =>
  void process.stdout.write(`${new Date().toISOString().slice(11, 23)} ${line}\n`)

interface Options {
  readonly from: string | undefined
  readonly minutes: number
  readonly percent: number
  readonly calls: number | null
  readonly users: number
}

function readOptions(): Options | null {
  const { values } = parseArgs({
    options: {
      from: { type: 'string' },
      minutes: { type: 'string', default: '0' },
      percent: { type: 'string', default: '60' },
      calls: { type: 'string' },
      users: { type: 'string', default: '200' },
      help: { type: 'boolean', default: false },
    },
  })
  if (values.help) return null
  const options = {
    from: values.from,
    minutes: Number(values.minutes),
    percent: Number(values.percent),
    calls: values.calls === undefined ? null : Number(values.calls),
    users: Number(values.users),
  }
  const { minutes, percent, calls, users } = options
  const isValid =
    minutes >= 0 && percent > 0 && percent <= 100 && users >= 1 && (calls === null || calls > 0)
  return isValid ? options : null
}

/** Everything that runs. */
type Running = Awaited<ReturnType<typeof start>>

async function start(stops: Stops, { from, users }: Options) {
  const { TEST_DATABASE_URL, TEST_REDIS_URL, TEST_KAFKA_BROKERS } = process.env
  const code = from === undefined ? root : await prepareRelease(from)
  const databaseUrl = await openDatabase(stops, TEST_DATABASE_URL)
  const stream = await openStream(stops, TEST_KAFKA_BROKERS)
  const fleet = await startFleet(stops, {
    root: code,
    databaseUrl,
    redisUrl: TEST_REDIS_URL,
    stream,
  })
  const pool = openPool(stops, databaseUrl)
  const app = await seedApp(fleet, { userCount: users * 2, isCustomer: false })
  const customer = await seedApp(fleet, { userCount: Math.ceil(users / 10), isCustomer: true })
  const load = await startHelper({ program: '../rolling/load/main.ts', args: [] })
  stops.push(load.stop)
  const ask = (question: LoadQuestion) => load.ask(question)
  await ask({
    kind: 'open',
    port: fleet.sidecarPort,
    secret: fleet.webhookSecret,
    payers: [...app.payers.slice(users), ...customer.payers],
    // Without leases: otherwise their tickets would wait for a call that is never made.
    reporters: app.payers.slice(0, users),
    signers: 6,
    sessions: users * 2,
    connections: 64,
    stream,
  })
  say(
    `${fleet.members.length} processes${from === undefined ? '' : ` of ${from}`}, ` +
      `${TEST_REDIS_URL ? 'Redis' : 'no Redis'}, ${stream ? 'Kafka' : 'pushed events'}`,
  )
  return { fleet, pool, app, ask, databaseUrl, signed: { tickets: 0 } }
}

const measuredSeconds = 10

/**
 * Calls for ten seconds, so that later calls find keys and leases in memory. Returns the
 * authorizations a second, with their tickets booked.
 */
async function warmUp({ ask, pool, signed }: Running, callsPerSecond: number): Promise<number> {
  const started = performance.now()
  await ask({ kind: 'start', callsPerSecond, ticketsPerCall })
  await sleep(measuredSeconds * 1000)
  const figures = await ask({ kind: 'stop' })
  signed.tickets += figure(figures, 'signed')
  await untilBooked(pool, signed.tickets)
  return figure(figures, 'allowed') / ((performance.now() - started) / 1000)
}

const run = promisify(execFile)

/** Applies this release's migrations, as an operator does. */
async function migrate(databaseUrl: string): Promise<void> {
  const began = performance.now()
  await run(process.execPath, ['deploy/tollgate.mjs', 'migrate'], {
    cwd: root,
    env: { PATH: process.env['PATH'] ?? '', DATABASE_URL: databaseUrl },
  })
  say(`migrated in ${((performance.now() - began) / 1000).toFixed(1)} s`)
}

const steadyMs = 8_000
const betweenMs = 3_000

async function replaceAll(fleet: Fleet): Promise<void> {
  for (const member of fleet.members) {
    const began = performance.now()
    await member.replace(root)
    say(`replaced ${member.name} in ${((performance.now() - began) / 1000).toFixed(1)} s`)
    await sleep(betweenMs)
  }
}

/** Returns what should not have grown in `minutes` but did. */
async function watch({ fleet, pool }: Running, minutes: number): Promise<string[]> {
  const quarterMs = minutes * 15_000
  const sampling = sampleMemory(fleet.members, Math.max(1_000, Math.min(10_000, quarterMs / 25)))
  await sleep(quarterMs)
  const before = await readTableSizes(pool)
  await sleep(3 * quarterMs)
  const tables = grownTables(before, await readTableSizes(pool))
  const growths = [...sampling.stop()].map(([name, samples]) => ({
    name,
    ...measureGrowth(samples),
  }))
  for (const { name, first, last, perHour } of growths)
    say(
      `${name}: ${first.toFixed(0)} MB at first, ${last.toFixed(0)} MB at last, ` +
        `${perHour.toFixed(0)} MB/h between the lowest of two thirds`,
    )
  return [
    ...growths.filter(({ isGrowing }) => isGrowing).map(({ name }) => `${name} grows`),
    ...tables,
  ]
}

async function work(running: Running, options: Options): Promise<string[]> {
  const { fleet, pool, app, ask, signed } = running
  const reached = await warmUp(running, options.calls ?? 1e6)
  say(`warm: ${reached.toFixed(0)} authorizations/s with ${ticketsPerCall} tickets each`)
  const calls = options.calls ?? Math.min(callsMax, (reached * options.percent) / 100)
  say(
    `load: ${calls.toFixed(0)} authorizations/s, ${(calls * ticketsPerCall).toFixed(0)} tickets/s`,
  )
  const backend = startBackend(fleet.platformUrl, app)
  await ask({ kind: 'start', callsPerSecond: calls, ticketsPerCall })
  await sleep(steadyMs)
  const problems: string[] = []
  if (options.minutes > 0) problems.push(...(await watch(running, options.minutes)))
  else {
    if (options.from !== undefined) await migrate(running.databaseUrl)
    await sleep(steadyMs)
    await replaceAll(fleet)
  }
  const rest = await backend.stop()
  const figures = await ask({ kind: 'stop' })
  const of = (name: string): number => figure(figures, name)
  signed.tickets += of('signed')
  say(
    `signers: ${of('calls')} calls in ${of('seconds').toFixed(0)} s, ${of('allowed')} allowed, ` +
      `${of('failed')} failed; p50 ${of('p50Ms').toFixed(1)} ms, p99 ${of('p99Ms').toFixed(0)} ms, ` +
      `longest ${of('maxMs').toFixed(0)} ms`,
  )
  const booked = await untilBooked(pool, signed.tickets)
  say(
    `tickets: ${signed.tickets} signed, ${booked.tickets} booked, ${booked.doubled} doubled, ` +
      `${booked.quarantined} in quarantine; ${of('repeats')} deliveries repeated`,
  )
  say(`REST: ${rest.reads} reads, ${rest.writes} writes, ${rest.repeated} writes repeated`)
  const wrong = await wrongCredits(fleet.platformUrl, app, rest.credited)
  const began = performance.now()
  const differences = await verifyAll(fleet.operator)
  say(`verified in ${((performance.now() - began) / 1000).toFixed(0)} s`)
  return [
    ...problems,
    ...(of('failed') > 0 ? [`${of('failed')} calls failed at the signer`] : []),
    ...(booked.tickets === signed.tickets ? [] : ['tickets were lost or doubled']),
    ...(booked.doubled + booked.quarantined > 0 ? ['tickets were doubled or put aside'] : []),
    ...rest.failures,
    ...wrong,
    ...differences.map((difference) => `verify: ${difference}`),
  ]
}

const options = readOptions()
if (!options) {
  process.stderr.write(usage)
  process.exit(2)
}
const running = await startParts((stops) => start(stops, options))
const problems = await work(running, options).finally(() => running.stop())
for (const problem of problems) say(`PROBLEM ${problem}`)
say(problems.length === 0 ? 'nothing failed, nothing was lost' : `${problems.length} problems`)
process.exitCode = problems.length === 0 ? 0 : 1
