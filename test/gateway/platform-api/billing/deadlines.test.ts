import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type CoreClient, connectCore } from '../../../../deploy/cli/client.ts'
import { serviceToken } from '../../../core/support.ts'
import type { Fault } from '../../../fakes/stripe/faults.ts'
import { type FakeStripe, startStripe } from '../../../fakes/stripe/stripe.ts'
import { type Real, type RealApp, newSellingApp, operationsOf, startReal } from '../../real.ts'
import { asRecord } from '../../support.ts'

/** How long the gateway waits for core where the payment processor is called, and elsewhere. */

const deadlineMs = 700
const timeoutMs = 1_000

let stripe: FakeStripe
let real: Real
let operator: CoreClient
let app: RealApp
beforeAll(async () => {
  stripe = await startStripe({ now: () => real.core.clock.now() })
  real = await startReal({ ...stripe.env, STRIPE_TIMEOUT_MS: `${timeoutMs}` }, {}, { deadlineMs })
  operator = connectCore({ target: real.core.core.target, token: serviceToken, tls: undefined })
  app = await newSellingApp({ real, operator }, 'deadlines')
  await call('POST', 'processor/connect', {})
  const [account] = stripe.accounts.keys()
  stripe.onboard(account ?? '')
  await real.core.sql.query(
    'update processor_accounts set charges_enabled = true, details_submitted = true',
  )
  await operator.users.upsertUser({
    clientId: app.clientId,
    externalUserId: 'ada',
    email: undefined,
    status: undefined,
    clearEmail: false,
  })
})
afterEach(() => {
  stripe.faults = () => undefined
})
afterAll(async () => {
  operator.close()
  await real.stop()
  await stripe.stop()
})

async function call(method: string, path: string, body: object) {
  const response = await fetch(`${real.url}/api/v1/apps/${app.clientId}/billing/${path}`, {
    method,
    headers: { ...app.session, ...(method === 'POST' && { 'content-type': 'application/json' }) },
    ...(method === 'POST' && { body: JSON.stringify(body) }),
  })
  return { status: response.status, body: asRecord(await response.json()) }
}

/** Applies a fault to the requests that a route of ours makes. */
function breakAll(fault: Fault): void {
  stripe.faults = ({ method }) => (method === 'POST' ? fault : undefined)
}

const processorRoutes = [
  { path: 'wallet/top-up', body: { amountUsd: '5', externalUserId: 'ada' } },
  { path: 'payment-method', body: { externalUserId: 'ada' } },
  { path: 'processor/connect', body: {} },
]

describe('a processor that is slow', () => {
  it.each(processorRoutes)('is waited for: $path', async ({ path, body }) => {
    breakAll({ kind: 'late', ms: deadlineMs + 50 })
    expect((await call('POST', path, body)).status).toBe(200)
  })
})

describe('a processor that is slow to read', () => {
  it.each(['balance', 'payouts'])('is waited for: %s', async (path) => {
    stripe.faults = ({ method }) =>
      method === 'GET' ? { kind: 'late', ms: deadlineMs + 50 } : undefined
    const url = `${real.url}/api/v1/internal/apps/${app.clientId}/billing/${path}`
    expect((await fetch(url, { headers: app.session })).status).toBe(200)
  })
})

describe('a processor that is down', () => {
  it.each(processorRoutes)('is named after both attempts: $path', async ({ path, body }) => {
    breakAll({ kind: 'hang before' })
    const since = performance.now()
    expect(await call('POST', path, body)).toMatchObject({
      status: 503,
      body: { code: 'processor_unreachable' },
    })
    expect(performance.now() - since).toBeGreaterThan(2 * timeoutMs)
  })

  it('fails no other route of billing', async () => {
    breakAll({ kind: 'hang before' })
    for (const path of ['wallet?externalUserId=ada', 'processor', 'invoices', 'settings'])
      expect((await call('GET', path, {})).status).toBe(200)
    const collect = await call('POST', 'collect', { externalUserId: 'ada' })
    expect(collect).toMatchObject({ status: 200, body: { outcome: 'skipped' } })
  })
})

describe('a core that is slow', () => {
  it('is waited for no longer than the deadline where no processor is called', async () => {
    const client = await real.core.sql.connect()
    try {
      await client.query('begin')
      await client.query('lock table invoices in access exclusive mode')
      expect(await call('GET', 'invoices', {})).toMatchObject({
        status: 503,
        body: { code: 'unavailable' },
      })
    } finally {
      await client.query('rollback')
      client.release()
    }
  })
})

it('documents 502 and 503 of the processor on the routes that call it, and on no others', async () => {
  const { document } = await operationsOf(real.url, app.session)
  const reasons = (operation: Record<string, unknown>) =>
    ['502', '503'].map((status) =>
      /processor_(refused|unreachable)/.test(
        JSON.stringify(asRecord(operation['responses'])[status] ?? {}),
      ),
    )
  const found = Object.values(asRecord(document['paths'])).flatMap((item) =>
    Object.values(asRecord(item)).flatMap((value) => {
      const operation = asRecord(value)
      const named = reasons(operation)
      return named.includes(true) ? [[operation['operationId'], ...named]] : []
    }),
  )
  expect(found.toSorted()).toEqual(
    [
      'connectPaymentProcessor',
      'createCardSetup',
      'createCardSetupOfMe',
      'createPlanCheckout',
      'createTopUp',
      'createTopUpOfMe',
      'getProcessorBalance',
      'listPayouts',
      'updateOwnerPlan',
      'updateSubscription',
    ].map((id) => [id, true, true]),
  )
})
