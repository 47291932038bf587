import { randomBytes, randomUUID } from 'node:crypto'
import { toChecksumAddress } from './address.ts'
import { authorize, policyOf } from './authorize.ts'
import type { Authorizer, Inbound } from './authorize.ts'
import { callSigner, payBody } from './client.ts'
import type { PayRequest, PayResult } from './client.ts'
import { DIALECTS } from './dialect.ts'
import { createNewPayment, createSignedTicket } from './events.ts'
import type { JsonOut } from './json-writer.ts'
import { createLossyQueue, NO_FAULTS } from './lossy-queue.ts'
import { DEFAULT_EV, DEFAULT_ORCHESTRATOR } from './options.ts'
import type { SignerDoubleOptions } from './options.ts'
import { readPaymentRequest } from './payment-request.ts'
import { openState, preparePayment } from './payment.ts'
import { createRandom } from './random.ts'
import { rational } from './rational.ts'
import { close, createSignerServer, listen } from './server.ts'
import { everySink } from './sinks.ts'
import { createStateBox } from './state.ts'
import type { SessionState, SignedState } from './state.ts'
import { createRecorder } from './stats.ts'
import type { Stats } from './stats.ts'
import { createClock, systemClock } from './time.ts'
import { createWebhookClient } from './webhook-client.ts'

export type SignerDouble = Readonly<{
  /** Promise: the double listens. Rejects when the port is taken. */
  start: () => Promise<{ url: string }>
  /** Sends what waits, within the sinks' bounds, and closes every socket. */
  stop: () => Promise<void>
  /** One call of a gateway, through real HTTP on the double's own port. */
  pay: (request?: PayRequest) => Promise<PayResult>
  /** Moves the double's clock forward; nobody sleeps. */
  advance: (seconds: number) => void
  /** The next calls, as many as given, are answered 480. */
  demandRefresh: (calls?: number) => void
  /** Signs a state of the test's own making; what is not given is as a session begins. */
  seal: (state: Partial<SessionState>) => SignedState
  stats: () => Stats
  flush: () => Promise<void>
}>

const WALLET = Buffer.from('c0ffee254729296a45a3885639ac7e10f9d54979', 'hex')

function createWebhook(options: SignerDoubleOptions, followRedirects: boolean) {
  if (options.webhook === undefined) return { webhook: undefined, policy: '' }
  const { url, headers = [], budgetMs = 5000 } = options.webhook
  const webhook = createWebhookClient({ url, headers, budgetMs, followRedirects })
  return { webhook, policy: policyOf({ url, headers }) }
}

function createQueue(options: SignerDoubleOptions) {
  return createLossyQueue({
    sink: everySink(options.sinks ?? []),
    faults: { ...NO_FAULTS, ...options.faults },
    random: createRandom(options.seed ?? 1),
    capacity: options.queueCapacity ?? 100,
  })
}

/**
 * A faithful imitation of go-livepeer's remote signer: same bytes to the webhook, same reading of
 * its answers, same events, no chain and no money. For tests and the demo only.
 */
export function createSignerDouble(options: SignerDoubleOptions): SignerDouble {
  const { utcOffsetMinutes = 0, newHex = (bytes) => randomBytes(bytes).toString('hex') } = options
  const dialect = DIALECTS[options.mode ?? 'go-livepeer']
  const orchestrator = { ...DEFAULT_ORCHESTRATOR, ...options.orchestrator }
  const clock = createClock(options.now ?? systemClock)
  const recorder = createRecorder(options.keepTickets ?? 10_000)
  const box = createStateBox(options.stateKey ?? randomBytes(32), { dialect, utcOffsetMinutes })
  const queue = createQueue(options)
  const source = {
    dialect,
    sender: toChecksumAddress(WALLET),
    newId: options.newId ?? randomUUID,
  }
  const webhook = createWebhook(options, dialect.followRedirects)
  const countCall = recorder.webhookCall
  const authorizer: Authorizer = { dialect, utcOffsetMinutes, countCall, ...webhook }
  let refreshes = 0
  let url = ''

  function refreshDemanded(): boolean {
    if (refreshes === 0) return false
    refreshes -= 1
    return true
  }

  const rules = {
    dialect, box, newHex, refreshDemanded, ev: rational(options.ev ?? DEFAULT_EV),
  }

  /** The steps of signer-contract.md 1.4, in their order. */
  async function generateLivePayment(body: string, inbound: Inbound): Promise<JsonOut> {
    const prepared = preparePayment(readPaymentRequest(body), clock.now(), rules)
    queue.push(createNewPayment(prepared, clock.now(), source))
    const lastUpdate = dialect.stateTimeLags ? clock.now() : prepared.now
    const asked = { ...prepared, state: { ...prepared.state, lastUpdate } }
    const state = await authorize(asked, inbound, authorizer)
    const payment = { ...asked, state }
    const event = createSignedTicket(payment, clock.now(), source)
    recorder.ticket({ id: event.id, payment, state, queued: queue.push(event) })
    const { requestId, tickets } = payment
    const bytes = Buffer.from(`double:${requestId}:${tickets.count}`).toString('base64')
    return { payment: bytes, segCreds: bytes, state: box.seal(state) }
  }

  const server = createSignerServer({
    routes: {
      '/generate-live-payment': (body, inbound) => {
        recorder.request()
        return generateLivePayment(body, inbound)
      },
      '/sign-orchestrator-info': async () => ({
        address: source.sender,
        signature: `0x${WALLET.toString('hex').padEnd(130, '0')}`,
      }),
    },
    flatErrors: dialect.successor,
    onAnswer: recorder.answer,
  })

  async function start(): Promise<{ url: string }> {
    const host = options.host ?? '127.0.0.1'
    const port = await listen(server, options.port ?? 0, host)
    url = `http://${host.includes(':') ? `[${host}]` : host}:${port}`
    return { url }
  }

  async function stop(): Promise<void> {
    await close(server)
    await queue.stop()
    webhook.webhook?.close()
  }

  const pay = (request: PayRequest = {}): Promise<PayResult> =>
    callSigner(`${url}/generate-live-payment`, payBody(request, orchestrator), request)

  return {
    start,
    stop,
    pay,
    advance: clock.advance,
    demandRefresh: (calls = 1) => { refreshes += calls },
    seal: (state) => box.seal({ ...openState(orchestrator, clock.now()), ...state }),
    stats: () => recorder.read(queue.stats()),
    flush: queue.flush,
  }
}
