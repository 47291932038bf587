import { Redis } from 'ioredis'
import { describe, expect, it } from 'vitest'
import { createTopic, kafkaBrokers } from '../kafka.ts'
import { embeddedParts, givenParts, missingParts } from '../parts.ts'
import { redisUrl } from '../redis.ts'

describe('the parts a test runs on', () => {
  it('are the embedded ones when nothing is given', () => {
    expect(givenParts({})).toEqual(embeddedParts)
    expect(missingParts({})).toHaveLength(3)
  })

  it('are the given ones, each by its own variable', () => {
    expect(givenParts({ TEST_KAFKA_BROKERS: 'a:1,b:2' })).toEqual({
      databaseUrl: null,
      redisUrl: null,
      kafkaBrokers: ['a:1', 'b:2'],
    })
  })

  it('answer when they are given', async () => {
    expect(await ping(redisUrl())).toBe(redisUrl() && 'PONG')
    const made = await createTopic(2).catch((error: Error) => error.message)
    expect(made).toMatch(kafkaBrokers() ? /^tollgate-test-/ : /needs TEST_KAFKA_BROKERS/)
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
