import { once } from 'node:events'
import { Agent, request as httpRequest } from 'node:http'
import { type Socket, connect } from 'node:net'
import { setPriority } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Figures, answerQuestions, cpuMs } from '../helper.ts'
import { quantile } from '../stats.ts'
import {
  type Payer,
  type PaymentSession,
  type SignedCall,
  acceptCall,
  eventOf,
  newSession,
  signCall,
} from './paid-call-session.ts'

/**
 * Sends the calls of continuing payment sessions over raw keep-alive connections. Each call has the
 * state of the previous answer, and each allowed call produces a ticket, which is pushed as a
 * signer pushes it. A session has one open call, like its client. Unlike load.ts this process
 * sleeps between calls, because core and the database need its processor. It raises its priority,
 * if permitted, so that its own waits are not measured.
 */
export type LoadQuestion = OpenSessions | CallRun | PushRun

/** Opens new sessions, which replace those with the same name. */
interface OpenSessions {
  readonly open: string
  readonly secret: string
  readonly payers: readonly Payer[]
  readonly count: number
  /** Number of the first call. Default is 0. */
  readonly sequence?: number
}

interface CallRun {
  readonly calls: number
  /** Name of the sessions. */
  readonly of: string
  /**
   * Ports of the servers. Connections are spread over them, and each session uses the next server
   * for each call.
   */
  readonly ports: readonly number[]
  readonly connections: number
  /**
   * Calls per second, independent of the answers. By default each answer triggers the next call.
   */
  readonly perSecond?: number
  /** Whether each client sends the same state again. */
  readonly repeats?: boolean
  /** Use of the tickets: pushed while calls continue, kept for a later push, or forgotten. */
  readonly tickets: 'pushed' | 'kept' | 'forgotten'
}

/** Pushes the kept tickets. */
interface PushRun {
  readonly push: number
}

const tickMs = 1
const pushEveryMs = 150
const maxEnvelopes = 1_000
const maxPushBytes = 512 * 1024
const retryMs = 100

let secret = ''
const sessionsByName = new Map<string, PaymentSession[]>()
/** Tickets to push. A kept call becomes an event when it is pushed, which saves time now. */
const signed: (SignedCall | string)[] = []
const agent = new Agent({ keepAlive: true })

/** Core's answers to pushes; `repeats` counts repeated pushes. */
type PushCounts = Record<'tickets' | 'duplicates' | 'quarantined' | 'ignored' | 'repeats', number>
const noPushes = (): PushCounts => ({
  tickets: 0,
  duplicates: 0,
  quarantined: 0,
  ignored: 0,
  repeats: 0,
})

interface Connection {
  readonly socket: Socket
  readonly lane: Lane
  session: PaymentSession | null
  /** Time when its request was due, by performance.now(). */
  due: number
  received: string
}

/** One server: its idle connections, and the sessions that make their next call there. */
interface Lane {
  readonly idle: Connection[]
  waiting: PaymentSession[]
  /** Number of entries of `waiting` that have been taken. */
  taken: number
}

/**
 * Takes the session that has waited longest and a connection for its call; null if either is
 * missing.
 */
function nextCall(lane: Lane): { session: PaymentSession; connection: Connection } | null {
  const session = lane.waiting[lane.taken]
  const connection = session && lane.idle.pop()
  if (!connection) return null
  lane.taken++
  if (lane.taken === 10_000) {
    lane.waiting = lane.waiting.slice(lane.taken)
    lane.taken = 0
  }
  return { session, connection }
}

async function run(options: CallRun): Promise<Figures> {
  const { calls, ports, perSecond, repeats = false, tickets } = options
  const sessions = sessionsByName.get(options.of) ?? []
  const lanes: Lane[] = ports.map(() => ({ idle: [], waiting: [], taken: 0 }))
  const laneAt = (n: number): Lane => {
    const lane = lanes[n % lanes.length]
    if (!lane) throw new Error('a run without a server')
    return lane
  }
  for (const [i, session] of sessions.entries()) laneAt(i).waiting.push(session)
  const sockets = await Promise.all(
    Array.from({ length: Math.min(options.connections, calls) }, (_, i) =>
      open(ports[i % ports.length] ?? 0),
    ),
  )
  const finished = Promise.withResolvers<void>()
  const delays = new Float64Array(calls)
  const statuses = new Map<number, number>()
  /** Due times of calls that wait for a connection. */
  const late: number[] = []
  let sent = 0
  let answered = 0
  let feeWei = 0

  /** Returns false if no session or no connection is free. */
  function send(lane: Lane, due: number): boolean {
    const call = nextCall(lane)
    if (!call) return false
    sent++
    Object.assign(call.connection, { session: call.session, due })
    call.connection.socket.write(signCall(call.session, secret))
    return true
  }

  function receive(connection: Connection, chunk: Buffer): void {
    const text = connection.received + chunk.toString('latin1')
    const status = statusOf(text)
    if (status === null) {
      connection.received = text
      return
    }
    connection.received = ''
    finish(connection, status)
  }

  function finish(connection: Connection, status: number): void {
    const { session } = connection
    if (!session) return finished.reject(new Error('an answer without a request'))
    delays[answered++] = performance.now() - connection.due
    statuses.set(status, (statuses.get(status) ?? 0) + 1)
    if (status === 200) accept(session)
    connection.lane.idle.push(connection)
    const next = laneAt(lanes.indexOf(connection.lane) + 1)
    next.waiting.push(session)
    if (answered === calls) finished.resolve()
    else if (perSecond !== undefined) sendLate()
    else for (const lane of lanes) sendAll(lane)
  }

  function sendAll(lane: Lane): void {
    while (sent < calls && send(lane, performance.now()));
  }

  function accept(session: PaymentSession): void {
    session.authId = session.payer.authId
    const { last } = session
    const call = acceptCall(session)
    if (repeats) {
      session.sequence--
      session.last = last
    }
    if (tickets === 'forgotten') return
    signed.push(tickets === 'kept' ? call : eventOf(call))
    feeWei += call.feeWei
  }

  // The delay of a request includes its wait for a connection.
  function sendDue(): void {
    const rate = perSecond ?? 0
    const due = Math.min(calls, ((performance.now() - started) * rate) / 1000)
    for (let n = late.length + sent; n < due; n++) late.push(started + (n * 1000) / rate)
    sendLate()
  }

  function sendLate(): void {
    for (let due = late[0]; due !== undefined && send(laneAt(sent), due); due = late[0])
      late.shift()
  }

  const pushing = new AbortController()
  const pushed =
    tickets === 'pushed' ? pushWhile(ports[0] ?? 0, pushing.signal) : Promise.resolve(noPushes())
  const cpu = cpuMs()
  const started = performance.now()
  for (const [i, socket] of sockets.entries()) {
    const lane = laneAt(i)
    const connection: Connection = { socket, lane, session: null, due: 0, received: '' }
    socket.on('data', (chunk) => receive(connection, chunk))
    socket.on('error', finished.reject)
    socket.on('close', () => finished.reject(new Error('the server closed a connection')))
    lane.idle.push(connection)
  }
  const ticking = perSecond === undefined ? undefined : setInterval(sendDue, tickMs)
  if (!ticking) lanes.forEach(sendAll)
  await finished.promise
  clearInterval(ticking)
  const seconds = (performance.now() - started) / 1000
  const used = cpuMs() - cpu
  for (const socket of sockets) socket.removeAllListeners('close').destroy()
  pushing.abort()
  const { tickets: booked, ...counts } = await pushed
  return {
    seconds,
    cpuMs: used,
    p50Ms: quantile([...delays], 0.5),
    p99Ms: quantile([...delays], 0.99),
    maxMs: quantile([...delays], 1),
    allowed: statuses.get(200) ?? 0,
    feeWei,
    booked,
    ...counts,
    ...Object.fromEntries([...statuses].map(([status, count]) => [`status${status}`, count])),
  }
}

const statusMember = '"status":'

/**
 * Returns the status of the decision, or else of the HTTP answer; null if the answer is incomplete.
 */
function statusOf(text: string): number | null {
  const end = text.indexOf('\r\n\r\n')
  if (end < 0) return null
  const name = text.search(/content-length: /i)
  if (name < 0 || name > end) throw new Error(`an answer without a length: ${text}`)
  if (text.length < end + 4 + Number.parseInt(text.slice(name + 16), 10)) return null
  const http = Number(text.slice(9, 12))
  const member = text.indexOf(statusMember, end)
  return http !== 200 || member < 0 ? http : Number.parseInt(text.slice(member + 9), 10)
}

async function open(port: number): Promise<Socket> {
  const socket = connect({ host: '127.0.0.1', port, noDelay: true })
  await once(socket, 'connect')
  return socket
}

/** Pushes waiting tickets at an even pace until `signal` aborts, then the rest. */
async function pushWhile(port: number, signal: AbortSignal): Promise<PushCounts> {
  const counts = noPushes()
  while (!signal.aborted || signed.length > 0) {
    await sleep(pushEveryMs, undefined, { signal }).catch(() => undefined)
    for (let last = signed.length; last > 0;) last -= await pushSome(port, counts)
  }
  return counts
}

/**
 * Pushes the first tickets in one request, and repeats it until it is accepted. Returns their
 * number.
 */
async function pushSome(port: number, counts: PushCounts): Promise<number> {
  const batch: string[] = []
  for (let bytes = 0; batch.length < maxEnvelopes && bytes < maxPushBytes;) {
    const call = signed[batch.length]
    if (!call) break
    const event = typeof call === 'string' ? call : eventOf(call)
    bytes += event.length
    batch.push(event)
  }
  signed.splice(0, batch.length)
  const body = `${batch.join('\n')}\n`
  for (;;) {
    const answer = await post(port, body)
    if (answer.status === 202) {
      const figures: Record<string, number> = JSON.parse(answer.text)
      for (const name of ['tickets', 'duplicates', 'quarantined', 'ignored'] as const)
        counts[name] += figures[name] ?? 0
      return batch.length
    }
    if (answer.status < 500) throw new Error(`a push was refused: ${answer.status} ${answer.text}`)
    counts.repeats++
    await sleep(retryMs)
  }
}

async function post(port: number, body: string): Promise<{ status: number; text: string }> {
  const request = httpRequest({
    agent,
    port,
    host: '127.0.0.1',
    path: '/events',
    method: 'POST',
    headers: {
      authorization: `Bearer ${secret}`,
      'content-type': 'application/x-ndjson',
      'content-length': Buffer.byteLength(body),
    },
  })
  request.end(body)
  const [response] = await once(request, 'response')
  let text = ''
  for await (const chunk of response) text += String(chunk)
  return { status: response.statusCode, text }
}

async function push({ push: port }: PushRun): Promise<Figures> {
  const started = performance.now()
  const counts = noPushes()
  while (signed.length > 0) await pushSome(port, counts)
  const { tickets: booked, ...others } = counts
  return { seconds: (performance.now() - started) / 1000, booked, ...others }
}

function openSessions({ open: name, secret: sent, payers, count, sequence }: OpenSessions): void {
  secret = sent
  sessionsByName.set(
    name,
    Array.from({ length: count }, (_, i) => {
      const payer = payers[i % payers.length]
      if (!payer) throw new Error('sessions without payers')
      return newSession(payer, sent, sequence)
    }),
  )
}

const isObject = (question: unknown): question is object =>
  typeof question === 'object' && question !== null
const isOpen = (question: unknown): question is OpenSessions =>
  isObject(question) && 'open' in question
const isRun = (question: unknown): question is CallRun => isObject(question) && 'calls' in question
const isPush = (question: unknown): question is PushRun => isObject(question) && 'push' in question

try {
  setPriority(-10)
} catch {
  // Needs superuser rights.
}
answerQuestions({}, async (question) => {
  if (isRun(question)) return run(question)
  if (isPush(question)) return push(question)
  if (!isOpen(question)) throw new Error('neither sessions nor a run')
  openSessions(question)
  return {}
})
