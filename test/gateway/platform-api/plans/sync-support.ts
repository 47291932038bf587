import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest'
import { silentLog } from '../../../../core/lib/log.ts'
import { type PlanSync, createPlanSync } from '../../../../core/plans/sync/service.ts'
import { createMetrics } from '../../../../core/lib/metrics.ts'
import { createOpenMeter } from '../../../../core/metering/backend/openmeter/openmeter.ts'
import { type Pool, createPool } from '../../../../core/lib/sql.ts'
import {
  type FakeOpenMeter,
  type Fault,
  type FakeRequest,
  startOpenMeter,
} from '../../../fakes/openmeter/openmeter.ts'
import { type CoreClient, connectCore } from '../../../../deploy/cli/client.ts'
import { rateCardsOf } from '../../../fakes/openmeter/plans.ts'
import { serviceToken, until } from '../../../core/support.ts'
import { asRecord } from '../../support.ts'
import { console, app, person, openConsole, openApp, ask } from '../support.ts'
import { defaultOf } from './support.ts'

export const sdxl = { pipeline: 'text-to-image', modelId: 'sdxl', retailRateUsd: '0.000002' }
export const anyLlm = { pipeline: 'llm', modelId: '*', retailRateUsd: '0' }
export const pro = {
  name: 'Pro',
  type: 'usage',
  priceAmount: '49.00',
  includedUsdMicros: '20000000',
  overageRateUsd: '0.0000012',
  capabilities: [sdxl, anyLlm],
}

type Version = 'v1' | 'v3'

export let fake: FakeOpenMeter
export let operator: CoreClient
let version: Version

/** Starts an OpenMeter, and the gateway with a core that uses it by the API of a version. */
export function setUpSync(api: Version): void {
  beforeAll(async () => {
    version = api
    fake = await startOpenMeter()
    await openConsole({ env: { OPENMETER_URL: fake.urls[version], ACTIVATION_GATE: 'off' } })
    await until(() => fake.state.features.length > 0)
    operator = connectCore({ target: console.core.target, token: serviceToken })
  })
  afterAll(async () => {
    operator.close()
    await console.stop()
    await fake.stop()
  })
  beforeEach(async () => {
    await openApp('admin')
    // Its Starter plan is synced immediately.
    await until(async () => (await starter())['lastSyncedAt'] !== null)
    fake.state.plans.length = 0
  })
  afterEach(async () => {
    fake.faults = () => 'none'
    // A late delivery would sync a plan of this test again during the next one.
    const subscriptions = `from outbox where kind = 'openmeter.subscription'`
    const untried = `select ${subscriptions} and last_error is null`
    await until(async () => (await console.sql.query(untried)).rowCount === 0)
    await console.sql.query(`delete ${subscriptions}`)
  })
}

export const create = (json: object = pro) => ask('POST', '/plans', { person, json })
export const sync = (id: string) => ask('POST', `/plans/${id}/sync`)
export const newPlan = async (json: object = pro): Promise<string> =>
  String((await create(json)).body['id'])
export const starter = () => defaultOf('isStarterDefault')
export async function productOf(id: string) {
  const { body } = await ask('GET', '/plans?apiVersion=2')
  const products: unknown = body['products']
  return asRecord(
    Array.isArray(products) ? products.find((one) => asRecord(one)['id'] === id) : null,
  )
}
export const isPlan = ({ path }: FakeRequest): boolean => path.includes('/plans')
export const failing =
  (fault: Fault, matches: (request: FakeRequest) => boolean = isPlan) =>
  (request: FakeRequest): Fault =>
    matches(request) ? fault : 'none'
export const isPublish = ({ path }: FakeRequest): boolean => path.endsWith('/publish')
export const isCreate = ({ method, path }: FakeRequest): boolean =>
  method === 'POST' && path.endsWith('/plans')
export const cardsOf = (body: Readonly<Record<string, unknown>>) =>
  rateCardsOf(body, version === 'v1' ? 'rateCards' : 'rate_cards')
export const featureOf = (card: Record<string, unknown>) =>
  fake.state.features.find(({ key }) => key === card['key'])
export const entitlementOf = (card: Record<string, unknown>) =>
  asRecord(card[version === 'v1' ? 'entitlementTemplate' : 'entitlement'])
export const includedOf = (card: Record<string, unknown>) =>
  entitlementOf(card)[version === 'v1' ? 'issueAfterReset' : 'limit']
export const remove = (id: string) => ask('DELETE', `/plans?planId=${id}`)
export const live = () =>
  fake.state.plans.flatMap(({ key, status, deletedAt }) =>
    key.startsWith(app.clientId) && !deletedAt ? [status] : [],
  )

/** Runs one round of upkeep immediately. */
export async function withUpkeep(
  use: (sync: PlanSync, pool: Pool) => Promise<void>,
): Promise<void> {
  const pool = createPool({
    url: console.databaseUrl,
    max: 4,
    name: 't',
    statementTimeoutMs: 5_000,
  })
  const backend = createOpenMeter({
    config: { url: fake.urls[version], apiKey: undefined, timeoutMs: 5_000, batchSize: 10 },
    log: silentLog(),
    metrics: createMetrics('test'),
    now: console.clock.now,
    findSubscriber: async () => null,
  })
  const sync = createPlanSync({
    pool,
    now: console.clock.now,
    log: silentLog(),
    catalog: backend.plans,
    stopping: new AbortController().signal,
  })
  try {
    backend.start()
    await until(() => backend.ready()['openmeter'] === true)
    await use(sync, pool)
  } finally {
    await backend.stop()
    await pool.end()
  }
}
