import { setTimeout as sleep } from 'node:timers/promises'
import { newSecret } from '../../../core/lib/crypto.ts'
import type { Pool } from '../../../core/lib/sql.ts'
import { maxBatch } from '../../../core/metering/ingest/ingest.ts'
import { type CoreClient, connectCore } from '../../../deploy/cli/client.ts'
import { type FakeStripe, startStripe } from '../../fakes/stripe/stripe.ts'
import { wireCore } from '../core.ts'
import { type Helper, figure, startHelper } from '../helper.ts'
import { createFeed } from '../ingest/feed.ts'
import { createTopic } from '../ingest/tickets.ts'
import type { Bench, Finding } from '../row.ts'
import { count as inWords } from '../table.ts'
import { type Payers, createPayers } from './payers.ts'

const linesPerInvoice = 20
/** One line is of units beyond the included ones. */
const pipelines = linesPerInvoice - 1
const latencyMs = 20
const monthMs = 32 * 86_400_000
const limitMs = 300_000

/**
 * Measures how long core needs to enter the next period of users whose periods end at once, to issue
 * their invoices and to charge them, at a fake of Stripe that takes 20 ms for each request. Included
 * usage paid for a part of the first ticket of each user.
 */
export async function monthEnd(bench: Bench): Promise<Finding[]> {
  const users = bench.quick ? 1_000 : 10_000
  const month = await openMonth(bench, users)
  const { core, pool, stripe } = month
  const before = figure(await core.ask({}), 'cpuMs')
  stripe.latencyMs = latencyMs
  const started = performance.now()
  month.aheadMs = monthMs
  await core.ask({ aheadMs: monthMs })
  const issuedMs = await untilPaid(bench, pool, { users, started })
  const seconds = (performance.now() - started) / 1_000
  const figures = await core.ask({})
  await check(month, users)
  const cpuSeconds = (figure(figures, 'cpuMs') - before) / 1_000
  const name = `${inWords(users)} invoices of ${linesPerInvoice} lines, raised and paid`
  return [
    {
      name,
      unit: 's',
      target: { atMost: (60 * users) / 10_000 },
      value: seconds,
      spread: null,
      detail: `the last invoice was issued after ${(issuedMs / 1_000).toFixed(1)} s; core used ${cpuSeconds.toFixed(1)} s of a processor`,
    },
    {
      name: `${name}: memory of core`,
      unit: 'MB',
      target: { atMost: 350 },
      value: figure(figures, 'peakRssMb'),
      spread: null,
      detail: 'the most that was resident since its start',
    },
  ]
}

interface Month {
  readonly core: Helper
  readonly operator: CoreClient
  readonly pool: Pool
  readonly stripe: FakeStripe
  readonly payers: Payers
  aheadMs: number
}

/** Starts core and the fake, and books the tickets of a month. */
async function openMonth(bench: Bench, users: number): Promise<Month> {
  const clock = { aheadMs: 0 }
  const stripe = await startStripe({ now: () => new Date(Date.now() + clock.aheadMs) })
  bench.defer(stripe.stop)
  const databaseUrl = await (await bench.server()).create()
  const token = newSecret('')
  const settings = {
    ...stripe.env,
    DATABASE_URL: databaseUrl,
    CORE_PORT: '0',
    CORE_TOKEN: token,
    COLLECTOR: 'off',
    END_USER_CAP: String(users + 1),
    KEY_ENCRYPTION_KEY: newSecret(''),
    PUBLIC_URL: 'https://service.example',
    RATE_FIXED: '3000',
    SECRET_PEPPERS: `p1:${newSecret('')}`,
  }
  const core = await startHelper({
    program: 'collection/core-server.ts',
    args: [JSON.stringify(settings)],
  })
  bench.defer(core.stop)
  const operator = connectCore({ target: `127.0.0.1:${figure(core.ready, 'port')}`, token })
  bench.defer(async () => operator.close())
  const wired = wireCore(databaseUrl)
  bench.defer(wired.stop)
  bench.say(`subscribing ${inWords(users)} users`)
  const payers = await createPayers({ operator, pool: wired.pool, stripe, users })
  await bookTickets(wired, payers, users)
  await wired.pool.query('vacuum analyze')
  return Object.assign(clock, { core, operator, pool: wired.pool, stripe, payers })
}

/**
 * Books a ticket of 4 cents for each user and pipeline: one of every user, then the others of a user
 * in the same batch.
 */
async function bookTickets(
  { createCollecting }: ReturnType<typeof wireCore>,
  { clientId }: Payers,
  users: number,
): Promise<void> {
  const feed = createFeed()
  const collecting = createCollecting(feed.source)
  await collecting.start()
  const others = pipelines - 1
  const placeOf = (n: number): { user: number; pipeline: number } =>
    n < users
      ? { user: n, pipeline: 0 }
      : { user: Math.floor((n - users) / others), pipeline: 1 + ((n - users) % others) }
  const topic = createTopic({
    clientId,
    pick: (n) => placeOf(n).user,
    more: (n) => ({
      pipeline: `pipeline-${placeOf(n).pipeline}`,
      // 4 cents and a part of a cent that differs from user to user.
      computed_fee: String(13_333_333_333_333n + BigInt(n % 7_919) * 1_000n),
      pixels: 10,
    }),
  })
  for (const count of [users, users * others])
    await feed.take(topic.batches(count, maxBatch), count)
  await collecting.stop()
}

/** Waits until every collection is paid. Returns when the last invoice was issued, after the start. */
async function untilPaid(
  bench: Bench,
  pool: Pool,
  { users, started }: { readonly users: number; readonly started: number },
): Promise<number> {
  let issuedMs = 0
  for (let round = 0; ; round++) {
    const { rows } = await pool.query<{ state: string; count: bigint }>(
      'select state, count(*) from collections group by state',
    )
    const counts = new Map(rows.map(({ state, count }) => [state, Number(count)]))
    const passed = performance.now() - started
    const waiting = counts.get('requested') ?? 0
    const total = rows.reduce((sum, { count }) => sum + Number(count), 0)
    if (issuedMs === 0 && total >= users && waiting === 0) issuedMs = passed
    if ((counts.get('paid') ?? 0) >= users) return issuedMs
    if (passed > limitMs) throw new Error(`not paid: ${JSON.stringify([...counts])}`)
    if (round % 40 === 0)
      bench.say(`${(passed / 1_000).toFixed(0)} s: ${JSON.stringify([...counts])}`)
    await sleep(250)
  }
}

/** Throws unless every user has one whole invoice that was charged once, and the books are right. */
async function check({ pool, stripe, payers, operator }: Month, users: number): Promise<void> {
  const { rows } = await pool.query<{ invoices: bigint; cents: bigint; lines: bigint }>(
    `select count(*) as invoices, sum(total_cents)::bigint as cents,
            (select count(*) from invoice_lines) as lines
     from invoices`,
  )
  const intents = [...stripe.world(payers.at).list('payment_intent')]
  const taken = intents.reduce(
    (sum, { status, amount }) => sum + (status === 'succeeded' ? amount : 0),
    0,
  )
  const found = { ...rows[0], charges: intents.length, taken }
  const isRight =
    found.invoices === BigInt(users) &&
    found.lines === BigInt(users * linesPerInvoice) &&
    found.cents === BigInt(taken) &&
    intents.length === users
  if (!isRight)
    throw new Error(`not each user was charged once: ${Object.values(found).join(', ')}`)
  for await (const { difference } of operator.books.verifyBooks({ clientId: undefined }))
    if (difference) throw new Error(`verify: ${JSON.stringify(difference)}`)
}
