import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { Admin } from '@platformatic/kafka'
import { inject } from 'vitest'
import './parts.ts'

/** The Kafka of this vitest project, or null where direct mode is to be used. */
export function kafkaBrokers(): string[] | null {
  return inject('parts').kafkaBrokers
}

// A producer that finds one partition without a leader sends again, to all of them.
async function untilLed(admin: Admin, topic: string): Promise<void> {
  for (let tries = 0; tries < 200; tries++) {
    const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true })
    if (topics.get(topic)?.partitions.every(({ leader }) => leader >= 0)) return
    await sleep(50)
  }
  throw new Error(`${topic} has partitions without a leader`)
}

/** Creates a topic that no other test uses, ready for events. Throws where there is no Kafka. */
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
