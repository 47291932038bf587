import { once } from 'node:events'
import { type Socket, connect } from 'node:net'
import { answerQuestions, cpuMs } from './helper.ts'

/**
 * Sends prepared requests over raw keep-alive connections, one at a time on each. Every answer to
 * one kind of request is of the same length here, so that answers are counted by bytes and nothing
 * is parsed: this process must not be what is measured. It never sleeps while it runs: waking a
 * sleeping process on the same machine is part of the other's write, costs as much as a third of a
 * request there, and falls upon the slower server only, whose load sleeps. No real signer is woken
 * by the sidecar's own processor. It takes the requests once, then runs as often as asked.
 */
interface Run {
  readonly port: number
  readonly count: number
  readonly connections: number
}

let requests: Buffer[] = []
const success = '2'.charCodeAt(0)
/** Of a decision, which answers 200 whatever it decides; of any other answer it is the line's own. */
const decision = '{"status":'
const statusLine = 'HTTP/1.1 '

async function run({ port, count, connections }: Run) {
  const sockets = await Promise.all(
    Array.from({ length: Math.min(connections, count) }, () => open(port)),
  )
  const shape = await shapeOf(port)
  const finished = Promise.withResolvers<void>()
  let sent = 0
  let answered = 0

  function send(socket: Socket): void {
    const request = requests[sent++ % requests.length]
    if (request) socket.write(request)
  }

  function use(socket: Socket): void {
    let missing = shape.length
    socket.on('data', (chunk) => {
      if (
        missing === shape.length &&
        chunk.length > shape.status &&
        chunk[shape.status] !== success
      ) {
        finished.reject(new Error(`refused: ${chunk.toString()}`))
      }
      missing -= chunk.length
      if (missing > 0) return
      if (missing < 0)
        finished.reject(new Error(`an answer of another length: ${chunk.toString()}`))
      missing = shape.length
      answered++
      if (sent < count) send(socket)
      else if (answered === count) finished.resolve()
    })
    socket.on('error', finished.reject)
    send(socket)
  }

  const spin = (): void => void (answered < count && setImmediate(spin))

  const cpu = cpuMs()
  const started = performance.now()
  sockets.forEach(use)
  spin()
  await finished.promise
  const figures = { seconds: (performance.now() - started) / 1000, cpuMs: cpuMs() - cpu }
  for (const socket of sockets) socket.destroy()
  return figures
}

async function open(port: number): Promise<Socket> {
  const socket = connect({ host: '127.0.0.1', port, noDelay: true })
  await once(socket, 'connect')
  return socket
}

/** Where the status stands in an answer, and how long the answer is. */
async function shapeOf(port: number): Promise<{ length: number; status: number }> {
  const socket = await open(port)
  let text = ''
  socket.write(requests[0] ?? '')
  for await (const chunk of socket) {
    text += String(chunk)
    const end = text.indexOf('\r\n\r\n')
    const length = Number(/content-length: (\d+)/i.exec(text)?.[1])
    if (end >= 0 && text.length >= end + 4 + length) break
  }
  socket.destroy()
  const body = text.indexOf('\r\n\r\n') + 4
  const isDecision = text.startsWith(decision, body)
  return { length: text.length, status: isDecision ? body + decision.length : statusLine.length }
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
