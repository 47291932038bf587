import { status } from '@grpc/grpc-js'
import type { ClientReadableStream, ServiceError } from '@grpc/grpc-js'
import type { Redis } from 'ioredis'
import type { Log } from '../../core/lib/log.ts'
import type { WatchInvalidationsResponse } from '../../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import { type Cache, connectRedis } from '../identity/cache.ts'
import type { CoreClient } from '../core-client.ts'
import { parseObject, textOf } from '../http/json.ts'
import { tombstone } from '../identity/key-directory.ts'
import type { Marks } from '../identity/versions.ts'
import type { RevokedTokens } from '../identity/revoked-tokens.ts'

const channel = 'tollgate:invalidations'
const kinds = new Set(['key', 'user', 'access', 'token'])
const firstPauseMs = 100
const longestPauseMs = 5_000
// A stream that has not failed by then stands, also where the server sends nothing before its first
// message.
const settledMs = 1_000

export interface InvalidationsOptions {
  readonly core: Pick<CoreClient, 'watchInvalidations'>
  readonly redisUrl: string | undefined
  readonly cache: Cache
  readonly marks: Marks
  readonly revokedTokens: RevokedTokens
  readonly tombstoneSeconds: number
  readonly log: Log
}

/**
 * Listens on both ways by which core says that something ended: its stream, and Redis. While at
 * least one stands nothing is missed; when both were down, all that was read before one is back is
 * read anew.
 */
export function createInvalidations({
  core,
  redisUrl,
  cache,
  marks,
  revokedTokens,
  tombstoneSeconds,
  log,
}: InvalidationsOptions) {
  const up = new Set<'core' | 'redis'>()

  function linked(link: 'core' | 'redis'): void {
    if (up.size === 0) {
      marks.markAll()
      revokedTokens.listenAnew()
      cache.forget()
    }
    up.add(link)
  }

  function apply(kind: string, id: string): void {
    if (!kinds.has(kind) || id === '') return
    // Before the mark, so that whoever finds an identity stale finds out why.
    if (kind === 'token') revokedTokens.end(id)
    marks.mark(id)
    if (kind === 'access' || kind === 'token') return
    // Core writes it too; this one also stands when core cannot reach the cache.
    cache.set(tombstone(id), '1', tombstoneSeconds).catch(() => undefined)
  }

  const redis =
    redisUrl === undefined
      ? null
      : subscribe(redisUrl, log, {
          linked: () => linked('redis'),
          lost: () => up.delete('redis'),
          apply,
        })
  const stream = watch(core, log, {
    linked: () => linked('core'),
    lost: () => up.delete('core'),
    apply,
  })

  function stop(): void {
    stream.stop()
    redis?.disconnect()
  }

  return { stop, links: (): readonly string[] => [...up] }
}

interface Link {
  linked(): void
  lost(): void
  apply(kind: string, id: string): void
}

function subscribe(url: string, log: Log, link: Link): Redis {
  const redis = connectRedis(url, log)
  redis.on('ready', () => {
    redis.subscribe(channel).then(
      () => link.linked(),
      () => redis.disconnect(true),
    )
  })
  redis.on('close', () => link.lost())
  redis.on('message', (_channel: string, text: string) => {
    const message = parseObject(text)
    if (message) link.apply(textOf(message['kind']), textOf(message['id']))
  })
  return redis
}

function watch(core: InvalidationsOptions['core'], log: Log, link: Link): { stop(): void } {
  let stopped = false
  let pauseMs = firstPauseMs
  let timer: NodeJS.Timeout
  let call: ClientReadableStream<WatchInvalidationsResponse>

  function open(): void {
    call = core.watchInvalidations()
    const stand = (): void => {
      clearTimeout(timer)
      pauseMs = firstPauseMs
      link.linked()
    }
    timer = setTimeout(stand, settledMs)
    call.on('metadata', stand)
    call.on('data', ({ kind, id }: WatchInvalidationsResponse) => link.apply(kind, id))
    call.on('error', (error: ServiceError) => again(error))
    call.on('end', () => again(null))
  }

  // An error follows or precedes `end`; only the first of them opens the next stream.
  function again(error: ServiceError | null): void {
    clearTimeout(timer)
    call.removeAllListeners().on('error', () => undefined)
    link.lost()
    if (stopped) return
    if (error && error.code !== status.UNAVAILABLE)
      log.warn({ err: error.details }, 'invalidations stream broke')
    timer = setTimeout(open, pauseMs)
    timer.unref()
    pauseMs = Math.min(pauseMs * 2, longestPauseMs)
  }

  function stop(): void {
    stopped = true
    clearTimeout(timer)
    call.cancel()
  }

  open()
  return { stop }
}
