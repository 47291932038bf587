import { hash } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { matchesEtag } from './headers.ts'

/**
 * A public document that is the same for every caller. Its text and ETag are computed once (bench
 * row `rest-static`).
 */
export interface CachedDocument<T> {
  readonly value: T
  readonly etag: string
  readonly serialize: () => string
}

export function cacheDocument<T>(value: T): CachedDocument<T> {
  const text = JSON.stringify(value)
  return { value, etag: `"${hash('sha256', text, 'base64url')}"`, serialize: () => text }
}

export interface CachedFor<T> {
  /** A promise while it is loading. */
  readonly document: CachedDocument<T> | Promise<CachedDocument<T>>
  /** In seconds. */
  readonly maxAge: number
}

/**
 * Returns the document, or null with 304 if the caller already has it. Synchronous if the document
 * is in memory.
 */
export function answerCached<T>(
  request: FastifyRequest,
  reply: FastifyReply,
  { document, maxAge }: CachedFor<T>,
): T | null | Promise<T | null> {
  if (document instanceof Promise)
    return document.then((loaded) => answer(request, reply, { document: loaded, maxAge }))
  return answer(request, reply, { document, maxAge })
}

function answer<T>(
  { headers }: FastifyRequest,
  reply: FastifyReply,
  { document, maxAge }: { document: CachedDocument<T>; maxAge: number },
): T | null {
  const { value, etag, serialize } = document
  void reply.header('cache-control', `public, max-age=${maxAge}`).header('etag', etag)
  if (matchesEtag(headers['if-none-match'], etag)) {
    void reply.code(304)
    return null
  }
  void reply.type('application/json; charset=utf-8').serializer(serialize)
  return value
}
