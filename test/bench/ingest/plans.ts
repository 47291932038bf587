import { Session } from 'node:inspector/promises'
import { maxBatch } from '../../../core/metering/ingest/ingest.ts'
import type { Pool } from '../../../core/lib/sql.ts'
import { openCopy } from './copy.ts'
import { wireCore } from '../core.ts'
import { createFeed } from './feed.ts'
import type { Bench, Finding } from '../row.ts'
import { median, pairedRatio } from '../stats.ts'
import { count } from '../table.ts'
import { createTopic } from './tickets.ts'

const bundlesOfPlan = 10

/**
 * Users with open sessions at a time, as many as in `ingest`. A session lasts for
 * `batchesOfSession` batches.
 */
const activeUsers = 1_000
const batchesOfSession = 6

/**
 * Like `ingest`, but each user is on one of many plans with its own rate and bundles, so tickets
 * are priced by the plan version of their user. A thousand subscribers are active at a time. Each
 * batch replaces a sixth of them with users that the collector has not cached. A second figure,
 * without a target: each ticket belongs to another user, so that tickets share no work.
 */
export async function ingestPlans(bench: Bench): Promise<Finding[]> {
  const [rounds, tickets, users, plans] = bench.quick
    ? [3, 20_000, 5_000, 100]
    : [5, 180_000, 100_000, 1_000]
  const apartTickets = bench.quick ? 10_000 : 60_000
  const url = await (await bench.server()).create()
  const core = wireCore(url)
  bench.defer(core.stop)
  const { clientId } = await core.createApp()
  const inTurn: Pick = (n) => n % users
  const someActive: Pick = (n) => {
    const begun = Math.floor(n / maxBatch) * (activeUsers / batchesOfSession)
    return Math.floor(begun + Math.random() * activeUsers) % users
  }
  let pick = inTurn
  const topic = createTopic({ clientId, pick: (n) => pick(n) })

  /** Returns the seconds to ingest, per round. The collector starts without cached users. */
  async function collect(
    of: number,
    { whose, times = 1, before }: { whose: Pick; times?: number; before?: () => Promise<void> },
  ): Promise<number[]> {
    pick = whose
    const feed = createFeed()
    const metering = core.createCollecting(feed.source)
    await metering.start()
    const seconds: number[] = []
    for (let round = 0; round < times; round++) {
      await before?.()
      const batches = [...topic.batches(of, maxBatch)]
      globalThis.gc?.()
      const started = performance.now()
      await feed.take(batches, of)
      seconds.push((performance.now() - started) / 1000)
    }
    await metering.stop()
    return seconds
  }

  // Creates the users, then puts them on the plans as if they had started there.
  await collect(users, { whose: inTurn })
  await sell(core.pool, plans)
  const copy = await openCopy(url)
  bench.defer(copy.stop)
  await collect(tickets, { whose: someActive })
  await copy.prepare(tickets)
  await copy.time()
  const copied: number[] = []
  const before = async (): Promise<void> => void copied.push(await copy.time())
  const ingested = await collect(tickets, { whose: someActive, times: rounds, before })
  const share = await rateShare(() => collect(tickets, { whose: someActive }))
  const apart = await collect(apartTickets, { whose: inTurn, times: rounds })
  await check(core.pool)
  const rate = (of: number, seconds: readonly number[]): string =>
    `${count(of / median(seconds))}/s`
  return [
    {
      name: 'ingest with plans by COPY',
      unit: '',
      target: { atLeast: 0.12 },
      ...pairedRatio(copied, ingested),
      detail: `${rate(tickets, ingested)}, COPY ${rate(tickets, copied)}; ${count(users)} users on ${count(plans)} plans with ${bundlesOfPlan} bundles each, ${count(activeUsers)} active at a time`,
    },
    {
      name: 'rating, of the processor time of ingest',
      unit: '',
      target: { atMost: 0.1 },
      value: share,
      spread: null,
      detail: `in the thread that ingests`,
    },
    {
      name: 'ingest with plans, each ticket of another user',
      unit: '',
      target: null,
      value: (median(copied) * apartTickets) / (median(apart) * tickets),
      spread: null,
      detail: `of COPY; ${rate(apartTickets, apart)}: a row of the account, the ledger, the hour and the session for each`,
    },
  ]
}

/** Returns the user of the nth event. */
type Pick = (n: number) => number

/** Returns the share of this thread's processor time that `work` spends on rating. */
async function rateShare(work: () => Promise<unknown>): Promise<number> {
  const session = new Session()
  session.connect()
  await session.post('Profiler.enable')
  await session.post('Profiler.start')
  await work()
  const { profile } = await session.post('Profiler.stop')
  session.disconnect()
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]))
  const rates = new Set<number>()
  // A node precedes its children.
  for (const { id, callFrame, children = [] } of profile.nodes) {
    if (ratingFiles.test(callFrame.url)) rates.add(id)
    if (rates.has(id)) for (const child of children) rates.add(child)
  }
  const times = { all: 0, rating: 0 }
  profile.samples?.forEach((id, i) => {
    if (nodes.get(id)?.callFrame.functionName === '(idle)') return
    const micros = profile.timeDeltas?.[i] ?? 0
    times.all += micros
    if (rates.has(id)) times.rating += micros
  })
  return times.rating / times.all
}

const ratingFiles =
  /core\/(metering\/(rating\/|batch\/tariff)|balances\/accounts\/period-store|plans\/(terms|offers)|billing\/cuts)/

/** Creates plans with different rates, and puts every user in a period of one of them. */
async function sell(pool: Pool, plans: number): Promise<void> {
  const db = await pool.connect()
  try {
    await db.query('begin')
    await db.query('set local session_replication_role = replica')
    await db.query(
      `insert into plans (app_id, id, name, name_key, type, status, is_starter_default, is_network_default, billing_cycle,
                          created_at, updated_at)
       select app_id, gen_random_uuid(), 'p' || n, 'p' || n, 'usage', 'active', false, false, 'monthly', created_at, updated_at
       from plans, generate_series(1, $1) n
       where is_starter_default`,
      [plans],
    )
    await db.query(
      `insert into plan_versions (app_id, plan_id, version, type, price_amount, price_currency, included_attos, retail_rate,
                                  billing_cycle, created_at)
       select app_id, id, 1, 'usage', '0', 'USD', 0, 0.000001 + substr(name, 2)::int % 50 * 0.00000001, 'monthly', created_at
       from plans
       where name_key ~ '^p[0-9]+$'`,
    )
    await db.query(
      `insert into plan_bundles (app_id, plan_id, version, id, position, pipeline, model_id, retail_rate)
       select app_id, id, 1, gen_random_uuid(), n, case when n % 2 = 0 then 'live' else 'batch' end, 'm' || n,
              0.000001 + n * 0.0000001
       from plans, generate_series(1, ${bundlesOfPlan}) n
       where name_key ~ '^p[0-9]+$'`,
    )
    await db.query(
      `with numbered as (select id, row_number() over (order by id) as n from plans where name_key ~ '^p[0-9]+$'),
            users as (select app_id, user_id, row_number() over (order by user_id) as n from periods)
       update periods p
       set plan_id = numbered.id, plan_version = 1
       from users join numbered on numbered.n = users.n % $1 + 1
       where p.app_id = users.app_id and p.user_id = users.user_id`,
      [plans],
    )
    await db.query('commit')
  } finally {
    db.release()
  }
}

/** Throws unless tickets were priced at retail. */
async function check(pool: Pool): Promise<void> {
  const { rows } = await pool.query<{ sold: bigint }>(
    'select count(*) as sold from tickets where retail_attos is not null',
  )
  if ((rows[0]?.sold ?? 0n) === 0n) throw new Error('no ticket was sold at retail')
}
