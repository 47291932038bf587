import { once } from 'node:events'
import { type Socket, connect } from 'node:net'

export interface Drive {
  readonly port: number
  /** Whole HTTP requests; sent in turn. */
  readonly requests: readonly Buffer[]
  readonly count: number
  readonly connections: number
}

const success = /^HTTP\/1\.1 20[01] /
const lengthHeader = /\r\ncontent-length: (\d+)\r\n/i

/**
 * Requests a second over raw keep-alive connections, one request at a time on each. Only the status
 * and the length of an answer are read, because what this costs is taken from the service, which
 * shares the machine with it. Rejects at the first answer that is neither 200 nor 201.
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
    let text = ''
    socket.setEncoding('latin1').on('data', (chunk: string) => {
      text += chunk
      const end = text.indexOf('\r\n\r\n')
      if (end < 0 || text.length < end + 4 + Number(lengthHeader.exec(text)?.[1])) return
      if (!success.test(text)) finished.reject(new Error(`refused: ${text}`))
      text = ''
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
