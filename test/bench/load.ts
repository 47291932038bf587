import { once } from 'node:events'
import { type Socket, connect } from 'node:net'
import { newSecret } from '../../core/lib/crypto.ts'
import { answerQuestions, cpuMs } from './helper.ts'
import { quantile } from './stats.ts'

/**
 * Sends prepared requests over raw keep-alive connections, with one open request on each. All
 * answers to one kind of request have the same length, so that answers are counted by bytes and not
 * parsed: this process must not dominate the measurement. It never sleeps during a run: waking a
 * sleeping process on the same machine is part of the other's write, costs up to a third of a
 * request, and would affect only the slower server, whose load sleeps. A real signer is not woken
 * by the sidecar's own processor. Takes the requests once, then runs as often as asked.
 */
interface Run {
  readonly port: number
  readonly count: number
  readonly connections: number
  /** Index of the first request. Default is 0. */
  readonly first?: number
  /**
   * Requests per second, independent of the answers. By default each answer triggers the next
   * request.
   */
  readonly perSecond?: number
  /** Expected status in the answers. Default is 200. */
  readonly status?: number
  /** Whether each request gets a key that was never used before. */
  readonly newKeys?: boolean
}

interface Connection {
  readonly socket: Socket
  /** Time when its request was due, by performance.now(). */
  due: number
  /** Bytes of the answer that have not arrived. */
  missing: number
}

let requests: Buffer[] = []
const keyPrefix = 'svc_ak_'
const decision = '{"status":'

async function run(options: Run) {
  const { port, count, first = 0, perSecond } = options
  const connections = await Promise.all(
    Array.from({ length: Math.min(options.connections, count) }, () => open(port)),
  )
  const shape = await shapeOf(options)
  const finished = Promise.withResolvers<void>()
  const delays = new Float64Array(count)
  const idle: Connection[] = []
  let sent = 0
  let answered = 0

  function send(connection: Connection, due: number): void {
    const request = requests[(first + sent++) % requests.length]
    connection.due = due
    if (request) connection.socket.write(options.newKeys ? withNewKey(request) : request)
  }

  function use(connection: Connection): void {
    connection.missing = shape.length
    connection.socket.on('data', (chunk) => receive(connection, chunk))
    connection.socket.on('error', finished.reject)
    idle.push(connection)
  }

  function receive(connection: Connection, chunk: Buffer): void {
    if (connection.missing === shape.length && !shape.matches(chunk))
      finished.reject(new Error(`refused: ${chunk.toString()}`))
    connection.missing -= chunk.length
    if (connection.missing > 0) return
    if (connection.missing < 0)
      finished.reject(new Error(`an answer of another length: ${chunk.toString()}`))
    connection.missing = shape.length
    delays[answered++] = performance.now() - connection.due
    if (answered === count) finished.resolve()
    else if (perSecond === undefined && sent < count) send(connection, performance.now())
    else idle.push(connection)
  }

  // The delay of a request includes its wait for a connection.
  function sendDue(): void {
    const now = performance.now()
    while (sent < count && idle.length > 0) {
      const due = perSecond === undefined ? now : started + (sent * 1000) / perSecond
      const connection = due <= now ? idle.pop() : undefined
      if (!connection) return
      send(connection, due)
    }
  }

  const spin = (): void => {
    sendDue()
    if (answered < count) setImmediate(spin)
  }

  const cpu = cpuMs()
  const started = performance.now()
  connections.map(toConnection).forEach(use)
  spin()
  await finished.promise
  const seconds = (performance.now() - started) / 1000
  for (const socket of connections) socket.destroy()
  const [p50Ms, p99Ms] = [quantile([...delays], 0.5), quantile([...delays], 0.99)]
  return { seconds, cpuMs: cpuMs() - cpu, p50Ms, p99Ms }
}

const toConnection = (socket: Socket): Connection => ({ socket, due: 0, missing: 0 })

async function open(port: number): Promise<Socket> {
  const socket = connect({ host: '127.0.0.1', port, noDelay: true })
  await once(socket, 'connect')
  return socket
}

function withNewKey(template: Buffer): Buffer {
  const request = Buffer.from(template)
  request.write(newSecret(keyPrefix), request.indexOf(keyPrefix), 'latin1')
  return request
}

/** Returns the length of an answer, and a function that checks the expected status. */
async function shapeOf({ port, first = 0, status = 200 }: Run) {
  const socket = await open(port)
  let text = ''
  socket.write(requests[first % requests.length] ?? '')
  for await (const chunk of socket) {
    text += String(chunk)
    const end = text.indexOf('\r\n\r\n')
    const length = Number(/content-length: (\d+)/i.exec(text)?.[1])
    if (end >= 0 && text.length >= end + 4 + length) break
  }
  socket.destroy()
  const body = text.indexOf('\r\n\r\n') + 4
  // A decision has its status in the body, any other answer in the status line.
  const start = text.startsWith(decision, body) ? `${decision}${status}` : `HTTP/1.1 2`
  const at = text.startsWith(decision, body) ? body : 0
  const expected = Buffer.from(start)
  return {
    length: text.length,
    matches: (answer: Buffer) =>
      answer.length < at + expected.length ||
      answer.compare(expected, 0, expected.length, at, at + expected.length) === 0,
  }
}

function isRun(question: unknown): question is Run {
  return (
    typeof question === 'object' && question !== null && 'port' in question && 'count' in question
  )
}

answerQuestions({}, async (question) => {
  if (isRun(question)) return run(question)
  if (!Array.isArray(question)) throw new Error('neither requests nor a run')
  requests = question.map((text) => Buffer.from(String(text)))
  return {}
})
