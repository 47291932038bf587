import { randomBytes } from 'node:crypto'
import { Admin } from '@platformatic/kafka'
import type { Stops } from '../support/deployment/parts.ts'
import type { Stream } from './load/delivery.ts'

const partitions = 8

/** Creates a topic, which is removed at the end; null without brokers. */
export async function openStream(
  stops: Stops,
  brokers: string | undefined,
): Promise<Stream | null> {
  if (!brokers) return null
  const list = brokers.split(',')
  const topic = `tollgate-rolling-${randomBytes(6).toString('hex')}`
  const admin = new Admin({ clientId: 'tollgate-rolling', bootstrapBrokers: list, timeout: 20_000 })
  stops.push(async () => {
    await admin.deleteTopics({ topics: [topic] })
    await admin.close()
  })
  await admin.createTopics({ topics: [topic], partitions, replicas: 1 })
  return { brokers: list, topic }
}
