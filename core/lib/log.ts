import { DomainError } from '../../proto/errors.ts'
import { activeTracing } from './telemetry/tracing.ts'
import type { Now } from './time.ts'
import pino, { type DestinationStream, type Logger } from 'pino'

export type Log = Logger

const secretNames = new Set([
  'authorization',
  'cookie',
  'password',
  'secret',
  'token',
  'apiKey',
  'clientSecret',
  'credential',
])
const censoredDepth = 3

export interface LogOptions {
  readonly level: string
  readonly name: string
  /** File path; standard output if absent. */
  readonly file?: string | undefined
  /** Whether lines carry the ids of the current span. Default is false. */
  readonly isTraced?: boolean
}

/**
 * Structured logs, object first: `log.info({ appId, userId }, 'credit created')`. Each line has its
 * level by name and its time in ISO 8601. Members named like a credential are redacted, but callers
 * must not log credentials in the first place.
 */
export function createLog(
  { level, name, file, isTraced = false }: LogOptions,
  stream?: DestinationStream,
): Log {
  const options = {
    level,
    name,
    base: { name },
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: {
      level: (label: string) => ({ level: label }),
      log: (fields: Fields) => censored(fields, censoredDepth),
    },
    serializers: { err: fieldsOf },
    ...(isTraced && { mixin: () => activeTracing()?.logFields() ?? {} }),
    onChild: (child: Log) => void children.push(child),
  }
  // The parts of a process have a child each; requests have none.
  const children: Log[] = []
  const log = pino(options, stream ?? createLineBuffer(file ?? 1))
  childrenOf.set(log, children)
  return log
}

const childrenOf = new WeakMap<Log, readonly Log[]>()

/** Changes the level of a log made by `createLog`, and of its children, while it is in use. */
export function setLogLevel(log: Log, level: string): void {
  for (const each of [log, ...(childrenOf.get(log) ?? [])]) each.level = level
}

type Fields = Record<string, unknown>

// A thrown value that is not an Error is logged unchanged.
function fieldsOf(error: unknown): unknown {
  if (!(error instanceof Error)) return error
  const { stack, ...fields } = pino.stdSerializers.err(error)
  // An unavailable process is not a bug here, so the message with its causes is enough.
  const isOutage = error instanceof DomainError && error.reason === 'UNAVAILABLE'
  return censored(isOutage ? fields : { ...fields, stack }, censoredDepth)
}

/**
 * Returns the fields with the values of secret names redacted. Copies only objects that hold such a
 * name.
 */
function censored(fields: Fields, depth: number): Fields {
  let copy: Fields | null = null
  for (const name in fields) {
    const value = fields[name]
    const safe = secretNames.has(name)
      ? '[redacted]'
      : isRecord(value) && depth > 1
        ? censored(value, depth - 1)
        : value
    if (safe === value) continue
    copy ??= { ...fields }
    copy[name] = safe
  }
  return copy ?? fields
}

// Errors are excluded, because their serializer turns them into fields.
const isRecord = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Error)

/**
 * Buffers the lines of one turn of the event loop and writes them together. Otherwise a busy
 * process makes a system call per line. Writes the remaining lines when the process exits.
 */
function createLineBuffer(dest: string | number): DestinationStream & { flushSync(): void } {
  const file = pino.destination({ dest, sync: false, mkdir: true })
  let lines = ''
  const drain = (): string => {
    const text = lines
    lines = ''
    return text
  }
  const flush = (): void => void (lines !== '' && file.write(drain()))
  // Use a synchronous destination, because the asynchronous one may write after the process has
  // exited.
  const flushSync = (): void => {
    file.flushSync()
    if (lines !== '') pino.destination({ dest, sync: true }).write(drain())
  }
  process.once('exit', flushSync)
  return {
    flushSync,
    write: (line) => {
      if (lines === '') setImmediate(flush)
      lines += line
    },
  }
}

export const silentLog = (): Log => pino({ level: 'silent' })

/**
 * Returns true for the first use of a key, and again when `pauseMs` have passed since the last
 * true. Holds at most 1,000 keys.
 */
export function createThrottle(now: Now, pauseMs: number): (key: string) => boolean {
  const last = new Map<string, number>()

  return (key) => {
    const at = now().getTime()
    const before = last.get(key)
    if (before !== undefined && at >= before && at - before < pauseMs) return false
    if (last.size >= 1_000) last.clear()
    last.set(key, at)
    return true
  }
}
