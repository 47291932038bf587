import { readFileSync, readdirSync } from 'node:fs'

// `getconf CLK_TCK` is 100 on every Linux that Node supports.
const ticksPerSecond = 100

interface ProcessStat {
  readonly parent: number
  readonly ownMs: number
  /** Time of children that have exited. */
  readonly childrenMs: number
}

/** Reads figures from /proc (proc(5)); null if the process has exited. */
function statOf(pid: number): ProcessStat | null {
  const text = readText(`/proc/${pid}/stat`)
  if (text === null) return null
  // The second field is the program's name, which may contain any character.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  const ms = (field: number): number => (Number(fields[field]) * 1000) / ticksPerSecond
  return { parent: Number(fields[1]), ownMs: ms(11) + ms(12), childrenMs: ms(13) + ms(14) }
}

function readText(path: string): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return null
  }
}

/** Returns the processor time of a process so far, over all threads, in milliseconds. */
export const processMs = (pid: number): number => statOf(pid)?.ownMs ?? 0

export const parentOf = (pid: number): number => statOf(pid)?.parent ?? 0

/**
 * Returns the processor time of a PostgreSQL server by kind of process, in milliseconds, without
 * the backend `except`.
 */
export function postgresMs(postmaster: number, except: number): ReadonlyMap<string, number> {
  const byKind = new Map<string, number>()
  const add = (kind: string, ms: number): void =>
    void byKind.set(kind, (byKind.get(kind) ?? 0) + ms)
  const own = statOf(postmaster)
  if (!own) throw new Error('PostgreSQL does not run on this machine')
  add('postmaster', own.ownMs)
  // Processes that have exited were mostly backends; without their time the sum would decrease.
  add('backends', own.childrenMs)
  for (const pid of readdirSync('/proc').map(Number)) {
    const stat = pid > 0 && pid !== except ? statOf(pid) : null
    if (stat?.parent === postmaster) add(kindOf(pid), stat.ownMs)
  }
  return byKind
}

const workers =
  /^postgres: (checkpointer|background writer|walwriter|autovacuum \w+|logical replication launcher|io worker)/

const kindOf = (pid: number): string =>
  workers.exec(readText(`/proc/${pid}/cmdline`) ?? '')?.[1] ?? 'backends'
