import { once } from 'node:events'
import { renameSync, statSync } from 'node:fs'
import pino from 'pino'
import { type Log, type LogOptions, createLog } from '../../core/lib/log.ts'

const sizeMax = 64 * 1024 * 1024
const checkEveryMs = 60_000

export interface LogFile {
  readonly log: Log
  readonly path: string
  /** Writes buffered lines to the file. */
  flush(): void
  /** Closes the file. Later lines, from a part that did not stop in time, are lost. */
  close(): void
}

/**
 * Opens the log as a file of bounded size: at 64 MiB it is renamed to `….1`, which replaces the
 * previous one. Rejects with one clear line when it cannot be opened.
 */
export async function openLogFile(
  path: string,
  options: Pick<LogOptions, 'level' | 'isTraced'>,
): Promise<LogFile> {
  try {
    rotate(path)
    // Use synchronous writes: a flush at the end would overtake a line that the thread pool is
    // still writing.
    const destination = pino.destination({ dest: path, sync: true, mkdir: true, mode: 0o600 })
    // Wait, because flushing a destination that is not ready throws, which would hide an early
    // failure.
    await once(destination, 'ready')
    const timer = setInterval(() => {
      if (rotate(path)) destination.reopen()
    }, checkEveryMs)
    timer.unref()
    const lines = createLineBuffer((text) => destination.write(text))
    const flush = (): void => {
      lines.flush()
      destination.flushSync()
    }
    let isOpen = true
    const write = (line: string): void => void (isOpen && lines.write(line))
    process.once('exit', () => isOpen && flush())
    const close = (): void => {
      isOpen = false
      clearInterval(timer)
      flush()
      destination.end()
    }
    return { log: createLog({ ...options, name: 'tollgate' }, { write }), path, flush, close }
  } catch (error) {
    const why = error instanceof Error && 'code' in error ? String(error.code) : 'unknown error'
    throw new Error(`cannot write the log ${path} (${why})`, { cause: error })
  }
}

/**
 * Writes all lines of one turn of the event loop together, because a separate write costs a request
 * as much as its answer.
 */
function createLineBuffer(writeText: (text: string) => void) {
  let lines = ''
  const flush = (): void => {
    if (lines === '') return
    const text = lines
    lines = ''
    writeText(text)
  }
  const write = (line: string): void => {
    if (lines === '') setImmediate(flush)
    lines += line
  }
  return { write, flush }
}

function rotate(path: string): boolean {
  const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0
  if (size < sizeMax) return false
  renameSync(path, `${path}.1`)
  return true
}
