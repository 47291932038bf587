import pino, { type DestinationStream, type Logger } from 'pino'

export type Log = Logger

const secretNames = new Set([
  'authorization', 'cookie', 'password', 'secret', 'token', 'apiKey', 'clientSecret', 'credential',
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
    level, name, base: { name }, formatters: { log: (fields: Fields) => censored(fields, censoredDepth) },
    serializers: { err: (error: Error) => censored({ ...pino.stdSerializers.err(error) }, censoredDepth) },
  }
  return pino(options, stream ?? inTurns(pino.destination({ dest: file ?? 1, sync: false, mkdir: true })))
}

type Fields = Record<string, unknown>

/** The same fields, with a copy in place of what has something under a secret's name. */
function censored(fields: Fields, depth: number): Fields {
  let copy: Fields | null = null
  for (const name in fields) {
    const value = fields[name]
    const shown = secretNames.has(name) ? '[redacted]' : isRecord(value) && depth > 1 ? censored(value, depth - 1) : value
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
function inTurns(file: ReturnType<typeof pino.destination>): DestinationStream & { flushSync(): void } {
  let lines = ''
  const handOn = (): void => {
    const waiting = lines
    lines = ''
    if (waiting !== '') file.write(waiting)
  }
  const flushSync = (): void => {
    handOn()
    file.flushSync()
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
