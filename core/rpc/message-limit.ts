import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { type Http2Session, type ServerHttp2Stream, constants } from 'node:http2'
import { Duplex } from 'node:stream'
import { status } from '@grpc/grpc-js'

/** Node announces each stream of HTTP/2 here before whoever serves it (Node's documentation, "diagnostics_channel"). */
const streams = 'http2.server.stream.created'
/** A flag and the length of the message that follows. */
const prefixBytes = 5

export interface MessageLimits {
  /** The port of the server whose calls are bounded; other servers of this process are not. */
  readonly port: number
  /** The longest request message of an RPC, in bytes, by its path without the first slash. */
  maxBytesOf(path: string): number
}

/**
 * Bounds the request messages of each RPC by its own measure, where grpc-js has one for a whole server, which must admit
 * the largest message of all. A call is refused with RESOURCE_EXHAUSTED by the length that a message announces, before
 * its first byte is kept. Returns what ends that.
 */
export function limitMessages({ port, maxBytesOf }: MessageLimits): () => void {
  const sessions = new WeakMap<Http2Session, boolean>()

  function isOurs(session: Http2Session): boolean {
    const isKnown = sessions.get(session)
    if (isKnown !== undefined) return isKnown
    const isServed = session.socket.localPort === port
    sessions.set(session, isServed)
    return isServed
  }

  function limit(message: unknown): void {
    const stream = streamOf(message)
    if (!stream?.session || !isOurs(stream.session)) return
    const path = pathOf(message)
    if (path !== undefined) limitStream(stream, maxBytesOf(path.slice(1)))
  }

  subscribe(streams, limit)
  return () => void unsubscribe(streams, limit)
}

function limitStream(stream: ServerHttp2Stream, maxBytes: number): void {
  const prefix = Buffer.alloc(prefixBytes)
  let filled = 0
  let left = 0

  /** Reads a prefix, or skips what is left of a message. Returns how many bytes of the chunk that took. */
  function take(chunk: Buffer, from: number): number {
    if (left > 0) {
      const skipped = Math.min(left, chunk.length - from)
      left -= skipped
      return skipped
    }
    const copied = chunk.copy(prefix, filled, from)
    filled = (filled + copied) % prefixBytes
    if (filled === 0) left = prefix.readUInt32BE(1)
    return copied
  }

  stream.on('data', (chunk: Buffer) => {
    for (let from = 0; from < chunk.length;) {
      from += take(chunk, from)
      if (left > maxBytes) return refuse(stream, `a message may have ${maxBytes} bytes here`)
    }
  })
}

/**
 * A closed stream is cancelled for grpc-js, which then keeps nothing of it. Where an answer has begun, the error code says
 * what its status cannot say any more: gRPC reads it as RESOURCE_EXHAUSTED.
 */
function refuse(stream: ServerHttp2Stream, message: string): void {
  // A call that was answered already is read no more.
  if (stream.closed || stream.writableEnded) return
  if (stream.headersSent) return stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM)
  stream.respond(
    {
      [constants.HTTP2_HEADER_CONTENT_TYPE]: 'application/grpc+proto',
      'grpc-status': status.RESOURCE_EXHAUSTED,
      'grpc-message': message,
    },
    { endStream: true },
  )
  stream.close(constants.NGHTTP2_NO_ERROR)
}

const isStream = (value: unknown): value is ServerHttp2Stream => value instanceof Duplex

const streamOf = (message: unknown): ServerHttp2Stream | null =>
  isObject(message) && 'stream' in message && isStream(message.stream) ? message.stream : null

function pathOf(message: unknown): string | undefined {
  const headers = isObject(message) && 'headers' in message ? message.headers : undefined
  const path = isObject(headers) && ':path' in headers ? headers[':path'] : undefined
  return typeof path === 'string' ? path : undefined
}

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null
