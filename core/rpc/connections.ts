import type { Http2Session, ServerHttp2Stream } from 'node:http2'
import type { Socket } from 'node:net'
import { serviceTokenHeader } from '../../proto/headers.ts'
import { toNetwork } from '../lib/network/addresses.ts'
import { type OpenedStream, refuseStream, toRpcPath } from './streams.ts'

export interface ConnectionLimits {
  /** Maximum number of connections. */
  readonly max: number
  /**
   * Maximum number of strangers' connections. A peer is a stranger until it has sent a service
   * token. The other places are reserved for known peers.
   */
  readonly maxStrangers: number
  /** Maximum number of strangers' connections per IPv4 address or IPv6 /64. */
  readonly maxStrangersPerAddress: number
  /** Maximum number of concurrent streams on a stranger's connection. */
  readonly maxStrangerStreams: number
  /** Milliseconds after which a stranger's connection is closed. */
  readonly strangerMs: number
}

export const usualConnectionLimits: ConnectionLimits = {
  max: 1_000,
  maxStrangers: 500,
  maxStrangersPerAddress: 100,
  maxStrangerStreams: 16,
  strangerMs: 10_000,
}

interface Connection {
  readonly socket: Socket
  readonly peer: string
  /** Strangers from the same address, in order of arrival. */
  readonly neighbours: Set<Connection>
  isKnown: boolean
  streams: number
  isWatchingHealth: boolean
}

const healthWatch = 'grpc.health.v1.Health/Watch'

/**
 * Keeps strangers from occupying core's connections. A connection on which no stream has carried a
 * service token is closed after `strangerMs`, or earlier, oldest first, when a newer connection
 * needs its place.
 */
export function createConnections(
  limits: ConnectionLimits,
  isServiceToken: (token: string) => boolean,
) {
  const connections = new Map<string, Connection>()
  const strangers = new Set<Connection>()
  const strangersByAddress = new Map<string, Set<Connection>>()
  const connectionsBySession = new WeakMap<Http2Session, Connection>()

  /**
   * Admits a connection, and closes a stranger's if necessary. Closes the new one if known peers
   * have all places.
   */
  function admit(socket: Socket): void {
    const address = toNetwork(socket.remoteAddress ?? '')
    const neighbours = strangersByAddress.get(address) ?? new Set()
    if (neighbours.size >= limits.maxStrangersPerAddress) closeOldest(neighbours)
    if (strangers.size >= limits.maxStrangers) closeOldest(strangers)
    if (connections.size >= limits.max) closeOldest(strangers)
    // Destroy it later, because the TLS handshake begins with this event.
    if (connections.size >= limits.max) return void setImmediate(() => socket.destroy())
    strangersByAddress.set(address, neighbours)
    add({
      socket,
      peer: peerOf(socket),
      neighbours,
      isKnown: false,
      streams: 0,
      isWatchingHealth: false,
    })
    socket.once('close', () => {
      if (neighbours.size === 0 && strangersByAddress.get(address) === neighbours)
        strangersByAddress.delete(address)
    })
  }

  function add(connection: Connection): void {
    const { socket, peer, neighbours } = connection
    connections.set(peer, connection)
    strangers.add(connection)
    neighbours.add(connection)
    const deadline = setTimeout(() => {
      if (!connection.isKnown) close(connection)
    }, limits.strangerMs).unref()
    socket.once('close', () => {
      clearTimeout(deadline)
      remove(connection)
    })
  }

  function closeOldest([oldest]: ReadonlySet<Connection>): void {
    if (oldest) close(oldest)
  }

  function close(connection: Connection): void {
    remove(connection)
    connection.socket.destroy()
  }

  function remove(connection: Connection): void {
    forgetStranger(connection)
    if (connections.get(connection.peer) === connection) connections.delete(connection.peer)
  }

  function forgetStranger(connection: Connection): void {
    strangers.delete(connection)
    connection.neighbours.delete(connection)
  }

  /** Reads the token of a stranger's stream, and rejects streams beyond the limit. */
  function judgeStream(opened: OpenedStream): void {
    const connection = connectionOf(opened.session)
    if (!connection) return
    if (!connection.isKnown && hasToken(opened)) {
      connection.isKnown = true
      forgetStranger(connection)
    }
    if (!connection.isKnown) limitStreams(connection, opened)
    if (toRpcPath(opened) === healthWatch) limitWatches(connection, opened)
  }

  function connectionOf(session: Http2Session): Connection | undefined {
    const known = connectionsBySession.get(session)
    if (known) return known
    const connection = connections.get(peerOf(session.socket))
    if (connection) connectionsBySession.set(session, connection)
    return connection
  }

  function hasToken({ headers }: OpenedStream): boolean {
    const token = headers[serviceTokenHeader]
    return typeof token === 'string' && isServiceToken(token)
  }

  function limitStreams(connection: Connection, { stream }: OpenedStream): void {
    connection.streams++
    stream.once('close', () => connection.streams--)
    if (connection.streams > limits.maxStrangerStreams)
      refuseLater(
        stream,
        `without a service token a connection has ${limits.maxStrangerStreams} calls at once`,
      )
  }

  function limitWatches(connection: Connection, { stream }: OpenedStream): void {
    if (connection.isWatchingHealth)
      return refuseLater(stream, 'a connection has one Health/Watch; read the one that is open')
    connection.isWatchingHealth = true
    stream.once('close', () => (connection.isWatchingHealth = false))
  }

  return { admit, judgeStream }
}

const peerOf = ({ remoteAddress, remotePort }: Pick<Socket, 'remoteAddress' | 'remotePort'>) =>
  `${remoteAddress} ${remotePort}`

/**
 * Rejects a stream after grpc-js has received it. grpc-js throws for a stream that is answered
 * before.
 */
const refuseLater = (stream: ServerHttp2Stream, message: string): void =>
  void setImmediate(() => refuseStream(stream, message))
