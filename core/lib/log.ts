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
  /** File path; standard output when absent. */
  readonly file?: string | undefined
}

/**
 * Structured logs, object first: `log.info({ appId, userId }, 'grant created')`. Members with the name of a credential
 * are censored and, besides, never passed.
 */
export function createLog({ level, name, file }: LogOptions, stream?: DestinationStream): Log {
  const options = {
    level,
    name,
    base: { name },
    formatters: { log: (fields: Fields) => censored(fields, censoredDepth) },
    serializers: { err: fieldsOf },
  }
  return pino(options, stream ?? inTurns(file ?? 1))
}

type Fields = Record<string, unknown>

// Something else may have been thrown, and is shown as it is.
const fieldsOf = (error: unknown): unknown =>
  error instanceof Error ? censored({ ...pino.stdSerializers.err(error) }, censoredDepth) : error

/** The same fields, with a copy in place of what has something under a secret's name. */
function censored(fields: Fields, depth: number): Fields {
  let copy: Fields | null = null
  for (const name in fields) {
    const value = fields[name]
    const shown = secretNames.has(name)
      ? '[redacted]'
      : isRecord(value) && depth > 1
        ? censored(value, depth - 1)
        : value
    if (shown === value) continue
    copy ??= { ...fields }
    copy[name] = shown
  }
  return copy ?? fields
}

// An error is made fields of by its serializer.
const isRecord = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Error)

/**
 * Hands on at once what is logged in one turn of the event loop: a busy process would otherwise make a system call for
 * every line. What is left when the process exits is written then.
 */
function inTurns(dest: string | number): DestinationStream & { flushSync(): void } {
  const file = pino.destination({ dest, sync: false, mkdir: true })
  let lines = ''
  const take = (): string => {
    const taken = lines
    lines = ''
    return taken
  }
  const handOn = (): void => void (lines !== '' && file.write(take()))
  // By a way of its own: what is handed to the other one is written later, when the process may be gone.
  const flushSync = (): void => {
    file.flushSync()
    if (lines !== '') pino.destination({ dest, sync: true }).write(take())
  }
  process.once('exit', flushSync)
  return {
    flushSync,
    write: (line) => {
      if (lines === '') setImmediate(handOn)
      lines += line
    },
  }
}

export const silentLog = (): Log => pino({ level: 'silent' })
