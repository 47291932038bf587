import {
  type Payer,
  type PaymentSession,
  acceptCall,
  eventOf,
  newSession,
  signCall,
} from '../../bench/gate/paid-call-session.ts'
import { type Connection, createConnection } from './connection.ts'

export interface SignerOptions {
  readonly port: number
  /** Its own address, by which a proxy chooses its sidecar. */
  readonly from: string
  readonly secret: string
  readonly payers: readonly Payer[]
  readonly sessions: number
  readonly connections: number
}

/** Answers of the service to the signers. */
export interface CallCounts {
  allowed: number
  /** Other answers and broken connections, by what they were. */
  readonly failures: Map<string, Failures>
  /** Milliseconds from the time when a call was due, of every call. */
  readonly delays: number[]
}

export interface Failures {
  count: number
  readonly first: Date
  last: Date
}

/** The most delays that are kept; later calls replace random earlier ones. */
const delaysMax = 200_000

/** A signer that asks for each call of its sessions, and reports each allowed call as an event. */
export function createSigner(options: SignerOptions, counts: CallCounts, events: string[]) {
  const { port, from, secret, payers } = options
  const open = (): Connection => createConnection(port, from)
  const idle = Array.from({ length: options.connections }, open)
  const all = [...idle]
  const waiting: PaymentSession[] = Array.from({ length: options.sessions }, (_, i) =>
    newSession(pick(payers, i), secret),
  )
  let answered = 0

  /** Sends the next call that was due at `due`. Returns false if all connections are in use. */
  function call(due: number): boolean {
    const connection = idle.pop()
    if (!connection) return false
    const session = waiting.shift()
    if (!session) {
      idle.push(connection)
      return false
    }
    void ask(connection, session, due)
    return true
  }

  async function ask(connection: Connection, session: PaymentSession, due: number): Promise<void> {
    const failure = await connection.send(signCall(session, secret)).then(
      ({ status, body }) => refusalOf(status, body),
      (error: unknown) => (error instanceof Error ? error.message : String(error)),
    )
    if (failure === null) accept(session)
    else countFailure(failure)
    keepDelay(performance.now() - due)
    waiting.push(session)
    idle.push(connection)
  }

  function accept(session: PaymentSession): void {
    session.authId = session.payer.authId
    events.push(eventOf(acceptCall(session)))
    counts.allowed++
  }

  function countFailure(failure: string): void {
    const now = new Date()
    const { count, first } = counts.failures.get(failure) ?? { count: 0, first: now }
    counts.failures.set(failure, { count: count + 1, first, last: now })
  }

  function keepDelay(ms: number): void {
    answered++
    if (counts.delays.length < delaysMax) counts.delays.push(ms)
    else if (Math.random() < delaysMax / answered)
      counts.delays[Math.floor(Math.random() * delaysMax)] = ms
  }

  return {
    call,
    isIdle: () => idle.length === all.length,
    close: () => all.forEach((connection) => connection.close()),
  }
}

export type Signer = ReturnType<typeof createSigner>

/** Returns why a call was not allowed; null if it was. */
function refusalOf(http: number, body: string): string | null {
  if (http !== 200) return `HTTP ${http}`
  if (body.startsWith('{"status":200')) return null
  const [, status = '?', reason = ''] = /"status":(\d+)(?:.*?"reason":"([^"]*))?/.exec(body) ?? []
  return `${status} ${reason}`.trim()
}

function pick<T>(list: readonly T[], index: number): T {
  const one = list[index % list.length]
  if (one === undefined) throw new Error('an empty list')
  return one
}
