import { setTimeout as sleep } from 'node:timers/promises'
import { Producer, stringSerializers } from '@platformatic/kafka'
import { createConnection } from './connection.ts'

/** Delivers events, repeating until they are acknowledged. */
export interface Delivery {
  readonly counts: DeliveryCounts
  /** Delivers what `stop` finds waiting, then ends. */
  stop(): Promise<void>
}

export interface DeliveryCounts {
  delivered: number
  /** Deliveries without an acknowledgement. Their events may have arrived. */
  repeats: number
}

const pauseMs = 100
const retryMs = 100
const eventsMax = 1_000
const giveUpMs = 60_000

/** Takes events from `waiting` and sends batches one after the other. */
function deliver(waiting: string[], send: (batch: readonly string[]) => Promise<void>): Delivery {
  const counts = { delivered: 0, repeats: 0 }
  const stopping = new AbortController()

  async function sendUntilStored(batch: readonly string[]): Promise<void> {
    for (const until = Date.now() + giveUpMs; ;) {
      try {
        return await send(batch)
      } catch (error) {
        if (Date.now() > until) throw error
        counts.repeats++
        await sleep(retryMs)
      }
    }
  }

  async function run(): Promise<void> {
    while (!stopping.signal.aborted || waiting.length > 0) {
      const batch = waiting.splice(0, eventsMax)
      if (batch.length > 0) await sendUntilStored(batch)
      counts.delivered += batch.length
      if (batch.length < eventsMax) await sleep(pauseMs)
    }
  }

  const running = run()
  // `stop` reports it.
  running.catch(() => {})
  return {
    counts,
    stop: () => {
      stopping.abort()
      return running
    },
  }
}

export interface PushTarget {
  readonly port: number
  readonly from: string
  readonly secret: string
}

/** Pushes events as a signer without a stream does. */
export function pushEvents(waiting: string[], { port, from, secret }: PushTarget): Delivery {
  const connection = createConnection(port, from)
  return deliver(waiting, async (batch) => {
    const body = Buffer.from(`${batch.join('\n')}\n`)
    const head =
      `POST /events HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nAuthorization: Bearer ${secret}\r\n` +
      `Content-Type: application/x-ndjson\r\nContent-Length: ${body.length}\r\n\r\n`
    const { status, body: text } = await connection.send(Buffer.concat([Buffer.from(head), body]))
    if (status !== 202) throw new Error(`a push was answered with ${status}: ${text}`)
  })
}

export interface Stream {
  readonly brokers: readonly string[]
  readonly topic: string
}

/** Writes events to the stream as a signer does. */
export function produceEvents(waiting: string[], { brokers, topic }: Stream): Delivery {
  const producer = new Producer({
    clientId: 'tollgate-rolling',
    bootstrapBrokers: [...brokers],
    serializers: stringSerializers,
    retries: 0,
    connectTimeout: 5_000,
  })
  const delivery = deliver(waiting, async (batch) => {
    const messages = batch.map((value) => ({ topic, key: idOf(value), value }))
    await producer.send({ messages, acks: -1 })
  })
  return {
    counts: delivery.counts,
    stop: async () => {
      await delivery.stop()
      await producer.close(true)
    },
  }
}

const idOf = (event: string): string => /"id":"([^"]+)"/.exec(event)?.[1] ?? ''
