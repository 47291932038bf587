import { randomBytes, randomUUID } from 'node:crypto'
import { usualLimits } from '../../../core/metering/events/parse.ts'
import { createLedger, type Ledger } from '../../../core/balances/ledger/ledger.ts'
import { createApps } from '../../../core/identity/apps/apps.ts'
import { createUsers } from '../../../core/identity/users/users.ts'
import type { AppId } from '../../../core/shared/ids.ts'
import { createGrants } from '../../../core/shared/lineage/grants.ts'
import { createInvalidations } from '../../../core/shared/invalidations.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { ethRate, usdMicros } from '../../../core/lib/money.ts'
import { createPool, type Pool } from '../../../core/lib/sql.ts'
import type { Now } from '../../../core/lib/time.ts'
import type { Emitter } from '../../../core/metering/backend/emit.ts'
import { createMetering } from '../../../core/metering/service.ts'
import type { EventSource } from '../../../core/metering/collector/collector.ts'
import { createCuts } from '../../../core/billing/cuts.ts'
import { planReads } from '../../../core/plans/offers/reads.ts'
import { createPlans } from '../../../core/plans/service.ts'
import { createSecrets } from '../../../core/shared/secrets.ts'
import { createDatabase } from '../../support/run/postgres.ts'

const dollars3000 = ethRate(3000n * 10n ** 18n)

interface TestApp {
  readonly id: AppId
  readonly clientId: string
}

export interface World {
  readonly pool: Pool
  readonly users: ReturnType<typeof createUsers>
  readonly app: TestApp
  /** Creates another app. */
  createApp(name: string): Promise<TestApp>
  readonly published: string[]
  /** The time is `at` until it is set again. */
  readonly clock: { at: Date }
  /** Creates another process on the same database. */
  metering(options?: MeteringOptions): ReturnType<typeof createMetering>
  metric(name: string): Promise<string[]>
  stop(): Promise<void>
}

export interface MeteringOptions {
  readonly eventSource?: EventSource
  readonly charge?: (real: Ledger['charge']) => Ledger['charge']
  readonly fixed?: boolean
  readonly emitter?: Emitter
  readonly lossGraceSeconds?: number
}

/** Creates a database with one app and metering's real dependencies. */
export async function createWorld(at = '2026-09-14T10:20:00Z'): Promise<World> {
  const database = await createDatabase()
  const pool = createPool({
    url: database.url,
    max: 8,
    name: 'metering-test',
    statementTimeoutMs: 20_000,
  })
  // Dropping the database closes the connections.
  pool.on('error', () => {})
  const clock = { at: new Date(at) }
  const now: Now = () => clock.at
  const log = silentLog()
  const invalidations = createInvalidations({ redis: null, tombstoneSeconds: 60, log })
  const published: string[] = []
  invalidations.watch(({ kind, id }) => published.push(`${kind} ${id}`))
  const ledger = createLedger()
  const plans = createPlans({ ledger })
  const secrets = createSecrets({ current: '1', byId: new Map([['1', randomBytes(32)]]) })
  const apps = createApps({
    pool,
    plans,
    secrets,
    now,
    quota: { requireRoom: async () => {} },
    ownByPlatform: async () => {},
    putOwner: async () => {},
  })
  const createApp = (name: string) =>
    apps.create({ name, included: usdMicros(5_000_000n), isPlatformOwned: false })
  const app = await createApp('acme')
  const grants = createGrants({ pool, invalidations, now })
  const ending = { invalidations, grants, credentialIssuers: [] }
  const users = createUsers({ ...ending, pool, plans, log, now })
  let registry = createMetrics('test')

  function metering({
    eventSource,
    charge = (real) => real,
    fixed = true,
    emitter,
    lossGraceSeconds = 300,
  }: MeteringOptions = {}) {
    registry = createMetrics('test')
    return createMetering({
      pool,
      now,
      log,
      metrics: registry,
      users,
      invalidations,
      ledger: { ...ledger, charge: charge(ledger.charge) },
      plans: planReads,
      cuts: createCuts({ pool, now }),
      emitter,
      config: {
        mode: 'direct',
        kafka: null,
        rates: {
          fixed: fixed ? dollars3000 : null,
          urls: [],
          pollSeconds: 3600,
          maxAgeSeconds: 600,
          manualMaxAgeSeconds: 86_400,
          graceSeconds: 3600,
          marginPercent: 10,
        },
        tickets: { ...usualLimits, maxAgeDays: 3_650 },
        lossGraceSeconds,
      },
      ...(eventSource && { eventSource }),
    })
  }

  const metric = async (name: string): Promise<string[]> =>
    (await registry.metrics()).split('\n').filter((line) => line.startsWith(name))

  async function stop(): Promise<void> {
    invalidations.stop()
    await pool.end()
    await database.drop()
  }

  return { pool, users, app, createApp, published, clock, metering, metric, stop }
}

/** Inserts an observation of the rate at `observedAt`. */
export async function recordRate(pool: Pool, observedAt: string, usd = 3000): Promise<void> {
  await pool.query(
    `insert into rates (usd_attos_per_eth, source, observed_at) values ($1::numeric * 1e18, 'test', $2)`,
    [usd, observedAt],
  )
}

type Fields = Readonly<Record<string, unknown>>

export const eventData: Fields = {
  app: 'acme/echo',
  auth_id: 'acme:alice',
  billable_secs: 10,
  computed_fee: '120000',
  cost: '12000.0000000000',
  current_time: '2026-09-14T10:15:30.123456789Z',
  current_time_unix: 1789380930123,
  manifest_id: 'sess-01J7',
  num_tickets: 1,
  orch_address: '0x5bE44e23041E93CDF9bCd5A0968524e104e38ae1',
  orch_url: 'https://orch.example:8935',
  pipeline: 'live',
  pixels: 0,
  pm_session_id: '0x2b1f6c0e',
  previous_time: '2026-09-14T10:15:30.123456789Z',
  previous_time_unix: 1789380930123,
  request_id: '1a2b3c4d',
  sequence_number: 0,
  session_balance: '49999999880000',
  session_id: '9f86d081',
  session_status: 'new',
}

/**
 * Returns the first event of a live session (docs/signer-events.md), with other `data` members
 * and other envelope members.
 */
export const envelope = (data: Fields = {}, more: Fields = {}): Buffer =>
  Buffer.from(
    JSON.stringify({
      id: randomUUID(),
      type: 'create_signed_ticket',
      timestamp: '1789380930131',
      gateway: '',
      data: { ...eventData, ...data },
      ...more,
    }),
  )

/**
 * Checks the invariants of docs/data.md, "Invariants", on metering's data. Returns the
 * differences by name.
 */
export async function differences(pool: Pool): Promise<Record<string, unknown[]>> {
  const run = async (text: string) => (await pool.query(text)).rows as unknown[]
  return {
    hourly: await run(`
      select * from (
        select app_id, user_id, date_trunc('hour', signed_at, 'UTC') as hour, pipeline, model_id, count(*) as n,
               count(*) filter (where cost_attos is null) as unpriced, sum(fee_wei) as fee,
               coalesce(sum(cost_attos), 0) as cost, coalesce(sum(retail_attos - cost_attos), 0) as markup,
               coalesce(sum(platform_fee_attos), 0) as platform_fee,
               coalesce(sum(platform_fee_wei), 0) as platform_wei, sum(billable_secs) as secs, sum(pixels) as pixels
        from tickets group by 1, 2, 3, 4, 5) t
      full join usage_hourly u using (app_id, user_id, hour, pipeline, model_id)
      where (t.n, t.unpriced, t.fee, t.cost, t.markup, t.platform_fee, t.platform_wei, t.secs, t.pixels) is distinct from
            (u.ticket_count, u.unpriced_count, u.fee_wei, u.cost_attos, u.markup_attos, u.platform_fee_attos,
             u.platform_fee_wei, u.billable_secs, u.pixels)`),
    charged: await run(`
      select b.user_id from balances b
      left join (select user_id, sum(coalesce(retail_attos, cost_attos)) as cost from tickets group by 1) t using (user_id)
      left join (select user_id, sum(overage_attos - amount_attos) as cost from ledger_entries
                 where charged_app_id is not null group by 1) o using (user_id)
      where b.consumed_attos <> coalesce(t.cost, 0) + coalesce(o.cost, 0)`),
    ledger: await run(`
      select b.user_id from balances b
      left join (select user_id, sum(amount_attos) as total from ledger_entries group by 1) l using (user_id)
      where b.balance_attos <> coalesce(l.total, 0)`),
    envelopes: await run(`
      select e.key, t.event_id
      from envelopes e
      full join tickets t on e.key = case
        when t.event_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then t.event_id::uuid
        else left(encode(sha256(convert_to(t.event_id, 'UTF8')), 'hex'), 32)::uuid end
      where e.key is null or t.event_id is null`),
    streams: await run(`
      select * from stream_offsets
      where next_offset - first_offset <> tickets + duplicates + ignored + quarantined + missing or missing <> 0`),
  }
}

export const noDifferences = { hourly: [], charged: [], ledger: [], envelopes: [], streams: [] }
