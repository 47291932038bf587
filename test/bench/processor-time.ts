import { readFileSync, readdirSync } from 'node:fs'

// What `getconf CLK_TCK` answers on every Linux that Node runs on.
const ticksPerSecond = 100

interface ProcessStat {
  readonly parent: number
  readonly ownMs: number
  /** Of children that have ended. */
  readonly childrenMs: number
}

/** Figures of /proc (proc(5)); null when the process has ended. */
function statOf(pid: number): ProcessStat | null {
  const text = readText(`/proc/${pid}/stat`)
  if (text === null) return null
  // The second field is the program's name, which may contain anything.
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

/** Processor time of a process so far, in milliseconds, of all its threads. */
export const processMs = (pid: number): number => statOf(pid)?.ownMs ?? 0

export const parentOf = (pid: number): number => statOf(pid)?.parent ?? 0

/** Processor time of a PostgreSQL server by kind of process, in milliseconds, without the backend `except`. */
export function postgresMs(postmaster: number, except: number): ReadonlyMap<string, number> {
  const byKind = new Map<string, number>()
  const add = (kind: string, ms: number): void =>
    void byKind.set(kind, (byKind.get(kind) ?? 0) + ms)
  const own = statOf(postmaster)
  if (!own) throw new Error('PostgreSQL does not run on this machine')
  add('postmaster', own.ownMs)
  // What has ended was mostly a backend, whose time must not seem to be given back.
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
