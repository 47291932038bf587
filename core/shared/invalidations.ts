import { EventEmitter } from 'node:events'
import type { Redis } from 'ioredis'
import type { Log } from '../lib/log.ts'

const kinds = ['key', 'user', 'access', 'lease', 'leases', 'token', 'signer'] as const

/**
 * An entry that other caches must drop: a key, a user (identity and access), a user's access, or a
 * `token`, which is the id of any other ended grant. For `lease`, the id is a user, and sidecars
 * must return the user's leases. For `leases`, the id is an app's public client id, and sidecars must
 * return the leases of all its users.
 */
export interface Invalidation {
  readonly kind: (typeof kinds)[number]
  readonly id: string
  /** Unix milliseconds. If set, only credentials issued before it have ended; if absent, all. */
  readonly endsBefore?: number
}

const channel = 'tollgate:invalidations'
const subscribeAgainMs = 1_000

export interface InvalidationOptions {
  /**
   * Two connections, because a subscriber cannot run other commands. Null keeps invalidations in
   * this process.
   */
  readonly redis: { readonly publisher: Redis; readonly subscriber: Redis } | null
  /**
   * How long other caches may keep an identity. Tombstones of revoked keys and users live as long.
   */
  readonly tombstoneSeconds: number
  readonly log: Log
}

/**
 * Publishes invalidations to every sidecar: directly to those that watch this core, and through
 * Redis to those that watch another core. Delivery is best effort: if a message is lost, the
 * caches' time limits apply.
 */
export function createInvalidations({ redis, tombstoneSeconds, log }: InvalidationOptions) {
  const local = new EventEmitter<{ invalidation: [Invalidation] }>().setMaxListeners(1_000)
  // Subscribe on every connection, so that it also works if Redis was unavailable when core
  // started.
  redis?.subscriber.on('ready', () => {
    redis.subscriber.subscribe(channel).catch((error: unknown) => {
      log.warn({ err: error }, 'cannot subscribe to invalidations')
      // Subscribe again on the next connection, but not at once, because Redis may refuse for good.
      setTimeout(() => {
        if (redis.subscriber.status === 'ready') redis.subscriber.disconnect(true)
      }, subscribeAgainMs).unref()
    })
  })
  redis?.subscriber.on('message', (_channel: string, text: string) => {
    const invalidation = parseInvalidation(text)
    if (invalidation) local.emit('invalidation', invalidation)
  })

  async function publish(invalidation: Invalidation): Promise<void> {
    // Watchers of this core receive it at once, even while Redis is unavailable. Receiving it twice
    // is harmless.
    local.emit('invalidation', invalidation)
    if (!redis) return
    const { kind, id } = invalidation
    try {
      // A tombstone outlives a lost message. It also drops entries cached after `endsBefore`, which
      // core then verifies.
      if (kind === 'key' || kind === 'user' || kind === 'token') {
        await redis.publisher.set(`tollgate:revoked:${id}`, '1', 'EX', tombstoneSeconds)
      }
      await redis.publisher.publish(channel, JSON.stringify(invalidation))
    } catch (error) {
      log.warn({ err: error, kind, id }, 'invalidation did not reach Redis')
    }
  }

  /** Sends the invalidation only to sidecars that watch this core. */
  const emit = (invalidation: Invalidation): void => void local.emit('invalidation', invalidation)

  /** Calls `listener` for each invalidation. Returns a function that stops this. */
  function watch(listener: (invalidation: Invalidation) => void): () => void {
    local.on('invalidation', listener)
    return () => void local.off('invalidation', listener)
  }

  /** Whether Redis answers; also true if it is not configured. */
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

/** Parses an invalidation from JSON. Returns null for other text. */
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
