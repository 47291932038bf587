import type { Server } from 'node:http'
import type { Socket } from 'node:net'
import { type Reloadable, currentValue } from '../settings/reloadable.ts'
import { Server as TlsServer } from 'node:tls'
import { toNetwork } from './addresses.ts'

export interface ConnectionBounds {
  /** Maximum number of open connections of the listener. */
  readonly max: Reloadable<number>
  /** Maximum per IPv4 address or IPv6 /64; null for no limit. */
  readonly maxPerAddress: Reloadable<number> | null
  /** Peers without a limit per address, whose connections are never closed to make room. */
  readonly isExempt?: (socket: Socket) => boolean
}

/** Connections that share a limit. `idle` is ordered: the first has been idle longest. */
interface Group {
  readonly name: string
  open: number
  readonly idle: Set<Connection>
}

interface Connection {
  readonly socket: Socket
  readonly groups: readonly Group[]
  /** Number of unfinished responses. One more for an exempt peer, so that it is never idle. */
  running: number
}

const createGroup = (name: string): Group => ({ name, open: 0, idle: new Set() })

/**
 * Limits the connections of an HTTP server. A connection beyond a limit replaces the one that has
 * been idle longest, at its address or overall. If no connection is idle, the new one is closed. A
 * connection is idle until the headers of its first request have arrived, and between requests.
 */
export function boundConnections(server: Server, bounds: ConnectionBounds): void {
  const { max, maxPerAddress, isExempt } = bounds
  const all = createGroup('')
  const addresses = new Map<string, Group>()
  const connections = new WeakMap<Socket, Connection>()
  const handshakes = new Map<string, Connection>()

  function admit(socket: Socket): void {
    const name = toNetwork(socket.remoteAddress ?? '')
    const group = addresses.get(name) ?? createGroup(name)
    const isOwn = isExempt?.(socket) ?? false
    if (!makePlaceAt(group, isOwn) || !makePlace(all, currentValue(max)))
      return void socket.destroy()
    add({ socket, groups: isOwn ? [all] : [all, group], running: isOwn ? 1 : 0 })
    if (!isOwn) addresses.set(name, group)
  }

  const makePlaceAt = (group: Group, isOwn: boolean): boolean =>
    isOwn || maxPerAddress === null || makePlace(group, currentValue(maxPerAddress))

  /** Returns false if the group is full and all its connections are busy. */
  const makePlace = (group: Group, bound: number): boolean =>
    group.open < bound || closeOldest(group)

  function add(connection: Connection): void {
    const { socket, groups, running } = connection
    connections.set(socket, connection)
    if (server instanceof TlsServer) awaitHandshake(connection)
    for (const group of groups) group.open++
    if (running === 0) markIdle(connection)
    socket.once('close', () => remove(connection))
  }

  // A request names the socket of the session, which has the same peer as the accepted socket.
  function awaitHandshake(connection: Connection): void {
    const peer = peerOf(connection.socket)
    handshakes.set(peer, connection)
    connection.socket.once('close', () => {
      if (handshakes.get(peer) === connection) handshakes.delete(peer)
    })
  }

  function endHandshake(session: Socket): void {
    const connection = handshakes.get(peerOf(session))
    if (connection && connections.has(connection.socket)) connections.set(session, connection)
  }

  function remove(connection: Connection): void {
    if (!connections.delete(connection.socket)) return
    for (const group of connection.groups) {
      group.open--
      group.idle.delete(connection)
      if (group.open === 0) addresses.delete(group.name)
    }
  }

  function closeOldest({ idle }: Group): boolean {
    const [oldest] = idle
    if (!oldest) return false
    remove(oldest)
    oldest.socket.destroy()
    return true
  }

  server.on('connection', admit)
  server.on('secureConnection', endHandshake)
  server.on('request', ({ socket }, response) => {
    const connection = connections.get(socket)
    if (!connection) return
    connection.running++
    for (const { idle } of connection.groups) idle.delete(connection)
    response.once('close', () => {
      connection.running--
      if (connection.running === 0 && connections.has(connection.socket)) markIdle(connection)
    })
  })
}

const peerOf = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress} ${remotePort}`

function markIdle(connection: Connection): void {
  for (const { idle } of connection.groups) idle.add(connection)
}
