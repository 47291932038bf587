import { hash } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { matchesEtag } from './headers.ts'

/** A public document that is the same for everyone, with its text and ETag made once (bench row `rest-static`). */
export interface HeldDocument<T> {
  readonly value: T
  readonly text: string
  readonly etag: string
}

export function holdDocument<T>(value: T): HeldDocument<T> {
  const text = JSON.stringify(value)
  return { value, text, etag: `"${hash('sha256', text, 'base64url')}"` }
}

/** True when the caller has the document already: 304 is set. Otherwise its text is what the reply will be. */
export function isHeld<T>(
  { headers }: FastifyRequest,
  reply: FastifyReply,
  { document: { text, etag }, maxAge }: { document: HeldDocument<T>; maxAge: number },
): boolean {
  void reply.header('cache-control', `public, max-age=${maxAge}`).header('etag', etag)
  if (matchesEtag(headers['if-none-match'], etag)) {
    void reply.code(304)
    return true
  }
  void reply.type('application/json; charset=utf-8').serializer(() => text)
  return false
}
