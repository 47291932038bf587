import { type Socket, connect } from 'node:net'

export interface HttpAnswer {
  readonly status: number
  readonly body: string
}

/** A client's connection, which is kept between requests and opened again after it ended. */
export interface Connection {
  /** Sends a whole request. Rejects if the connection ends before the whole answer. */
  send(request: Buffer): Promise<HttpAnswer>
  close(): void
}

const answerMs = 10_000

/**
 * Returns a connection with one request at a time, from the address `from`. It reads only the status
 * and a body with a length, because it shares the processors with the service.
 */
export function createConnection(port: number, from: string): Connection {
  let socket: Socket | null = null
  let received = ''
  let waiting: PromiseWithResolvers<HttpAnswer> | null = null

  function settle(outcome: HttpAnswer | Error): void {
    const settled = waiting
    waiting = null
    received = ''
    if (outcome instanceof Error) settled?.reject(outcome)
    else settled?.resolve(outcome)
  }

  function open(): Socket {
    const opened = connect({ host: '127.0.0.1', port, localAddress: from, noDelay: true })
    opened.setTimeout(answerMs, () => opened.destroy(new Error('no answer in time')))
    opened.on('data', (chunk) => {
      received += chunk.toString('latin1')
      const answer = parseAnswer(received)
      if (answer) settle(answer)
    })
    const end = (error: Error): void => {
      if (socket !== opened) return
      socket = null
      settle(error)
    }
    opened.on('error', end)
    opened.on('close', () => end(new Error('the connection ended before the answer')))
    return opened
  }

  return {
    send: (request) => {
      waiting = Promise.withResolvers()
      socket ??= open()
      socket.write(request)
      return waiting.promise
    },
    close: () => void socket?.destroy(),
  }
}

/** Returns a complete answer; null while a part of it is missing. */
function parseAnswer(text: string): HttpAnswer | null {
  const end = text.indexOf('\r\n\r\n')
  if (end < 0) return null
  const length = Number(/\r\ncontent-length: (\d+)/i.exec(text.slice(0, end + 2))?.[1] ?? 0)
  if (text.length < end + 4 + length) return null
  return { status: Number(text.slice(9, 12)), body: text.slice(end + 4, end + 4 + length) }
}
