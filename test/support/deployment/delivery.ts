import { setTimeout as sleep } from 'node:timers/promises'
import { Admin, ListOffsetTimestamps, Producer, stringSerializers } from '@platformatic/kafka'
import type { Event } from '../usage/events.ts'

/** Delivers events to the service. */
export interface Line {
  /** Returns when the service, or the stream before it, has acknowledged all events. */
  deliver(events: Iterable<Event>): Promise<void>
  /** Events in deliveries without an acknowledgement; each may or may not have arrived. */
  readonly uncertain: bigint
  /** Events in the stream now, repeats included; 0 in direct mode. */
  stored(): Promise<bigint>
  close(): Promise<void>
}

const pushed = 2_000
const inFlight = 2
const produced = 1_000
const answerMs = 20_000
const giveUpMs = 90_000
const drainedMs = 200_000

function* batches<T>(of: Iterable<T>, size: number): Generator<T[]> {
  let batch: T[] = []
  for (const one of of) {
    batch.push(one)
    if (batch.length < size) continue
    yield batch
    batch = []
  }
  if (batch.length > 0) yield batch
}

/**
 * Direct mode: pushes NDJSON to the sidecar and repeats each push until the answer is 202. Two
 * pushes may overlap, so events can change order within 4,000 events.
 */
export function directLine({ url, secret }: { url: string; secret: string }): Line {
  let uncertain = 0n

  async function deliver(events: Iterable<Event>): Promise<void> {
    const running: Promise<void>[] = []
    for (const batch of batches(events, pushed)) {
      if (running.length === inFlight) await running.shift()
      const pushing = push(batch)
      pushing.catch(() => {})
      running.push(pushing)
    }
    await Promise.all(running)
  }

  async function push(batch: readonly Event[]): Promise<void> {
    const body = Buffer.from(batch.map(({ text }) => text).join('\n'))
    const until = Date.now() + giveUpMs
    for (let tried = 1; ; tried++) {
      const answer = await post(body)
      if (answer === 'accepted') return
      if (Date.now() > until) throw new Error(`not accepted after ${tried} tries: ${answer}`)
      uncertain += BigInt(batch.length)
      await sleep(100)
    }
  }

  async function post(body: Buffer<ArrayBuffer>): Promise<string> {
    try {
      const response = await fetch(`${url}/events`, {
        method: 'POST',
        body,
        signal: AbortSignal.timeout(answerMs),
        headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/x-ndjson' },
      })
      const text = await response.text()
      return response.status === 202 ? 'accepted' : `${response.status} ${text}`
    } catch (error) {
      return String(error)
    }
  }

  return {
    deliver,
    get uncertain() {
      return uncertain
    },
    stored: async () => 0n,
    close: async () => {},
  }
}

/** Events that the forwarder may have in flight when it, or core, is killed. */
const forwardedAtOnce = 1_000n

/** Direct mode through a spool: everything has arrived when the spool is empty. */
export function spooledLine(
  line: Line,
  sidecar: { adminUrl: string; crashes: () => number },
): Line {
  async function deliver(events: Iterable<Event>): Promise<void> {
    await line.deliver(events)
    const until = Date.now() + drainedMs
    while ((await spooled()) !== '0') {
      if (Date.now() > until) throw new Error(`the spool still holds ${await spooled()} events`)
      await sleep(50)
    }
  }

  async function spooled(): Promise<string | undefined> {
    const page = await fetch(`${sidecar.adminUrl}/metrics`).then(
      (response) => response.text(),
      () => '',
    )
    return /^tollgate_sidecar_spool_events(?:\{.*\})? (\d+)$/m.exec(page)?.[1]
  }

  return {
    deliver,
    close: line.close,
    stored: line.stored,
    get uncertain() {
      return line.uncertain + forwardedAtOnce * BigInt(sidecar.crashes())
    },
  }
}

/**
 * Stream mode: produces to a topic, keyed by envelope id as the signer does. Like the signer's
 * producer, it sends a batch again if no acknowledgement arrived, so events that the broker had
 * stored arrive twice (docs/signer-events.md, "Delivery").
 */
export function kafkaLine({ brokers, topic }: { brokers: readonly string[]; topic: string }): Line {
  let uncertain = 0n
  const producer = new Producer({
    clientId: 'tollgate-test',
    bootstrapBrokers: [...brokers],
    serializers: stringSerializers,
    retries: 0,
    connectTimeout: 5_000,
  })

  async function deliver(events: Iterable<Event>): Promise<void> {
    for (const batch of batches(events, produced)) await send(batch)
  }

  async function send(batch: readonly Event[]): Promise<void> {
    const messages = batch.map(({ key, text }) => ({ topic, key, value: text }))
    for (const until = Date.now() + giveUpMs; ;) {
      try {
        return void (await producer.send({ messages, acks: -1 }))
      } catch (error) {
        if (Date.now() > until) throw error
        uncertain += BigInt(batch.length)
        await sleep(100)
      }
    }
  }

  async function stored(): Promise<bigint> {
    const admin = new Admin({
      clientId: 'tollgate-test',
      bootstrapBrokers: [...brokers],
      timeout: 20_000,
    })
    try {
      const metadata = await admin.metadata({ topics: [topic] })
      const partitions = [...(metadata.topics.get(topic)?.partitions.keys() ?? [])].map(
        (partitionIndex) => ({ partitionIndex, timestamp: ListOffsetTimestamps.LATEST }),
      )
      const [ends] = await admin.listOffsets({ topics: [{ name: topic, partitions }] })
      return ends?.partitions.reduce((sum, { offset }) => sum + offset, 0n) ?? 0n
    } finally {
      await admin.close()
    }
  }

  return {
    deliver,
    get uncertain() {
      return uncertain
    },
    stored,
    close: () => producer.close(true),
  }
}
