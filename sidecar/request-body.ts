import type { IncomingMessage, ServerResponse } from 'node:http'

export interface Receiver {
  /** The whole body. */
  received(body: Buffer): void
  /** The body is larger than allowed; what is left of it has not been read. */
  tooLarge(): void
}

const nothing = Buffer.alloc(0)
const drainBytes = 8 * 1024 * 1024
const drainMs = 1_000

/** Reads a body of at most `limit` bytes. When the sender goes away, neither is called. */
export function receive(request: IncomingMessage, limit: number, to: Receiver): void {
  const declared = declaredLength(request)
  if (declared > limit) return to.tooLarge()
  let first: Buffer | null = null
  let chunks: Buffer[] | null = null
  let size = 0
  const take = (chunk: Buffer): void => {
    size += chunk.length
    if (size > limit) {
      request.off('data', take).off('end', finish)
      return to.tooLarge()
    }
    if (first === null) first = chunk
    else (chunks ??= [first]).push(chunk)
    // Node lets no more through than was declared: this is all, and the end need not be waited for.
    if (size === declared) finish()
  }
  const finish = (): void => to.received(chunks ? Buffer.concat(chunks, size) : (first ?? nothing))
  request.on('data', take)
  if (declared === 0) request.on('end', finish)
}

/** Bytes that the headers announce; 0 when they do not say. */
export const declaredLength = ({ headers }: IncomingMessage): number =>
  Number(headers['content-length'] ?? 0)

/**
 * Ends an exchange whose body is not wanted: the answer goes out at once; the sender gets a moment
 * to finish, so that it reads the answer and not a reset; then the connection closes.
 */
export function endPolitely(request: IncomingMessage, response: ServerResponse): void {
  let drained = 0
  const finish = (): void => {
    clearTimeout(timer)
    response.end()
  }
  const timer = setTimeout(finish, drainMs)
  request.on('data', (chunk: Buffer) => {
    drained += chunk.length
    if (drained > drainBytes) finish()
  })
  request.on('end', finish).on('error', finish).on('close', finish)
  request.resume()
}
