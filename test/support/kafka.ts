import { randomBytes } from 'node:crypto'
import { Admin } from '@platformatic/kafka'
import { inject } from 'vitest'
import './parts.ts'

/** The Kafka of this vitest project, or null where direct mode is to be used. */
export function kafkaBrokers(): string[] | null {
  return inject('parts').kafkaBrokers
}

/** Creates a topic that no other test uses. Throws where there is no Kafka. */
export async function createTopic(partitions: number, brokers: readonly string[] | null = kafkaBrokers()): Promise<string> {
  if (brokers === null) throw new Error('createTopic needs TEST_KAFKA_BROKERS')
  const topic = `tollgate-test-${randomBytes(6).toString('hex')}`
  const admin = new Admin({ clientId: 'tollgate-test', bootstrapBrokers: [...brokers], timeout: 20_000 })
  try {
    await admin.createTopics({ topics: [topic], partitions, replicas: 1 })
  } finally {
    await admin.close()
  }
  return topic
}
