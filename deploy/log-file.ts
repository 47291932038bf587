import { renameSync, statSync } from 'node:fs'
import pino from 'pino'
import { type Log, createLog } from '../core/lib/log.ts'

const sizeMax = 64 * 1024 * 1024
const checkEveryMs = 60_000

/** The log as a file of bounded size: at 64 MiB it becomes `….1`, which replaces the one before. */
export function openLogFile(path: string, level = 'info'): { log: Log; path: string; close(): void } {
  rotate(path)
  const destination = pino.destination({ dest: path, sync: false, mkdir: true, mode: 0o600 })
  const timer = setInterval(() => {
    if (rotate(path)) destination.reopen()
  }, checkEveryMs)
  timer.unref()
  return {
    log: createLog({ level, name: 'tollgate' }, destination),
    path,
    close: () => {
      clearInterval(timer)
      destination.flushSync()
      destination.end()
    },
  }
}

function rotate(path: string): boolean {
  const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0
  if (size < sizeMax) return false
  renameSync(path, `${path}.1`)
  return true
}
