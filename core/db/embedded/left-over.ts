import { execFile } from 'node:child_process'
import { readFile, readlink, realpath, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Log } from '../../lib/log.ts'
import { shutDown } from './process.ts'

const run = promisify(execFile)

/**
 * Stops the server that a killed process left running on `directory`. Removes its pid file even if
 * the pid now belongs to an unrelated process, because the file would keep PostgreSQL from
 * starting.
 */
export async function stopLeftOver(directory: string, log: Log): Promise<void> {
  const file = join(directory, 'postmaster.pid')
  const content = await readFile(file, 'utf8').catch(() => null)
  if (content === null) return
  const pid = Number(content.split('\n')[0])
  if (Number.isSafeInteger(pid) && pid > 1 && (await serves(pid, directory))) {
    log.warn({ pid, directory }, 'stopping a left-over embedded PostgreSQL')
    await shutDown((signal) => send(pid, signal), gone(pid))
    if (send(pid, 0)) throw new Error(`a left-over PostgreSQL, process ${pid}, does not stop`)
  }
  await rm(file, { force: true })
}

/**
 * Whether the process is PostgreSQL on `directory`, which is then its working directory. Without
 * /proc, compares only the process name.
 */
export async function serves(pid: number, directory: string): Promise<boolean> {
  if (process.platform === 'linux') {
    const cwd = await readlink(`/proc/${pid}/cwd`).catch(() => null)
    return cwd === (await realpath(directory))
  }
  const listed = await run('ps', ['-p', String(pid), '-o', 'comm='], { timeout: 5_000 }).catch(
    () => ({ stdout: '' }),
  )
  return listed.stdout.trim().endsWith('postgres')
}

function send(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, signal)
  } catch {
    return false
  }
}

/** Waits until the process has ended, at most 25 s. Polls, because only a parent is notified. */
async function gone(pid: number): Promise<void> {
  for (let waited = 0; waited < 25_000 && send(pid, 0); waited += 20) {
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}
