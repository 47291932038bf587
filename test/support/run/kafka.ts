import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { Admin } from '@platformatic/kafka'
import { inject } from 'vitest'
import './parts.ts'

/** Returns the Kafka brokers of this vitest project, or null in direct mode. */
export function kafkaBrokers(): string[] | null {
  return inject('parts').kafkaBrokers
}

// Waits until every partition has a leader: a producer that finds one without repeats its batch to
// all of them.
async function untilLed(admin: Admin, topic: string): Promise<void> {
  for (let tries = 0; tries < 200; tries++) {
    const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true })
    if (topics.get(topic)?.partitions.every(({ leader }) => leader >= 0)) return
    await sleep(50)
  }
  throw new Error(`${topic} has partitions without a leader`)
}

/** Creates a topic for one test, ready for events. Throws without Kafka. */
export async function createTopic(
  partitions: number,
  brokers: readonly string[] | null = kafkaBrokers(),
): Promise<string> {
  if (brokers === null) throw new Error('createTopic needs TEST_KAFKA_BROKERS')
  const topic = `tollgate-test-${randomBytes(6).toString('hex')}`
  const admin = new Admin({
    clientId: 'tollgate-test',
    bootstrapBrokers: [...brokers],
    timeout: 20_000,
  })
  try {
    await admin.createTopics({ topics: [topic], partitions, replicas: 1 })
    await untilLed(admin, topic)
  } finally {
    await admin.close()
  }
  return topic
}
