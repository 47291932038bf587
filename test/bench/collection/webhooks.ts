import { randomBytes } from 'node:crypto'
import { createPool } from '../../../core/lib/sql.ts'
import { startStripe } from '../../fakes/stripe/stripe.ts'
import { signEvent } from '../../fakes/stripe/webhooks.ts'
import { startDeployed } from '../deployed.ts'
import { drive } from '../drive.ts'
import type { Bench, Finding } from '../row.ts'
import { median, middleHalf } from '../stats.ts'
import { count as inWords } from '../table.ts'

/** As many deliveries as the processor has open at a time. */
const connections = 32

/**
 * Measures how many events of the payment processor per second the gateway acknowledges, after core
 * has verified and stored them. Core handles the stored events at the same time: it reads each
 * payment from a fake of Stripe in this process. A second figure has each event for the second time.
 */
export async function webhookIntake(bench: Bench): Promise<Finding[]> {
  const [rounds, count] = bench.quick ? [3, 2_000] : [8, 5_000]
  const stripe = await startStripe()
  bench.defer(stripe.stop)
  const deployed = await startDeployed(bench, stripe.env)
  const send = (requests: readonly Buffer[]): Promise<number> =>
    drive({ port: deployed.platformPort, requests, count: requests.length, connections })
  const [first, repeated]: [number[], number[]] = [[], []]
  let [gatewayMs, coreMs] = [0, 0]
  // The first round warms up the code.
  for (let round = -1; round < rounds; round++) {
    const requests = newEvents(count, stripe.webhookSecrets.live)
    const [gateway, core] = [await deployed.gatewayCpuMs(), await deployed.coreCpuMs()]
    const [one, other] = [await send(requests), await send(requests)]
    if (round < 0) continue
    gatewayMs += (await deployed.gatewayCpuMs()) - gateway
    coreMs += (await deployed.coreCpuMs()) - core
    first.push(one)
    repeated.push(other)
  }
  const { stored, handled } = await readEvents(bench, deployed.databaseUrl)
  const expected = BigInt((rounds + 1) * count)
  if (stored !== expected) throw new Error(`${stored} of ${expected} events are stored`)
  const perRequest = (ms: number): string => `${(ms / (2 * rounds * count)).toFixed(2)} ms`
  const finding = (name: string, rates: readonly number[], detail: string): Finding => ({
    name,
    unit: '',
    target: { atLeast: 500 },
    value: median(rates),
    spread: middleHalf(rates),
    detail,
  })
  return [
    finding(
      'payment webhooks stored in a second',
      first,
      `${inWords(count)} events a round, ${connections} connections; ${inWords(Number(handled))} of ${inWords(Number(stored))} were handled meanwhile`,
    ),
    finding(
      'repeated payment webhooks in a second',
      repeated,
      `the same events again; processor time per request of both: gateway ${perRequest(gatewayMs)}, core ${perRequest(coreMs)}`,
    ),
  ]
}

/** Events about payments that this deployment did not make, signed now: the gateway refuses old ones. */
function newEvents(count: number, secret: string): Buffer[] {
  const seconds = Math.floor(Date.now() / 1000)
  return Array.from({ length: count }, () => {
    const id = randomBytes(12).toString('hex')
    const payload = JSON.stringify({
      id: `evt_${id}`,
      object: 'event',
      api_version: '2026-10-28.endive',
      created: seconds,
      data: { object: paymentIntent(`pi_${id}`, seconds) },
      livemode: true,
      pending_webhooks: 1,
      request: { id: null, idempotency_key: null },
      type: 'payment_intent.succeeded',
    })
    return Buffer.from(
      [
        'POST /webhooks/stripe HTTP/1.1',
        'Host: 127.0.0.1',
        'Content-Type: application/json; charset=utf-8',
        `Stripe-Signature: ${signEvent(payload, secret, seconds)}`,
        `Content-Length: ${Buffer.byteLength(payload)}`,
        '',
        payload,
      ].join('\r\n'),
    )
  })
}

/** About as long as Stripe's. */
const paymentIntent = (id: string, created: number): object => ({
  id,
  object: 'payment_intent',
  amount: 1_250,
  amount_capturable: 0,
  amount_details: { tip: {} },
  amount_received: 1_250,
  application: null,
  application_fee_amount: null,
  automatic_payment_methods: null,
  canceled_at: null,
  cancellation_reason: null,
  capture_method: 'automatic_async',
  client_secret: null,
  confirmation_method: 'automatic',
  created,
  currency: 'usd',
  customer: 'cus_R3nM1fWq0v7b2K',
  description: 'Invoice INV-000001',
  last_payment_error: null,
  latest_charge: 'ch_3QfT2kLkdIwHu7ix0JbWm5aX',
  livemode: true,
  metadata: { reference: 'another deployment' },
  next_action: null,
  on_behalf_of: null,
  payment_method: 'pm_1QfT2kLkdIwHu7ixN2y4Qz0c',
  payment_method_options: { card: { request_three_d_secure: 'automatic' } },
  payment_method_types: ['card'],
  processing: null,
  receipt_email: null,
  review: null,
  setup_future_usage: null,
  shipping: null,
  statement_descriptor: null,
  status: 'succeeded',
  transfer_data: null,
  transfer_group: null,
})

async function readEvents(bench: Bench, url: string) {
  const pool = createPool({ url, max: 1, name: 'tollgate-bench', statementTimeoutMs: 60_000 })
  bench.defer(() => pool.end())
  const { rows } = await pool.query<{ stored: bigint; handled: bigint }>(
    'select count(*) as stored, count(handled_at) as handled from processor_events',
  )
  return { stored: rows[0]?.stored ?? 0n, handled: rows[0]?.handled ?? 0n }
}
