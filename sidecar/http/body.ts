import type { IncomingMessage, ServerResponse } from 'node:http'
import { inCurrentSpan } from '../../core/lib/telemetry/tracing.ts'

export interface BodyReceiver {
  /** Called with the whole body. */
  readonly onBody: (body: Buffer) => void
  /** Called when the body exceeds the limit; the rest is unread. */
  onTooLarge(): void
}

const drainBytes = 8 * 1024 * 1024
const drainMs = 1_000

/**
 * Reads a body of at most `limit` bytes. A body with a declared length is complete at its last
 * byte, one without at its end. Calls nothing if the sender disconnects before that.
 */
export function receiveBody(request: IncomingMessage, limit: number, receiver: BodyReceiver): void {
  const onBody = inCurrentSpan(receiver.onBody)
  const declared = declaredLength(request)
  if (declared > limit) return receiver.onTooLarge()
  const chunks: Buffer[] = []
  let size = 0
  const take = (chunk: Buffer): void => {
    size += chunk.length
    chunks.push(chunk)
    if (size === declared) return finish()
    if (size <= limit) return
    request.off('data', take).off('end', finish)
    receiver.onTooLarge()
  }
  const finish = (): void => {
    const [first] = chunks
    onBody(chunks.length === 1 && first ? first : Buffer.concat(chunks, size))
  }
  request.on('data', take)
  if (declared === 0) request.on('end', finish)
}

/** The declared length in bytes; 0 without one. */
export const declaredLength = ({ headers }: IncomingMessage): number =>
  Number(headers['content-length'] ?? 0)

/**
 * Ends an exchange after its answer was written, without using the body. Lets the sender finish for
 * a second, so that it reads the answer instead of a reset; then closes the connection.
 */
export function drainAndEnd(request: IncomingMessage, response: ServerResponse): void {
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
