import { createPool } from '../../../core/lib/sql.ts'
import { basic } from '../../../deploy/cli/client.ts'
import { type Deployed, startDeployed } from '../deployed.ts'
import { drive } from '../drive.ts'
import type { Bench, Finding } from '../row.ts'
import { median, pairedRatio } from '../stats.ts'

const [many, few] = [1_000, 10]
const bundlesOfPlan = 3

/**
 * Compares the list of an app with many plans with that of an app with few, complete and unchanged
 * (304), one request at a time. Apart from its bytes, an answer must hardly depend on the number of
 * plans.
 */
export async function planList(bench: Bench): Promise<Finding[]> {
  const [rounds, count] = bench.quick ? [6, 40] : [12, 100]
  const deployed = await startDeployed(bench)
  const apps = { many: await sellingApp(deployed, many), few: await sellingApp(deployed, few) }
  const port = deployed.platformPort
  /** Returns the milliseconds per answer. */
  const time = async (request: Buffer): Promise<number> =>
    1000 / (await drive({ port, requests: [request], count, connections: 1 }))
  const findings: Finding[] = []
  for (const kind of ['whole', 'unchanged'] as const) {
    const [large, small]: [number[], number[]] = [[], []]
    // The first rounds warm up the code.
    for (let round = -2; round < rounds; round++) {
      const [ofMany, ofFew] = [await time(apps.many[kind]), await time(apps.few[kind])]
      if (round < 0) continue
      large.push(ofMany)
      small.push(ofFew)
    }
    findings.push({
      name: `plan-list, ${kind}, ${many} by ${few} plans`,
      unit: '',
      target: { atMost: 3 },
      ...pairedRatio(large, small),
      detail: `${median(large).toFixed(1)} ms${kind === 'whole' ? ` for ${apps.many.kilobytes} KB` : ''}, ${median(small).toFixed(1)} ms`,
    })
  }
  return findings
}

/** Returns requests for the plan list of a new app with `plans` plans. */
async function sellingApp({ operator, databaseUrl, platformPort }: Deployed, plans: number) {
  const { clientId, m2mClientId, m2mClientSecret } = await operator.apps.createApp({
    name: 'Bench',
    starterUsdMicros: '5000000',
  })
  const path = `/api/v1/apps/${clientId}/plans`
  const authorization = basic(m2mClientId, m2mClientSecret)
  await addPlans(databaseUrl, clientId, plans)
  const answer = await fetch(`http://127.0.0.1:${platformPort}${path}`, {
    headers: { authorization },
    signal: AbortSignal.timeout(30_000),
  })
  const text = await answer.text()
  const list: unknown = JSON.parse(text)
  if (!Array.isArray(list) || list.length !== plans) throw new Error(text.slice(0, 200))
  const request = (header = ''): Buffer =>
    Buffer.from(
      `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: ${authorization}\r\n${header}\r\n`,
    )
  return {
    whole: request(),
    unchanged: request(`If-None-Match: ${answer.headers.get('etag') ?? ''}\r\n`),
    kilobytes: Math.round(text.length / 1024),
  }
}

/** Adds plans to the app's own two, up to `plans`. */
async function addPlans(url: string, clientId: string, plans: number): Promise<void> {
  const pool = createPool({ url, max: 1, name: 'tollgate-bench', statementTimeoutMs: 0 })
  const names = `from plans p join clients c using (app_id) where c.client_id = '${clientId}' and p.name_key ~ '^p[0-9]+$'`
  try {
    await pool.query(
      `insert into plans (app_id, id, name, name_key, type, status, is_starter_default, is_network_default, billing_cycle,
                          created_at, updated_at)
       select app_id, gen_random_uuid(), 'P' || n, 'p' || n, 'usage', 'active', false, false, 'monthly', now(), now()
       from clients, generate_series(3, $2) n
       where client_id = $1`,
      [clientId, plans],
    )
    await pool.query(
      `insert into plan_versions (app_id, plan_id, version, type, price_amount, price_currency, included_attos, retail_rate,
                                  billing_cycle, created_at)
       select app_id, id, 1, 'usage', '0', 'USD', 0, 0.0000015, 'monthly', p.created_at ${names}`,
    )
    await pool.query(
      `insert into plan_bundles (app_id, plan_id, version, id, position, pipeline, model_id, retail_rate)
       select app_id, id, 1, gen_random_uuid(), n, 'live', 'm' || n, 0.000002
       from (select p.app_id, p.id ${names}) p, generate_series(1, ${bundlesOfPlan}) n`,
    )
    await pool.query('analyze')
  } finally {
    await pool.end()
  }
}
