import { Redis } from 'ioredis'
import { describe, expect, it } from 'vitest'
import { createTopic, kafkaBrokers } from '../run/kafka.ts'
import { embeddedParts, externalParts, missingParts, missingProvider } from '../run/parts.ts'
import { redisUrl } from '../run/redis.ts'

describe('externalParts', () => {
  it('returns the embedded parts for an empty environment', () => {
    expect(externalParts({})).toEqual(embeddedParts)
    expect(missingParts({})).toHaveLength(3)
    expect(missingProvider({})).toHaveLength(2)
  })

  it('reads each part from its own variable', () => {
    expect(externalParts({ TEST_KAFKA_BROKERS: 'a:1,b:2' })).toEqual({
      databaseUrl: null,
      redisUrl: null,
      kafkaBrokers: ['a:1', 'b:2'],
    })
  })

  it('returns parts that accept connections', async () => {
    expect(await ping(redisUrl())).toBe(redisUrl() && 'PONG')
    const topic = await createTopic(2).catch((error: Error) => error.message)
    expect(topic).toMatch(kafkaBrokers() ? /^tollgate-test-/ : /needs TEST_KAFKA_BROKERS/)
  })
})

async function ping(url: string | null): Promise<string | null> {
  if (url === null) return null
  const redis = new Redis(url)
  try {
    return await redis.ping()
  } finally {
    redis.disconnect()
  }
}
