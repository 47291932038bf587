import { setTimeout as sleep } from 'node:timers/promises'
import { Producer, stringSerializers } from '@platformatic/kafka'
import { directSink } from '../../deploy/signer-double/events/direct-sink.ts'
import type { Sink } from '../../deploy/signer-double/events/lossy-queue.ts'
import { chainEv } from '../../deploy/signer-double/options.ts'
import type { SignedState } from '../../deploy/signer-double/payment/state.ts'
import type { TicketRecord } from '../../deploy/signer-double/stats.ts'
import { type SignerDouble, createSignerDouble } from '../../deploy/signer-double/signer-double.ts'
import type { Stops } from '../support/deployment/parts.ts'
import { type Random, createRandom } from '../support/random.ts'
import { type Product, ethUsd } from './product.ts'
import { type Timeline, createTimeline } from './timeline.ts'

/** Users who pay through two signers, one for each sidecar. */
export interface Signers {
  readonly timeline: Timeline
  start(users: readonly Payer[]): void
  /** Ends the payments, and delivers all events. */
  stop(): Promise<void>
  /** Makes one call at a signer, in a new session. Returns the status. */
  call(signer: number, key: string): Promise<number>
  /** All signed tickets, in no order. */
  tickets(): readonly TicketRecord[]
}

export interface Payer {
  readonly name: string
  readonly key: string
}

/** The wei that cost exactly `usdMicros`. */
const weiOf = (usdMicros: bigint): bigint => (usdMicros * 10n ** 12n) / ethUsd

const keepTickets = 500_000
const pricePerUnit = weiOf(700n)
const produceMs = 120_000
const flushMs = 60_000
// Statuses of the signer that are a decision about the caller, not a failure behind it.
const decided = new Set([200, 482, 483])

export async function startSigners(
  stops: Stops,
  options: {
    readonly product: Product
    readonly kafka: { readonly brokers: readonly string[]; readonly topic: string } | null
    readonly seed: number
  },
): Promise<Signers> {
  const { product, kafka, seed } = options
  const timeline = createTimeline()
  const signers: SignerDouble[] = []
  for (const [index, url] of product.sidecars.entries()) {
    const direct = () =>
      directSink({ url, secret: product.webhookSecret, capacity: keepTickets, flushMs })
    // The first signer uses Kafka, the second pushes to its sidecar's spool.
    const sink = kafka && index === 0 ? patientSink(kafka) : direct()
    const signer = createSignerDouble({
      mode: 'go-livepeer',
      ev: chainEv(pricePerUnit),
      queueCapacity: keepTickets,
      keepTickets,
      orchestrator: { pricePerUnit, pixelsPerUnit: 1n },
      webhook: {
        url: `${url}/authorize`,
        headers: [['Authorization', `Bearer ${product.webhookSecret}`]],
      },
      sinks: [sink],
    })
    await signer.start()
    stops.push(signer.stop)
    signers.push(signer)
  }
  const stopping = new AbortController()
  let running: Promise<unknown> = Promise.resolve()

  async function payAs({ key }: Payer, signer: SignerDouble, random: Random): Promise<void> {
    const headers = [['Authorization', `Bearer ${key}`]] as const
    const open = () => ({
      type: random.pick(['live', 'fixed']),
      headers,
      manifestId: random.hex(8),
    })
    let session = open()
    let state: SignedState | undefined
    while (!stopping.signal.aborted) {
      const answer = await timeline.attempt(async () => {
        const paid = await signer.pay({ ...session, ...(state && { state }) })
        return decided.has(paid.status) ? paid : null
      })
      state = answer?.state ?? state
      if (random.chance(0.05)) {
        state = undefined
        session = open()
      }
      await sleep(answer?.status === 200 ? 300 + random.below(700) : 800 + random.below(800))
    }
  }

  const start = (users: readonly Payer[]): void => {
    running = Promise.all(
      users.map((user, i) => {
        const signer = signers[i % signers.length]
        return signer && payAs(user, signer, createRandom(seed + i + 1))
      }),
    )
  }

  return {
    timeline,
    start,
    stop: async () => {
      stopping.abort()
      await running
      for (const signer of signers) await signer.flush()
    },
    call: async (index, key) => {
      const headers = [['Authorization', `Bearer ${key}`]] as const
      return (await signers[index]?.pay({ type: 'fixed', headers }))?.status ?? 0
    },
    tickets: () => signers.flatMap((signer) => signer.stats().tickets),
  }
}

/**
 * Writes events to Kafka and repeats a batch until the brokers acknowledge it, so that each loss is
 * the product's. If an acknowledgement is lost, its batch arrives twice.
 */
function patientSink({
  brokers,
  topic,
}: {
  readonly brokers: readonly string[]
  readonly topic: string
}): Sink {
  const producer = new Producer({
    clientId: 'tollgate-chaos-signer',
    bootstrapBrokers: [...brokers],
    serializers: stringSerializers,
    autocreateTopics: false,
    retries: 2,
    retryDelay: 200,
    connectTimeout: 3_000,
    timeout: 5_000,
  })
  producer.on('error', () => {})
  return {
    send: async (events) => {
      const messages = events.map(({ id, bytes }) => ({ topic, key: id, value: bytes }))
      for (const until = Date.now() + produceMs; ; await sleep(200)) {
        const isDone = await producer.send({ messages, acks: -1 }).then(
          () => true,
          () => false,
        )
        if (isDone) return
        if (Date.now() > until) throw new Error('Kafka did not accept a batch in two minutes')
      }
    },
    flush: async () => {},
    close: () => producer.close(true),
  }
}
