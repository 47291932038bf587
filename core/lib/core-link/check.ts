import { setInterval } from 'node:timers'
import { DomainError } from '../../../proto/errors.ts'
import type { Log } from '../log.ts'
import { type ServiceRole, tokenSetting } from './address.ts'
import { tlsAdvice } from './tls.ts'

export interface CoreCheckOptions {
  readonly target: string
  readonly role: ServiceRole
  /** Calls core. Resolves to core's time, which is the database's; null if core does not return it. */
  readonly call: () => Promise<Date | null>
  readonly log: Pick<Log, 'info' | 'warn' | 'error'>
  /** Default is a minute. */
  readonly everyMs?: number
}

/**
 * Calls core now and every minute, and logs one line that names the setting and the cure when a
 * wrong setting of this process keeps it from using core, or when its clock is wrong. Logs again
 * only after a change. Returns a function that stops it.
 */
export function startCoreCheck(options: CoreCheckOptions): () => void {
  const { log, everyMs = 60_000 } = options
  let last = ''
  let isStopped = false

  async function check(): Promise<void> {
    const problem = await findProblem(options)
    const kind = problem.replace(/\d+/g, '')
    if (isStopped || kind === last) return
    if (problem === '') log.info('core answers, and accepts this process')
    // A core that is replaced does not answer for a moment.
    else if (problem.startsWith(unanswered)) log.warn(problem)
    else log.error(problem)
    last = kind
  }

  void check()
  const timer = setInterval(() => void check(), everyMs)
  timer.unref()
  return () => {
    isStopped = true
    clearInterval(timer)
  }
}

const unanswered = 'CORE_TARGET: no core answers'

/** Returns the problem; empty without one. */
async function findProblem({ target, role, call }: CoreCheckOptions): Promise<string> {
  const sentAt = Date.now()
  try {
    const at = await call()
    return at === null ? '' : (clockProblem(at, (sentAt + Date.now()) / 2) ?? '')
  } catch (error) {
    return explain(error, target, role)
  }
}

function explain(error: unknown, target: string, role: ServiceRole): string {
  const reason = error instanceof DomainError ? error.reason : ''
  const setting = tokenSetting(role)
  if (reason === 'SERVICE_TOKEN_INVALID' || reason === 'SERVICE_ROLE_FORBIDDEN')
    return `${setting} (or CORE_TOKEN): core at ${target} does not accept it for a ${role}; set the value that core has in ${setting} or CORE_TOKEN, and reload`
  const advice = tlsAdvice(textOf(error))
  if (advice !== undefined) return `CORE_TARGET: cannot call core at ${target}: ${advice}`
  if (reason === 'UNAVAILABLE') return `${unanswered} at ${target}; start it, or set its address`
  return `core at ${target} cannot answer: ${error instanceof Error ? error.message : 'unknown'}`
}

const depthMax = 5

/** The codes and messages of an error and its causes. */
function textOf(error: unknown, depth = 0): string {
  if (!(error instanceof Error) || depth > depthMax) return ''
  const code = 'code' in error && typeof error.code === 'string' ? error.code : ''
  return `${code} ${error.message} ${textOf(error.cause, depth + 1)}`
}

/** Tokens are refused, and leases end early or late, beyond some seconds. */
const clockToleranceMs = 30_000

/**
 * Returns one line if the clock of this machine differs from the database's by more than half a
 * minute.
 */
export function clockProblem(databaseTime: Date, ownMs: number): string | undefined {
  const seconds = Math.round((ownMs - databaseTime.getTime()) / 1_000)
  if (Math.abs(seconds) * 1_000 <= clockToleranceMs) return undefined
  const direction = seconds > 0 ? 'ahead of' : 'behind'
  return `the clock of this machine is ${Math.abs(seconds)} s ${direction} the database's: synchronise both by NTP`
}
