import pino, { type DestinationStream, type Logger } from 'pino'

export type Log = Logger

const redacted = [
  'authorization', 'password', 'secret', 'token', 'apiKey', 'clientSecret', 'credential',
  '*.authorization', '*.password', '*.secret', '*.token', '*.apiKey', '*.clientSecret', '*.credential',
  'req.headers.authorization', 'req.headers.cookie',
]

export interface LogOptions {
  readonly level: string
  readonly name: string
  /** File path; standard output when absent. */
  readonly file?: string | undefined
}

/**
 * Structured logs, object first: `log.info({ appId, userId }, 'grant created')`. Credentials are redacted by
 * path and, besides, never passed.
 */
export function createLog({ level, name, file }: LogOptions, stream?: DestinationStream): Log {
  const options = { level, name, redact: { paths: redacted, censor: '[redacted]' }, base: { name } }
  return pino(options, stream ?? pino.destination({ dest: file ?? 1, sync: false, mkdir: true }))
}

export const silentLog = (): Log => pino({ level: 'silent' })
