import { simulateLedger } from '../../../core/balances/ledger/trial.ts'
import { createWhatIf } from '../../../core/billing/whatif/whatif.ts'
import { createPool, sql, tx } from '../../../core/lib/sql.ts'
import { systemNow as now } from '../../../core/lib/time.ts'
import { createDiscovery } from '../../../core/plans/catalog/discovery.ts'
import { createOffers } from '../../../core/plans/offers/service.ts'
import type { Bench, Finding } from '../row.ts'
import { median, pairedRatio } from '../stats.ts'
import { count } from '../table.ts'

const pageSize = 4_000
const range = { from: '2026-04-01', to: '2026-05-01' }
const draft = {
  name: 'Draft',
  type: 'usage',
  includedUsdMicros: '1000',
  overageRateUsd: '0.0000012',
  billingCycle: 'daily',
  capabilities: [{ pipeline: 'live', modelId: '*', retailRateUsd: '0.000001333333333333' }],
}

/**
 * Compares pricing a month of an app's tickets by a draft with reading the same columns in the same
 * order.
 */
export async function whatIf(bench: Bench): Promise<Finding[]> {
  const rounds = bench.quick ? 3 : 10
  const { core, large } = await bench.history()
  const { pool: small } = core
  await small.query(
    `insert into rates (id, usd_attos_per_eth, source, observed_at) overriding system value
     values (1, 3000e18, 'bench', '2026-01-01') on conflict (id) do nothing`,
  )
  const { connectionString } = small.options
  const url = connectionString ?? ''
  const pool = createPool({ url, max: 2, name: 'tollgate-bench', statementTimeoutMs: 0 })
  pool.on('error', () => undefined)
  bench.defer(() => pool.end())
  const discovery = createDiscovery({ pipelines: ['live'], url: null, now })
  const selling = { require: async () => {}, requireThreshold: async () => {} }
  const offers = createOffers({
    pool,
    discovery,
    selling,
    countSubscribers: async () => 0,
    onStarterChange: async () => {},
    now,
  })
  const whatIf = createWhatIf({ pool, drafts: offers.drafts, simulateLedger, now })
  const request = JSON.stringify({ ...range, plans: [draft] })
  const limits = { limitSeconds: 3_600, signal: new AbortController().signal }

  async function replay(): Promise<number> {
    const started = performance.now()
    const { total } = await whatIf.simulatePlans(large.appId, request, limits)
    if (total.tickets !== large.tickets) throw new Error(`${total.tickets} tickets were replayed`)
    return performance.now() - started
  }

  async function read(): Promise<number> {
    const started = performance.now()
    let rows = 0
    await tx(pool, async (db) => {
      await db.query(sql`
        declare bench no scroll cursor for
        select user_id, event_id, signed_at, pipeline, model_id, fee_wei, rate_id, cost_attos, retail_attos,
               platform_fee_attos
        from tickets
        where app_id = ${large.appId} and signed_at >= ${range.from} and signed_at < ${range.to}
        order by user_id, signed_at, event_id`)
      for (let page = pageSize; page === pageSize; rows += page)
        page = (await db.query(`fetch ${pageSize} from bench`)).rows.length
    })
    if (rows !== large.tickets) throw new Error(`${rows} tickets were read`)
    return performance.now() - started
  }

  const [replays, reads]: [number[], number[]] = [[], []]
  for (let round = -1; round < rounds; round++) {
    const [ofReplay, ofRead] = [await replay(), await read()]
    if (round < 0) continue
    replays.push(ofReplay)
    reads.push(ofRead)
  }
  return [
    {
      name: 'whatif, by reading its tickets',
      unit: '',
      target: { atMost: 3 },
      ...pairedRatio(replays, reads),
      detail: `${median(replays).toFixed(0)} ms by ${median(reads).toFixed(0)} ms over ${count(large.tickets)} tickets of ${large.users} users`,
    },
  ]
}
