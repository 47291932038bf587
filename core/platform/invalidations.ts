import { EventEmitter } from 'node:events'
import { Redis } from 'ioredis'
import type { Log } from '../lib/log.ts'

const kinds = ['key', 'user', 'access', 'token'] as const

/**
 * What caches elsewhere must forget: a key, a user (who and what they may), a user's access, or a JWT by its `jti`, and
 * all of a login by its `sid`.
 */
export interface Invalidation {
  readonly kind: (typeof kinds)[number]
  readonly id: string
}

const channel = 'tollgate:invalidations'
const commandTimeoutMs = 1_000

export interface InvalidationOptions {
  readonly redisUrl: string | undefined
  /** How long a cache elsewhere may keep an identity: as long a tombstone stands. */
  readonly tombstoneSeconds: number
  readonly log: Log
}

/**
 * Publishes invalidations to every sidecar: to those that watch this core, and through Redis to those that watch
 * another. Best effort by nature: the caches' own time limits are the bound when a message is lost.
 */
export function createInvalidations({ redisUrl, tombstoneSeconds, log }: InvalidationOptions) {
  const local = new EventEmitter<{ invalidation: [Invalidation] }>().setMaxListeners(1_000)
  const redis = redisUrl === undefined ? null : connect(redisUrl, log)
  const subscriber = redisUrl === undefined ? null : connect(redisUrl, log)
  // On every connection: a Redis that was away when core started is listened to as soon as it is there.
  subscriber?.on('ready', () => {
    subscriber
      .subscribe(channel)
      .catch((error: unknown) => log.warn({ err: error }, 'cannot subscribe to invalidations'))
  })
  subscriber?.on('message', (_channel: string, text: string) => {
    const invalidation = parseInvalidation(text)
    if (invalidation) local.emit('invalidation', invalidation)
  })

  async function publish(invalidation: Invalidation): Promise<void> {
    if (!redis) return void local.emit('invalidation', invalidation)
    // Watchers of this core hear it at once, also when Redis is away; a second hearing changes nothing.
    local.emit('invalidation', invalidation)
    try {
      // Of tokens core is asked where one may have been missed.
      if (invalidation.kind === 'key' || invalidation.kind === 'user') {
        await redis.set(`tollgate:revoked:${invalidation.id}`, '1', 'EX', tombstoneSeconds)
      }
      await redis.publish(channel, JSON.stringify(invalidation))
    } catch (error) {
      log.warn(
        { err: error, kind: invalidation.kind, id: invalidation.id },
        'invalidation did not reach Redis',
      )
    }
  }

  /** Calls `listener` for each invalidation until the returned function is called. */
  function watch(listener: (invalidation: Invalidation) => void): () => void {
    local.on('invalidation', listener)
    return () => void local.off('invalidation', listener)
  }

  /** True when Redis answers, or none is configured. */
  async function ready(): Promise<boolean> {
    return (
      !redis ||
      redis.ping().then(
        () => true,
        () => false,
      )
    )
  }

  function stop(): void {
    redis?.disconnect()
    subscriber?.disconnect()
    local.removeAllListeners()
  }

  return { publish, watch, ready, stop }
}

export type Invalidations = ReturnType<typeof createInvalidations>

function connect(url: string, log: Log): Redis {
  const redis = new Redis(url, {
    commandTimeout: commandTimeoutMs,
    maxRetriesPerRequest: 1,
    enableOfflineQueue: true,
    retryStrategy: (attempt: number) => Math.min(attempt * 100, 2_000),
  })
  redis.on('error', (error: Error) => log.warn({ err: error.message }, 'Redis connection'))
  return redis
}

function parseInvalidation(text: string): Invalidation | null {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value !== 'object' || value === null || !('kind' in value) || !('id' in value))
      return null
    const { id } = value
    const kind = kinds.find((known) => known === value.kind)
    return kind === undefined || typeof id !== 'string' ? null : { kind, id }
  } catch {
    return null
  }
}
