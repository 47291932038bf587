import type { IncomingMessage, ServerResponse } from 'node:http'

export interface Receiver {
  /** The whole body. */
  received(body: Buffer): void
  /** The body is larger than allowed; what is left of it has not been read. */
  tooLarge(): void
}

const drainBytes = 8 * 1024 * 1024
const drainMs = 1_000

/** Reads a body of at most `limit` bytes. When the sender goes away, neither is called. */
export function receive(request: IncomingMessage, limit: number, to: Receiver): void {
  const declared = declaredLength(request)
  if (declared > limit) return to.tooLarge()
  if (declared > 0) receiveDeclared(request, declared, to)
  else receiveUntilEnd(request, limit, to)
}

// Node hands a body to its stream by `push`, and lets no more through than was declared: taken
// there, it is whole at once. By way of the stream's queue, its events and a later turn of the loop
// a decision costs a tenth more (measured). Whoever mounts the handler may be later than the body.
function receiveDeclared(request: IncomingMessage, declared: number, to: Receiver): void {
  const take = whole(declared, to)
  if (request.readableLength > 0 || request.complete) return void request.on('data', take)
  request.push = (chunk: Buffer | null): boolean => {
    if (chunk !== null) take(chunk)
    return true
  }
}

/** Takes the pieces of a body of so many bytes. */
function whole(bytes: number, to: Receiver): (chunk: Buffer) => void {
  let chunks: Buffer[] | null = null
  let missing = bytes
  return (chunk) => {
    missing -= chunk.length
    if (missing === 0 && chunks === null) return to.received(chunk)
    chunks ??= []
    chunks.push(chunk)
    if (missing === 0) to.received(Buffer.concat(chunks, bytes))
  }
}

function receiveUntilEnd(request: IncomingMessage, limit: number, to: Receiver): void {
  const chunks: Buffer[] = []
  let size = 0
  const take = (chunk: Buffer): void => {
    size += chunk.length
    chunks.push(chunk)
    if (size <= limit) return
    request.off('data', take).off('end', finish)
    to.tooLarge()
  }
  const finish = (): void => to.received(Buffer.concat(chunks, size))
  request.on('data', take).on('end', finish)
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
