import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import {
  type Http2Session,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
  constants,
} from 'node:http2'
import { Duplex } from 'node:stream'
import { status } from '@grpc/grpc-js'

/** Node announces each stream of HTTP/2 here before any server handles it (Node's documentation, "diagnostics_channel"). */
const channel = 'http2.server.stream.created'

/** A stream of HTTP/2 with its request headers. */
export interface OpenedStream {
  readonly stream: ServerHttp2Stream
  readonly session: Http2Session
  readonly headers: IncomingHttpHeaders
}

/**
 * Calls `onStream` with each stream of the server on `port`, before the server gets it; streams of other servers of this
 * process are skipped. Returns a function that ends that.
 */
export function watchStreams(port: number, onStream: (opened: OpenedStream) => void): () => void {
  const sessions = new WeakMap<Http2Session, boolean>()

  function isOurs(session: Http2Session): boolean {
    const isKnown = sessions.get(session)
    if (isKnown !== undefined) return isKnown
    const isServed = session.socket.localPort === port
    sessions.set(session, isServed)
    return isServed
  }

  function onMessage(message: unknown): void {
    const opened = openedStream(message)
    if (opened && isOurs(opened.session)) onStream(opened)
  }

  subscribe(channel, onMessage)
  return () => void unsubscribe(channel, onMessage)
}

/** The path of an RPC without its first slash. */
export const rpcPathOf = ({ headers }: OpenedStream): string => (headers[':path'] ?? '').slice(1)

/**
 * Ends a stream with RESOURCE_EXHAUSTED. A closed stream is cancelled for grpc-js, which then keeps nothing of it. Where
 * an answer has begun, the error code says what its status cannot say any more: gRPC reads it as RESOURCE_EXHAUSTED.
 */
export function refuseStream(stream: ServerHttp2Stream, message: string): void {
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

function openedStream(message: unknown): OpenedStream | null {
  if (!isObject(message) || !('stream' in message) || !('headers' in message)) return null
  const { stream, headers } = message
  if (!isStream(stream) || !isHeaders(headers) || !stream.session) return null
  return { stream, session: stream.session, headers }
}

const isStream = (value: unknown): value is ServerHttp2Stream => value instanceof Duplex

const isHeaders = (value: unknown): value is IncomingHttpHeaders => isObject(value)

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null
