import { describe, expect, it } from 'vitest'
import { createEnvReader } from '../../../../core/lib/env.ts'
import { parseRedisUrl, toRedisAddress } from '../../../../core/lib/settings/redis-url.ts'
import { readRedisUrl } from '../../../../core/lib/settings/shared.ts'

describe('an address of Redis', () => {
  it('names Sentinels, with the default port', () => {
    expect(parseRedisUrl('redis+sentinel://one:1,two,[::1]:3/main')?.sentinels).toEqual({
      hosts: [
        { host: 'one', port: 1 },
        { host: 'two', port: 26_379 },
        { host: '::1', port: 3 },
      ],
      name: 'main',
      isTls: false,
      username: undefined,
      password: undefined,
      sentinelPassword: undefined,
      db: 0,
    })
  })

  it('has user, passwords, database and TLS', () => {
    const url = 'rediss+sentinel://ada:p%40ss:word@one:1/main?db=2&sentinelPassword=other'
    expect(parseRedisUrl(url)?.sentinels).toMatchObject({
      isTls: true,
      username: 'ada',
      password: 'p@ss:word',
      sentinelPassword: 'other',
      db: 2,
    })
    expect(toRedisAddress(url)).toBe('rediss+sentinel://one:1/main')
  })

  it('is shown without its password', () => {
    expect(toRedisAddress('redis://:hidden@host:6379/1?x=hidden')).toBe('redis://host:6379/1')
    expect(toRedisAddress('hidden')).toBe('an address that is not a URL')
  })

  it.each([
    'http://one:1',
    'redis+sentinel://one:1',
    'redis+sentinel://one:1/',
    'redis+sentinel://one:0/main',
    'redis+sentinel://one:70000/main',
    'redis+sentinel://one:1,/main',
    'redis+sentinel://one:1/main?database=1',
    'redis+sentinel://one:1/main?db=-1',
    'redis+sentinel://:%zz@one:1/main',
    'redis+sentinel://one:1/main/more',
  ])('is refused: %s', (url) => {
    expect(parseRedisUrl(url)).toBeNull()
    const env = createEnvReader({ REDIS_URL: url })
    expect(readRedisUrl(env)).toBeUndefined()
    expect(env.problems).toEqual([expect.stringMatching(/^REDIS_URL must be redis:/)])
  })
})
