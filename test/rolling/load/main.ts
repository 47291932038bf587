import {
  type Payer,
  acceptCall,
  eventOf,
  newSession,
  signCall,
} from '../../bench/gate/paid-call-session.ts'
import { type Figures, answerQuestions } from '../../bench/helper.ts'
import { quantile } from '../../bench/stats.ts'
import { type Delivery, type Stream, produceEvents, pushEvents } from './delivery.ts'
import { type CallCounts, type Signer, createSigner } from './signer.ts'

/** Signers in a process of their own, which call the service and report their tickets. */
export type LoadQuestion = Open | Start | Stop

/** Creates the signers. */
export interface Open {
  readonly kind: 'open'
  readonly port: number
  readonly secret: string
  readonly payers: readonly Payer[]
  /** Users of the signers that do not ask. */
  readonly reporters: readonly Payer[]
  readonly signers: number
  readonly sessions: number
  readonly connections: number
  /** Where signers that do not ask report their tickets; null to push them. */
  readonly stream: Stream | null
}

/** Begins to call, at a rate that does not depend on the answers. */
export interface Start {
  readonly kind: 'start'
  readonly callsPerSecond: number
  /** Tickets for each allowed call: one of its own, the others of sessions that do not ask. */
  readonly ticketsPerCall: number
}

/** Stops calling, delivers all events, and answers with the counts since the start. */
export interface Stop {
  readonly kind: 'stop'
}

const tickMs = 2
const counts: CallCounts = { allowed: 0, failures: new Map(), delays: [] }
/** Events of the signers that ask, and of the others. */
const asked: string[] = []
const unasked: string[] = []
let signers: Signer[] = []
let open: Open | null = null
let running: { readonly stop: () => Promise<Figures> } | null = null
let unaskedSessions: ReturnType<typeof newSession>[] = []

const addressOf = (index: number): string => `127.0.1.${index + 1}`

function prepare(options: Open): void {
  open = options
  const { payers, reporters, sessions, connections, port, secret } = options
  const each = Math.ceil(sessions / options.signers)
  signers = Array.from({ length: options.signers }, (_, i) =>
    createSigner(
      {
        port,
        secret,
        from: addressOf(i),
        payers: payers.slice(i).concat(payers.slice(0, i)),
        sessions: each,
        connections: Math.ceil(connections / options.signers),
      },
      counts,
      asked,
    ),
  )
  unaskedSessions = reporters.map((payer) => newSession(payer, secret))
}

function start({ callsPerSecond, ticketsPerCall }: Start): void {
  if (!open) throw new Error('no signers are open')
  const { port, secret, stream } = open
  counts.allowed = 0
  counts.failures.clear()
  counts.delays.length = 0
  const push = (waiting: string[]): Delivery =>
    pushEvents(waiting, { port, from: addressOf(0), secret })
  const deliveries = [push(asked), stream ? produceEvents(unasked, stream) : push(unasked)]
  const started = performance.now()
  let calls = 0
  let tickets = 0
  let late = 0
  const ticking = setInterval(() => {
    const seconds = (performance.now() - started) / 1000
    for (; calls < seconds * callsPerSecond; calls++) {
      if (callAny(calls, started + (calls * 1000) / callsPerSecond)) continue
      late++
      break
    }
    for (; tickets < counts.allowed * (ticketsPerCall - 1); tickets++) addUnasked(tickets)
  }, tickMs)
  running = {
    stop: async () => {
      clearInterval(ticking)
      const seconds = (performance.now() - started) / 1000
      while (!signers.every((signer) => signer.isIdle())) await pause(20)
      await Promise.all(deliveries.map((delivery) => delivery.stop()))
      return figuresOf({ seconds, calls, tickets, late, deliveries })
    },
  }
}

const pause = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms)
  })

/** Calls by the next signer with a free connection; returns false if there is none. */
function callAny(n: number, due: number): boolean {
  for (let i = 0; i < signers.length; i++)
    if (signers[(n + i) % signers.length]?.call(due)) return true
  return false
}

function addUnasked(n: number): void {
  const session = unaskedSessions[n % unaskedSessions.length]
  if (!session || !open) return
  signCall(session, open.secret)
  unasked.push(eventOf(acceptCall(session)))
}

interface Run {
  readonly seconds: number
  readonly calls: number
  readonly tickets: number
  readonly late: number
  readonly deliveries: readonly Delivery[]
}

function figuresOf({ seconds, calls, tickets, late, deliveries }: Run): Figures {
  const failures = [...counts.failures]
  for (const [failure, { count, first, last }] of failures)
    process.stdout.write(
      `${count} calls failed from ${timeOf(first)} to ${timeOf(last)}: ${failure}\n`,
    )
  return {
    seconds,
    calls,
    late,
    allowed: counts.allowed,
    failed: failures.reduce((sum, [, { count }]) => sum + count, 0),
    signed: counts.allowed + tickets,
    delivered: deliveries.reduce((sum, { counts: { delivered } }) => sum + delivered, 0),
    repeats: deliveries.reduce((sum, { counts: { repeats } }) => sum + repeats, 0),
    p50Ms: quantile(counts.delays, 0.5),
    p99Ms: quantile(counts.delays, 0.99),
    maxMs: quantile(counts.delays, 1),
  }
}

const timeOf = (at: Date): string => at.toISOString().slice(11, 23)

const isQuestion = (question: unknown): question is LoadQuestion =>
  typeof question === 'object' && question !== null && 'kind' in question

answerQuestions({}, async (question) => {
  if (!isQuestion(question)) throw new Error('not a question for signers')
  if (question.kind === 'open') prepare(question)
  if (question.kind === 'start') start(question)
  if (question.kind !== 'stop') return {}
  const figures = await running?.stop()
  running = null
  return figures ?? {}
})
