import { appendFile } from 'node:fs/promises'
import { Producer, stringSerializers } from '@platformatic/kafka'
import type { Sink } from './lossy-queue.ts'

const doNothing = async (): Promise<void> => {}

/** Passes every event's bytes to `receive`: for tests and in-process collectors. */
export const callbackSink = (receive: (bytes: string) => void): Sink => ({
  send: async (events) => {
    for (const { bytes } of events) receive(bytes)
  },
  flush: doNothing,
  close: doNothing,
})

/** Appends one envelope per line. */
export const fileSink = (path: string): Sink => ({
  send: (events) => appendFile(path, events.map(({ bytes }) => `${bytes}\n`).join('')),
  flush: doNothing,
  close: doNothing,
})

const KAFKA_ATTEMPTS = 3

/**
 * Writes to a topic with the envelope id as key, so that partitions are effectively random, and
 * tries a batch three times before it is lost (docs/signer-events.md, "Delivery").
 */
export function kafkaSink(brokers: readonly string[], topic: string): Sink {
  const producer = new Producer({
    clientId: 'tollgate-signer-double',
    bootstrapBrokers: [...brokers],
    serializers: stringSerializers,
    autocreateTopics: false,
    retries: 2,
    retryDelay: 200,
    connectTimeout: 5000,
  })
  return {
    send: async (events) => {
      const messages = events.map(({ id, bytes }) => ({ topic, key: id, value: bytes }))
      for (let attempt = 1; ; attempt += 1) {
        const error = await producer.send({ messages, acks: -1 }).then(
          () => undefined,
          (cause: unknown) => ({ cause }),
        )
        if (error === undefined) return
        if (attempt === KAFKA_ATTEMPTS) throw new Error('the batch is lost', error)
      }
    },
    flush: doNothing,
    close: () => producer.close(true),
  }
}

/** Sends everything to all sinks; fails if one fails. */
export const everySink = (sinks: readonly Sink[]): Sink => ({
  send: async (events) => {
    await Promise.all(sinks.map((sink) => sink.send(events)))
  },
  flush: async () => {
    await Promise.all(sinks.map((sink) => sink.flush()))
  },
  close: async () => {
    await Promise.all(sinks.map((sink) => sink.close()))
  },
  backlog: () => Math.max(0, ...sinks.map((sink) => sink.backlog?.() ?? 0)),
})
