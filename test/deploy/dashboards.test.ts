import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { basic } from '../../deploy/cli/client.ts'
import { dashboards } from '../../deploy/docs/dashboards/dashboards.ts'
import { directSink } from '../../deploy/signer-double/events/direct-sink.ts'
import { type SignerDouble, createSignerDouble } from '../../deploy/signer-double/signer-double.ts'
import { type FakeOpenMeter, startOpenMeter } from '../fakes/openmeter/openmeter.ts'
import { type Prometheus, readAlerts, startPrometheus } from '../support/deployment/prometheus.ts'
import { type TestService, startTestService } from '../support/deployment/service.ts'
import { until } from '../support/waiting.ts'

const root = join(import.meta.dirname, '../..')
const read = (file: string): Promise<string> => readFile(join(root, file), 'utf8')
/** Prometheus of Debian. */
const binary = process.env['TEST_PROMETHEUS'] ?? ''

interface RenderedPanel {
  readonly id: number
  readonly title: string
  readonly description: string
  readonly gridPos: {
    readonly x: number
    readonly y: number
    readonly w: number
    readonly h: number
  }
  readonly links?: readonly { readonly title: string; readonly url: string }[]
  readonly targets: readonly { readonly expr: string; readonly legendFormat: string }[]
  readonly fieldConfig: { readonly defaults: { readonly unit: string } }
}

interface RenderedDashboard {
  readonly uid: string
  readonly title: string
  readonly panels: readonly RenderedPanel[]
}

const rendered = await Promise.all(
  dashboards.map(async ({ uid }): Promise<RenderedDashboard> =>
    JSON.parse(await read(`deploy/grafana/dashboards/${uid}.json`)),
  ),
)
const panels = rendered.flatMap(({ title: dashboard, panels }) =>
  panels.map((panel) => ({ ...panel, dashboard })),
)
const alerts = await readAlerts()

/** Queries of panels, with Grafana's variables replaced as Grafana does. */
const panelQueries = panels.flatMap(({ dashboard, title, targets }) =>
  targets.map(({ expr, legendFormat }) => ({
    name: `${dashboard}: ${title}: ${legendFormat}`,
    expr: expr.replaceAll(/\$(job|instance)\b/g, '.+').replaceAll('$__rate_interval', '1m'),
  })),
)

/** Alerts without their comparison, which is false in a healthy service. */
const alertQueries = alerts.map(({ alert, expr }) => ({ name: alert, expr: measuredPart(expr) }))

function measuredPart(expr: string): string {
  let depth = 0
  const text = expr.replace(/"[^"]*"/g, (quoted) => '_'.repeat(quoted.length))
  for (let at = 0; at < text.length; at++) {
    if ('([{'.includes(text.charAt(at))) depth++
    if (')]}'.includes(text.charAt(at))) depth--
    if (depth === 0 && /^ (?:[<>]|==|unless) /.test(text.slice(at))) return expr.slice(0, at)
  }
  return expr
}

/** Why a query has no value in this test. Keep it short: let counters begin at 0 instead. */
const reasons: Readonly<Record<string, string>> = {
  TollgateDiskFills: 'a metric of the node exporter',
  TollgateBackendDrift: 'the first comparison with OpenMeter comes an hour after the start',
  'Tollgate ingest: OpenMeter: days that differ': 'as TollgateBackendDrift',
  'Tollgate issuer: Exchanges refused before authentication: {{reason}}': 'no stranger came',
  'Tollgate database: Longest transaction, and replica: replica of {{instance}}': 'no replica',
  'Tollgate database: Reads of usage: {{source}}': 'no replica',
}

let fake: FakeOpenMeter
let running: TestService
let prometheus: Prometheus | null = null
let signer: SignerDouble

beforeAll(async () => {
  fake = await startOpenMeter()
  // Events are pushed to the sidecar, so that its spool is used.
  running = await startTestService({ OPENMETER_URL: fake.urls.v1, KAFKA_BROKERS: '' })
  const { adminUrl, sidecarUrl, webhookSecret: secret } = running.service.quickstart
  if (binary !== '') prometheus = await startPrometheus(binary, new URL(adminUrl).host)
  signer = createSignerDouble({
    ev: fee,
    sinks: [directSink({ url: sidecarUrl, secret })],
    webhook: { url: `${sidecarUrl}/authorize`, headers: [['Authorization', `Bearer ${secret}`]] },
  })
  await signer.start()
  // `rate` needs a sample before a counter grows, and a series begins with its first use.
  for (const user of ['ada', 'bob']) {
    await useService(user)
    await scrapes(2)
  }
})

afterAll(async () => {
  await signer?.stop()
  await prometheus?.stop()
  await running?.stop()
  await fake?.stop()
})

/** Five cents at 3000 USD for one ETH. */
const fee = 16_666_666_666_666n

async function call(path: string, body: Record<string, string>, type = 'json'): Promise<string> {
  const { platformUrl, m2mClientId, m2mClientSecret } = running.service.quickstart
  const response = await fetch(new URL(path, platformUrl), {
    method: 'POST',
    headers: {
      authorization: basic(m2mClientId, m2mClientSecret),
      'content-type': type === 'json' ? 'application/json' : 'application/x-www-form-urlencoded',
    },
    body: type === 'json' ? JSON.stringify(body) : new URLSearchParams(body).toString(),
  })
  expect([path, response.status]).toEqual([path, expect.toSatisfy((status) => status < 300)])
  return response.text()
}

/** A user gets a key and signs until its allowance is used up; its client gets a token. */
async function useService(user: string): Promise<void> {
  const { clientId, issuer } = running.service.quickstart
  const app = `/api/v1/apps/${clientId}`
  await call(`${app}/users`, { externalUserId: user })
  const { apiKey } = JSON.parse(await call(`${app}/users/${user}/keys`, {}))
  await call(`${issuer}/token`, { grant_type: 'client_credentials' }, 'form')
  let state: Awaited<ReturnType<SignerDouble['pay']>>['state']
  for (let paid = 0; paid < 4; paid++) {
    const answer = await signer.pay({
      type: 'live',
      manifestId: `m-${user}`,
      headers: [['Authorization', `Bearer ${apiKey}`]],
      orchestrator: { pricePerUnit: fee },
      ...(state ? { state } : {}),
    })
    expect([answer.status, answer.body]).toEqual([200, expect.anything()])
    state = answer.state
  }
  await signer.flush()
  const booked = /^tollgate_metering_events_total\{outcome="ticket"\S* [1-9]/m
  await until(async () => booked.test(await metricsPage()))
}

const metricsPage = async (): Promise<string> =>
  (await fetch(`${running.service.quickstart.adminUrl}/metrics`)).text()

/** Waits for `count` further scrapes. */
async function scrapes(count: number): Promise<void> {
  const { query } = prometheus ?? {}
  if (!query) return
  const samples = async (): Promise<number> =>
    Number((await query('count_over_time(up[5m])'))[0] ?? 0)
  const begin = await samples()
  await until(async () => (await samples()) >= begin + count)
}

/** Our metrics in a text, without the suffixes of histograms. */
const metricsIn = (text: string): string[] =>
  [...text.matchAll(/\btollgate_\w+/g)].map(([name]) => name.replace(/_(bucket|sum|count)$/, ''))

describe('a dashboard', () => {
  it.each(rendered)('$title fits in two screens of 1080 lines', ({ panels }) => {
    expect(panels.length).toBeGreaterThan(10)
    // A row of the grid has 38 pixels, and about 950 are left for panels.
    for (const { gridPos } of panels) {
      expect(gridPos.y + gridPos.h).toBeLessThanOrEqual(50)
      expect(gridPos.x + gridPos.w).toBeLessThanOrEqual(24)
    }
  })

  it('has panels with a unit, a description and different titles', () => {
    for (const { dashboard, title, description, fieldConfig } of panels) {
      expect([dashboard, title, description]).toEqual([
        dashboard,
        expect.stringMatching(/^[A-Z]/),
        expect.stringMatching(/^.{15,}\.$/),
      ])
      expect(fieldConfig.defaults.unit).not.toBe('')
    }
  })

  it('links panels to sections of docs/alerts.md', async () => {
    const sections = [...(await read('docs/alerts.md')).matchAll(/^## (\w+)$/gm)]
    const anchors = new Set(sections.map(([, name = '']) => name.toLowerCase()))
    const links = panels.flatMap(({ links = [] }) => links.map(({ url }) => url))
    expect(links.length).toBeGreaterThan(40)
    for (const link of links) {
      const [page, anchor] = link.split('#')
      expect([page, anchors.has(anchor ?? '')]).toEqual(['${docs}/alerts.md', true])
    }
  })

  it('is provisioned with a data source', async () => {
    const sources = parse(await read('deploy/grafana/provisioning/datasources/prometheus.yml'))
    expect(sources).toMatchObject({ datasources: [{ type: 'prometheus', isDefault: true }] })
    const providers = parse(await read('deploy/grafana/provisioning/dashboards/tollgate.yml'))
    expect(providers).toMatchObject({ providers: [{ type: 'file', folder: 'Tollgate' }] })
  })
})

describe('the metrics', () => {
  it('in panels, alerts and docs/metrics.md exist', async () => {
    const exported = new Set(metricsIn(await metricsPage()))
    const named = metricsIn(
      [
        ...panelQueries.map(({ expr }) => expr),
        ...alerts.map(({ expr }) => expr),
        await read('docs/metrics.md'),
      ].join('\n'),
    )
    const optional = ['tollgate_core_reads_total', 'tollgate_core_replica_lag_seconds']
    const missing = new Set(named.filter((name) => !exported.has(name)))
    expect([...missing].toSorted()).toEqual(optional)
  })

  it('are all in a panel or an alert, or documented as for queries by hand', async () => {
    const byHand = (await read('docs/metrics.md')).split('### For queries by hand')[1] ?? ''
    const used = new Set(
      metricsIn(
        [...panelQueries, ...alerts].map(({ expr }) => expr).join('\n') + byHand.split('\n## ')[0],
      ),
    )
    const page = await metricsPage()
    const exported = [...page.matchAll(/^# TYPE (tollgate_\w+)/gm)].map(([, name = '']) => name)
    expect(exported.length).toBeGreaterThan(90)
    expect(exported.filter((name) => !used.has(name))).toEqual([])
  })
})

describe.skipIf(binary === '')('a real Prometheus', () => {
  it.each([
    ['panel', panelQueries],
    ['alert', alertQueries],
  ] as const)('has data for every query of each %s', async (_, queries) => {
    const { query } = prometheus ?? {}
    if (!query) throw new Error('Prometheus does not run')
    const empty: string[] = []
    for (const { name, expr } of queries) {
      const values = await query(expr)
      const hasData = values.some((value) => value !== 'NaN')
      if (!hasData && reasons[name] === undefined) empty.push(`${name}: ${expr}`)
    }
    expect(empty).toEqual([])
  })

  it('finds jobs and instances for the variables', async () => {
    const label = '{__name__=~"tollgate_(loop_pause_seconds|gateway_responses_total)"}'
    expect(await prometheus?.query(`count by (job, instance) (${label})`)).toHaveLength(1)
  })

  it('fires no alert', async () => {
    expect(await prometheus?.query('ALERTS{alertstate="firing"}')).toEqual([])
  })

  it('has no data where a reason is given', async () => {
    const queries = [...panelQueries, ...alertQueries]
    for (const name of Object.keys(reasons)) {
      const { expr = '' } = queries.find((query) => query.name === name) ?? {}
      const values = await prometheus?.query(expr)
      expect([name, values?.filter((value) => value !== 'NaN')]).toEqual([name, []])
    }
  })
})
