import { randomBytes, randomUUID } from 'node:crypto'
import { toChecksumAddress } from './wire/address.ts'
import { authorize, toPolicy } from './webhook/authorize.ts'
import type { Authorizer, GatewayCall } from './webhook/authorize.ts'
import { DIALECTS } from './dialect.ts'
import type { Dialect } from './dialect.ts'
import { createNewPayment, createSignedTicket } from './events/events.ts'
import type { JsonOut } from './wire/go-json.ts'
import { createLossyQueue, createRandom, NO_FAULTS } from './events/lossy-queue.ts'
import type { LossyQueue } from './events/lossy-queue.ts'
import { DEFAULT_EV } from './options.ts'
import type { SignerDoubleOptions } from './options.ts'
import { readPaymentRequest } from './payment/request.ts'
import { preparePayment } from './payment/payment.ts'
import type { Payment, PaymentRules } from './payment/payment.ts'
import { rational } from './wire/rational.ts'
import type { Route } from './server.ts'
import { everySink } from './events/sinks.ts'
import { createStateBox } from './payment/state.ts'
import type { StateBox } from './payment/state.ts'
import type { Recorder } from './stats.ts'
import type { Clock } from './wire/time.ts'
import { createWebhookClient } from './webhook/client.ts'

const WALLET = Buffer.from('c0ffee254729296a45a3885639ac7e10f9d54979', 'hex')

export type Signer = Readonly<{
  dialect: Dialect
  queue: LossyQueue
  box: StateBox
  generateLivePayment: Route
  signOrchestratorInfo: Route
  /** Answers 480 to this many of the next calls. */
  demandRefresh: (calls: number) => void
  closeWebhook: () => void
}>

function createAuthorizer(options: SignerDoubleOptions, countCall: () => void): Authorizer {
  const dialect = DIALECTS[options.mode ?? 'go-livepeer']
  const common = { dialect, utcOffsetMinutes: options.utcOffsetMinutes ?? 0, countCall }
  if (options.webhook === undefined) return { ...common, webhook: undefined, policy: '' }
  const { url, headers = [], budgetMs = 5000 } = options.webhook
  const { followRedirects } = dialect
  const webhook = createWebhookClient({ url, headers, budgetMs, followRedirects })
  return { ...common, webhook, policy: toPolicy({ url, headers }) }
}

function createQueue(options: SignerDoubleOptions): LossyQueue {
  return createLossyQueue({
    sink: everySink(options.sinks ?? []),
    faults: { ...NO_FAULTS, ...options.faults },
    random: createRandom(options.seed ?? 1),
    capacity: options.queueCapacity ?? 100,
  })
}

function createCountdown(): { add: (calls: number) => void; takeOne: () => boolean } {
  let left = 0
  const takeOne = (): boolean => {
    const due = left > 0
    if (due) left -= 1
    return due
  }
  return {
    add: (calls) => {
      left += calls
    },
    takeOne,
  }
}

const encode = (text: string): string => Buffer.from(text).toString('base64')

// Clients forward payments without reading them, so the double's payments contain no real ticket.
function render({ requestId, tickets }: Payment, state: JsonOut): JsonOut {
  const payment = encode(`payment:${requestId}:${tickets.count}`)
  return { payment, segCreds: encode(`segCreds:${requestId}`), state }
}

const signOrchestratorInfo = async (): Promise<JsonOut> => ({
  address: toChecksumAddress(WALLET),
  signature: `0x${WALLET.toString('hex').padEnd(130, '0')}`,
})

/** Creates the signer's two routes. */
export function createSigner(options: SignerDoubleOptions, now: Clock, recorder: Recorder): Signer {
  const { newHex = (bytes) => randomBytes(bytes).toString('hex'), newId = randomUUID } = options
  const authorizer = createAuthorizer(options, recorder.webhookCall)
  const { dialect } = authorizer
  const queue = createQueue(options)
  const box = createStateBox(options.stateKey ?? randomBytes(32), authorizer)
  const refreshes = createCountdown()
  const { ev: value = DEFAULT_EV } = options
  const ev = typeof value === 'bigint' ? rational(value) : value
  const rules: PaymentRules = { dialect, box, newHex, ev, refreshDemanded: refreshes.takeOne }
  const source = { dialect, newId, sender: toChecksumAddress(WALLET) }

  /**
   * Runs the steps of a payment in the signer's order (docs/signer-webhook.md, "When the signer
   * asks").
   */
  async function generateLivePayment(body: string, call: GatewayCall): Promise<JsonOut> {
    recorder.request()
    const prepared = preparePayment(readPaymentRequest(body), now(), rules)
    queue.push(createNewPayment(prepared, now(), source))
    const lastUpdate = dialect.stateTimeLags ? now() : prepared.now
    const proposal = { ...prepared, state: { ...prepared.state, lastUpdate } }
    const state = await authorize(proposal, call, authorizer)
    const payment = { ...proposal, state }
    const event = createSignedTicket(payment, now(), source)
    recorder.ticket({ id: event.id, payment, state, queued: queue.push(event) })
    return render(payment, box.seal(state))
  }

  return {
    dialect,
    queue,
    box,
    generateLivePayment,
    signOrchestratorInfo,
    demandRefresh: refreshes.add,
    closeWebhook: () => authorizer.webhook?.close(),
  }
}
