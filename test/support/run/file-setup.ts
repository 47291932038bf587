import pino, { type DestinationStream } from 'pino'
import { afterAll, vi } from 'vitest'
import type * as log from '../../../core/lib/log.ts'
import { keepLog } from './secrecy.ts'

/**
 * In every test file, keeps a copy of all log lines, also of silent loggers and at the lowest
 * level. The loggers are the real ones, with their redaction.
 */
vi.mock('../../../core/lib/log.ts', async (load) => {
  const actual = await load<typeof log>()
  return {
    ...actual,
    createLog: (options: log.LogOptions, stream?: DestinationStream) => {
      const own = stream ?? pino.destination({ dest: options.file ?? 1, sync: false, mkdir: true })
      return actual.createLog(options, {
        write: (line: string) => {
          own.write(line)
          keepLog(line)
        },
      })
    },
    silentLog: () => actual.createLog({ level: 'trace', name: 'silent' }, { write: keepLog }),
  }
})

// Files share a process, so each gives back what it changed.
afterAll(() => {
  vi.useRealTimers()
  vi.unstubAllEnvs()
  vi.restoreAllMocks()
})
