import { once } from 'node:events'
import { type Socket, connect } from 'node:net'

export interface Drive {
  readonly port: number
  /** Complete HTTP requests, sent in turn. */
  readonly requests: readonly Buffer[]
  readonly count: number
  readonly connections: number
}

const success = /^HTTP\/1\.1 (?:20[01]|304) /
const lengthHeader = /\r\ncontent-length: (\d+)\r\n/i

/**
 * Returns the requests per second over raw keep-alive connections, with one open request on each.
 * Reads only the status and the length of an answer, because the service shares the machine with
 * this process. Rejects on the first answer other than 200, 201 or 304.
 */
export async function drive({ port, requests, count, connections }: Drive): Promise<number> {
  const sockets = await Promise.all(Array.from({ length: connections }, () => open(port)))
  const finished = Promise.withResolvers<void>()
  let sent = 0
  let answered = 0

  function send(socket: Socket): void {
    const request = requests[sent++ % requests.length]
    if (request) socket.write(request)
  }

  function answer(socket: Socket): void {
    if (++answered === count) finished.resolve()
    else if (sent < count) send(socket)
  }

  function use(socket: Socket): void {
    let head = ''
    // Bytes of the body that are still missing; null while the head is read.
    let left: number | null = null
    socket.on('data', (chunk: Buffer) => {
      if (left === null) {
        head += chunk.toString('latin1')
        const end = head.indexOf('\r\n\r\n')
        if (end < 0) return
        if (!success.test(head)) finished.reject(new Error(`refused: ${head}`))
        left = end + 4 + Number(lengthHeader.exec(head)?.[1] ?? 0) - head.length
      } else left -= chunk.length
      if (left > 0) return
      head = ''
      left = null
      answer(socket)
    })
    socket.on('error', finished.reject)
    send(socket)
  }

  const started = performance.now()
  sockets.forEach(use)
  await finished.promise.finally(() => sockets.forEach((socket) => socket.destroy()))
  return count / ((performance.now() - started) / 1000)
}

async function open(port: number): Promise<Socket> {
  const socket = connect({ host: '127.0.0.1', port, noDelay: true })
  await once(socket, 'connect')
  return socket
}
