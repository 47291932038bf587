import { once } from 'node:events'
import { type AddressInfo, type Socket, connect, createServer } from 'node:net'
import type { Stops } from '../support/deployment/parts.ts'

/** Ways to interrupt the traffic between two processes. */
export type Interruption =
  /** Connections are closed and new ones refused, as when a process has ended. */
  | 'cut'
  /** Bytes wait and arrive later, as in a network that loses packets for a while. */
  | 'hang'
  /** Bytes of open connections never arrive, and both sides see them as open, as behind a firewall that forgot them. */
  | 'lose'
  /** Each byte arrives 400 ms later. */
  | 'delay'

export interface Proxy {
  readonly port: number
  interrupt(how: Interruption): void
  heal(): void
}

interface Pair {
  readonly client: Socket
  readonly upstream: Socket
  isLost: boolean
}

const delayMs = 400

/** Starts a TCP proxy to a port of this machine. */
export async function startProxy(stops: Stops, port: number): Promise<Proxy> {
  const pairs = new Set<Pair>()
  const waiting = new Set<Socket>()
  let state: Interruption | 'pass' = 'pass'
  const server = createServer({ pauseOnConnect: true }, (client) => {
    client.on('error', () => client.destroy())
    if (state === 'cut') return void client.destroy()
    if (state === 'pass' || state === 'delay') return forward(client)
    waiting.add(client)
    client.on('close', () => waiting.delete(client))
  })
  const isStalled = (pair: Pair): boolean => pair.isLost || state === 'hang' || state === 'lose'

  function forward(client: Socket): void {
    const upstream = connect(port, '127.0.0.1')
    const pair: Pair = { client, upstream, isLost: false }
    pairs.add(pair)
    upstream.on('error', () => upstream.destroy())
    join(pair, { from: client, to: upstream })
    join(pair, { from: upstream, to: client })
  }

  function join(pair: Pair, { from, to }: { from: Socket; to: Socket }): void {
    from.on('data', (bytes) => {
      if (state === 'delay') setTimeout(() => void to.write(bytes), delayMs)
      else if (!to.write(bytes)) from.pause()
    })
    to.on('drain', () => isStalled(pair) || from.resume())
    from.on('close', () => {
      // During an interruption the other side sees no change.
      if (!isStalled(pair)) end(pair)
    })
    from.resume()
  }

  function end(pair: Pair): void {
    pairs.delete(pair)
    pair.client.destroy()
    pair.upstream.destroy()
  }

  function interrupt(how: Interruption): void {
    state = how
    for (const pair of pairs) {
      if (how === 'cut') end(pair)
      if (how === 'lose') pair.isLost = true
      if (!isStalled(pair)) continue
      pair.client.pause()
      pair.upstream.pause()
    }
  }

  function heal(): void {
    state = 'pass'
    for (const pair of pairs) {
      if (pair.isLost) continue
      if (pair.client.destroyed || pair.upstream.destroyed) end(pair)
      pair.client.resume()
      pair.upstream.resume()
    }
    for (const client of waiting) forward(client)
    waiting.clear()
  }

  await once(server.listen(0, '127.0.0.1'), 'listening')
  stops.push(async () => {
    server.close()
    for (const pair of pairs) end(pair)
    for (const client of waiting) client.destroy()
  })
  const address = server.address() as AddressInfo
  return { port: address.port, interrupt, heal }
}
