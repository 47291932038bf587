import { link, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'

/**
 * Directories that this process has locked. Its own pid in a lock file does not prove the lock,
 * because pids are reused.
 */
const held = new Set<string>()

/**
 * Claims `directory` for this process until the returned function is called or the process ends. If
 * another living process holds it, throws an error with the pid and the directory's setting.
 */
export async function lockDirectory(
  directory: string,
  setting: string,
): Promise<() => Promise<void>> {
  const inUse = (pid: number): Error =>
    new Error(`${directory} is in use by process ${pid}: stop it, or set another ${setting}`)
  if (held.has(directory)) throw inUse(process.pid)
  held.add(directory)
  const file = join(directory, 'tollgate.pid')
  try {
    await claim(file, inUse)
  } catch (error) {
    held.delete(directory)
    throw error
  }
  return async () => {
    await rm(file, { force: true })
    held.delete(directory)
  }
}

async function claim(file: string, inUse: (pid: number) => Error): Promise<void> {
  const own = `${file}.${process.pid}`
  await writeFile(own, `${process.pid} ${await startedAt(process.pid)}\n`)
  try {
    for (let attempt = 0; attempt < 5; attempt++) {
      // link() is atomic and succeeds in only one process.
      if (await link(own, file).then(() => true, ignoring('EEXIST'))) return
      const content = await readFile(file, 'utf8').catch(() => '')
      const holder = await livingHolder(content)
      if (holder !== null) throw inUse(holder)
      await removeStale(file, content)
    }
    throw new Error(`cannot lock ${dirname(file)}: other processes are starting on it`)
  } finally {
    await rm(own, { force: true })
  }
}

/**
 * Renames the stale file before removing it. If two processes saw the same stale file, the second
 * may rename the first one's new lock; it then restores that lock.
 */
async function removeStale(file: string, stale: string): Promise<void> {
  const aside = `${file}.stale.${process.pid}`
  if (!(await rename(file, aside).then(() => true, ignoring('ENOENT')))) return
  const moved = await readFile(aside, 'utf8')
  if (moved !== stale) await link(aside, file).catch(ignoring('EEXIST'))
  await rm(aside, { force: true })
}

async function livingHolder(content: string): Promise<number | null> {
  const [pid = 0, started = ''] = content.trim().split(' ')
  const holder = Number(pid)
  if (!Number.isSafeInteger(holder) || holder <= 0 || holder === process.pid) return null
  // After a restart, above all of a container, another process can have the same pid.
  return alive(holder) && (await startedAt(holder)) === started ? holder : null
}

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM'
  }
}

/**
 * The start time of a process, in kernel ticks since boot (proc(5), field 22); '-' without /proc.
 */
async function startedAt(pid: number): Promise<string> {
  const line = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
  // The command name is in parentheses, and may itself contain spaces and parentheses.
  return line.slice(line.lastIndexOf(')') + 2).split(' ')[19] ?? '-'
}

function ignoring(code: string): (error: unknown) => false {
  return (error) => {
    if (error instanceof Error && 'code' in error && error.code === code) return false
    throw error
  }
}
