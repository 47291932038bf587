import { status } from '@grpc/grpc-js'
import type { ClientReadableStream, ServiceError } from '@grpc/grpc-js'
import type { Redis } from 'ioredis'
import { type Backoff, backoffMs } from '../../core/lib/loop.ts'
import { parseObject, readText } from '../../core/lib/json.ts'
import type { Log } from '../../core/lib/log.ts'
import type { WatchInvalidationsResponse } from '../../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import type { CoreClient } from '../core/client.ts'
import { type Cache, connectSharedRedis, tombstone } from './redis.ts'
import type { Versions } from './cached-state.ts'

const channel = 'tollgate:invalidations'
const kinds = new Set(['key', 'user', 'access', 'lease', 'leases', 'token', 'signer'])
const reconnects: Backoff = { firstMs: 100, lastMs: 5_000 }
// A stream without an error until then is up, even if the server sends nothing before its first
// message.
const settledMs = 1_000

export interface InvalidationsOptions {
  readonly core: Pick<CoreClient, 'watchInvalidations'>
  readonly redisUrl: string | undefined
  readonly cache: Cache | null
  /** Versions of cached users. */
  readonly versions: Versions
  /** Versions of identities, which become stale only when an id ends. */
  readonly identityVersions: Versions
  readonly revokedTokens: EndedIds
  /** Returns the leases of users, by id, whose money another sidecar needs. */
  readonly recall: (userIds: readonly string[]) => void
  /** Returns the leases of an app's users, by its client id. */
  readonly recallApp: (clientId: string) => void
  /** Reloads the signers from core. */
  readonly refreshSigners: () => void
  readonly tombstoneSeconds: number
  readonly log: Log
}

/** Stores the ends of ids that tokens descend from. */
export interface EndedIds {
  /** Called when earlier ends may have been missed. */
  restart(): void
  /** Tokens issued before `endsBefore` (Unix milliseconds) are revoked; Infinity for all. */
  revoke(id: string, endsBefore: number): void
}

/**
 * Receives invalidations over two links: a stream from core, and Redis. While at least one is up,
 * nothing is missed. After both were down, everything read before the first came back becomes
 * stale.
 */
export function createInvalidations({
  core,
  redisUrl,
  cache,
  versions,
  identityVersions,
  revokedTokens,
  recall,
  recallApp,
  refreshSigners,
  tombstoneSeconds,
  log,
}: InvalidationsOptions) {
  const up = new Set<'core' | 'redis'>()

  function onUp(link: 'core' | 'redis'): void {
    if (up.size === 0) {
      versions.invalidateAll()
      identityVersions.invalidateAll()
      revokedTokens.restart()
    }
    up.add(link)
  }

  function apply(kind: string, id: string, endsBefore: number): void {
    if (!kinds.has(kind) || id === '') return
    if (kind === 'lease') return recall([id])
    if (kind === 'leases') return recallApp(id)
    if (kind === 'signer') return refreshSigners()
    if (kind === 'access') return versions.invalidate(id)
    // The end of an app also ends its signer.
    if (id.startsWith('app_')) refreshSigners()
    if (kind === 'key') end(`key:${id}`, endsBefore)
    // Cores of earlier releases send a signer session as a key.
    end(id, endsBefore)
    // Core writes the tombstone too; this one also works when core cannot reach the cache.
    cache?.set(tombstone(id), '1', tombstoneSeconds).catch(() => undefined)
  }

  function end(id: string, endsBefore: number): void {
    // Revoke first, so that the verification after a stale identity finds the end.
    revokedTokens.revoke(id, endsBefore > 0 ? endsBefore : Infinity)
    versions.invalidate(id)
    identityVersions.invalidate(id)
  }

  const redis =
    redisUrl === undefined
      ? null
      : subscribe(redisUrl, log, {
          onUp: () => onUp('redis'),
          onDown: () => up.delete('redis'),
          apply,
        })
  const stream = watch(core, log, {
    onUp: () => onUp('core'),
    onDown: () => up.delete('core'),
    apply,
  })

  function stop(): void {
    stream.stop()
    redis?.disconnect()
  }

  return { stop, links: (): readonly string[] => [...up] }
}

interface Link {
  onUp(): void
  onDown(): void
  /** `endsBefore` in Unix milliseconds; 0 when everything has ended. */
  apply(kind: string, id: string, endsBefore: number): void
}

function subscribe(url: string, log: Log, link: Link): Redis {
  const redis = connectSharedRedis(url, log)
  redis.on('ready', () => {
    redis.subscribe(channel).then(
      () => link.onUp(),
      () => redis.disconnect(true),
    )
  })
  redis.on('close', () => link.onDown())
  redis.on('message', (_channel: string, text: string) => {
    const message = parseObject(text)
    if (!message) return
    const { kind, id, endsBefore } = message
    link.apply(readText(kind), readText(id), typeof endsBefore === 'number' ? endsBefore : 0)
  })
  return redis
}

function watch(core: InvalidationsOptions['core'], log: Log, link: Link): { stop(): void } {
  let stopped = false
  let failures = 0
  let timer: NodeJS.Timeout
  let call: ClientReadableStream<WatchInvalidationsResponse>

  function open(): void {
    call = core.watchInvalidations()
    const onUp = (): void => {
      clearTimeout(timer)
      failures = 0
      link.onUp()
    }
    timer = setTimeout(onUp, settledMs)
    call.on('metadata', onUp)
    call.on('data', ({ kind, id, endsBefore }: WatchInvalidationsResponse) =>
      link.apply(kind, id, Number(endsBefore)),
    )
    call.on('error', (error: ServiceError) => reopen(error))
    call.on('end', () => reopen(null))
  }

  // An error follows or precedes `end`; only the first of them opens the next stream.
  function reopen(error: ServiceError | null): void {
    clearTimeout(timer)
    call.removeAllListeners().on('error', () => undefined)
    link.onDown()
    if (stopped) return
    if (error && error.code !== status.UNAVAILABLE)
      log.warn({ err: error.details }, 'invalidations stream broke')
    failures++
    timer = setTimeout(open, backoffMs(failures, reconnects))
    timer.unref()
  }

  function stop(): void {
    stopped = true
    clearTimeout(timer)
    call.cancel()
  }

  open()
  return { stop }
}
