import { EventEmitter } from 'node:events'
import type { Redis } from 'ioredis'
import type { Log } from '../lib/log.ts'

const kinds = ['key', 'user', 'access', 'lease', 'token', 'signer'] as const

/**
 * What caches elsewhere must forget: a key, a user (identity and access), the access of a user, or a `token`, which is
 * any other grant that ended, by its id. A `lease` is the id of a user whose leases are to be returned.
 */
export interface Invalidation {
  readonly kind: (typeof kinds)[number]
  readonly id: string
  /** Unix milliseconds: only what was issued before it has ended; everything when absent. */
  readonly endsBefore?: number
}

const channel = 'tollgate:invalidations'

export interface InvalidationOptions {
  /** Two connections, since one that subscribes can do nothing else; null keeps invalidations in this process. */
  readonly redis: { readonly publisher: Redis; readonly subscriber: Redis } | null
  /** How long a cache elsewhere may keep an identity: a tombstone of a revoked key or user lives as long. */
  readonly tombstoneSeconds: number
  readonly log: Log
}

/**
 * Publishes invalidations to every sidecar: directly to those that watch this core, and through Redis to those that
 * watch another. Delivery is best effort: when a message is lost, the time limits of the caches are the bound.
 */
export function createInvalidations({ redis, tombstoneSeconds, log }: InvalidationOptions) {
  const local = new EventEmitter<{ invalidation: [Invalidation] }>().setMaxListeners(1_000)
  // Subscribes on every connection, so that it also works when Redis was away while core started.
  redis?.subscriber.on('ready', () => {
    redis.subscriber
      .subscribe(channel)
      .catch((error: unknown) => log.warn({ err: error }, 'cannot subscribe to invalidations'))
  })
  redis?.subscriber.on('message', (_channel: string, text: string) => {
    const invalidation = parseInvalidation(text)
    if (invalidation) local.emit('invalidation', invalidation)
  })

  async function publish(invalidation: Invalidation): Promise<void> {
    // Watchers of this core get it at once, even when Redis is away. Getting it twice does no harm.
    local.emit('invalidation', invalidation)
    if (!redis) return
    const { kind, id } = invalidation
    try {
      // A tombstone outlives a lost message. It also drops what was cached after an instant, which core then verifies.
      if (kind === 'key' || kind === 'user' || kind === 'token') {
        await redis.publisher.set(`tollgate:revoked:${id}`, '1', 'EX', tombstoneSeconds)
      }
      await redis.publisher.publish(channel, JSON.stringify(invalidation))
    } catch (error) {
      log.warn({ err: error, kind, id }, 'invalidation did not reach Redis')
    }
  }

  /** Tells the sidecars that watch this core, and nobody else. */
  const emit = (invalidation: Invalidation): void => void local.emit('invalidation', invalidation)

  /** Calls `listener` for each invalidation until the returned function is called. */
  function watch(listener: (invalidation: Invalidation) => void): () => void {
    local.on('invalidation', listener)
    return () => void local.off('invalidation', listener)
  }

  /** True when Redis answers, or none is configured. */
  const ready = async (): Promise<boolean> =>
    !redis ||
    redis.publisher.ping().then(
      () => true,
      () => false,
    )

  function stop(): void {
    redis?.publisher.disconnect()
    redis?.subscriber.disconnect()
    local.removeAllListeners()
  }

  return { publish, emit, watch, ready, stop }
}

export type Invalidations = ReturnType<typeof createInvalidations>

/** Reads an invalidation from JSON; null for anything else. */
export function parseInvalidation(text: string): Invalidation | null {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value !== 'object' || value === null || !('kind' in value) || !('id' in value))
      return null
    const { id } = value
    const kind = kinds.find((known) => known === value.kind)
    if (kind === undefined || typeof id !== 'string') return null
    const endsBefore = 'endsBefore' in value ? value.endsBefore : undefined
    return typeof endsBefore === 'number' ? { kind, id, endsBefore } : { kind, id }
  } catch {
    return null
  }
}
