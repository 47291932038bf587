import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import {
  type Http2Session,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
  constants,
} from 'node:http2'
import { Duplex } from 'node:stream'
import { status } from '@grpc/grpc-js'

/**
 * Node publishes each HTTP/2 stream here before any server handles it (Node's documentation,
 * "diagnostics_channel").
 */
const channel = 'http2.server.stream.created'

/** An HTTP/2 stream with its request headers. */
export interface OpenedStream {
  readonly stream: ServerHttp2Stream
  readonly session: Http2Session
  readonly headers: IncomingHttpHeaders
}

/**
 * Calls `onStream` with each stream of the server on `port`, before the server receives it. Skips
 * streams of other servers in this process. Returns a function that stops this.
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

/** The path of an RPC without the leading slash. */
export const toRpcPath = ({ headers }: OpenedStream): string => (headers[':path'] ?? '').slice(1)

/**
 * Ends a stream with RESOURCE_EXHAUSTED. For grpc-js a closed stream is cancelled, and its data is
 * dropped. If the response has already begun, its status can no longer be sent, so the HTTP/2 error
 * code carries it: gRPC reads that as RESOURCE_EXHAUSTED.
 */
export function refuseStream(stream: ServerHttp2Stream, message: string): void {
  // grpc-js does not read on after it has answered a call.
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
