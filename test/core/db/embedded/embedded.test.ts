import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, readdir, readlink, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client } from 'pg'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { startEmbeddedPostgres } from '../../../../core/db/embedded/embedded.ts'

const module = new URL('../../../../core/db/embedded/embedded.ts', import.meta.url).href
const children: ChildProcess[] = []
let root: string
let dataDir: string

beforeEach(async () => {
  // The directory has mode 0700, but root's PostgreSQL, which runs as another user, must be able to
  // enter it.
  root = await mkdtemp(join(tmpdir(), 'tollgate-embedded-'))
  dataDir = join(root, 'postgres')
})

afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL')
  await vi.waitUntil(async () => (await serverPid()) === null, 10_000)
  await rm(root, { recursive: true, force: true })
})

/**
 * Starts PostgreSQL in another process, which then runs the code `after`. Resolves with its URL.
 */
async function startElsewhere(after: string): Promise<{ url: string; child: ChildProcess }> {
  const code = `
    const { startEmbeddedPostgres } = await import(${JSON.stringify(module)})
    const { url, stop } = await startEmbeddedPostgres({ dataDir: ${JSON.stringify(dataDir)} })
    process.stdout.write(url)
    ${after}`
  const child = spawn(process.execPath, ['--input-type=module', '-e', code], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  children.push(child)
  const [url] = await once(child.stdout, 'data')
  return { url: String(url), child }
}

async function query(url: string, text: string): Promise<unknown[]> {
  const client = new Client({ connectionString: url })
  await client.connect()
  try {
    return (await client.query(text)).rows
  } finally {
    await client.end()
  }
}

/** Ids of processes with this name that work in the cluster's directory. */
async function processes(name: string): Promise<number[]> {
  const found: number[] = []
  for (const pid of await readdir('/proc')) {
    const cwd = await readlink(`/proc/${pid}/cwd`).catch(() => '')
    const comm = await readFile(`/proc/${pid}/comm`, 'utf8').catch(() => '')
    if (cwd === join(dataDir, 'cluster') && comm.trim() === name) found.push(Number(pid))
  }
  return found
}

async function serverPid(): Promise<number | null> {
  const content = await readFile(join(dataDir, 'cluster', 'postmaster.pid'), 'utf8').catch(() => '')
  return Number(content.split('\n')[0]) || null
}

describe('startEmbeddedPostgres', () => {
  it('keeps its data over a restart, and stops once if stop is called several times', async () => {
    const first = await startEmbeddedPostgres({ dataDir })
    await query(first.url, 'create table kept as select 42 as answer')
    await Promise.all([first.stop(), first.stop()])
    const second = await startEmbeddedPostgres({ dataDir })
    expect(await query(second.url, 'select answer from kept')).toEqual([{ answer: 42 }])
    await second.stop()
    await second.stop()
    await expect(query(second.url, 'select 1')).rejects.toThrow('ECONNREFUSED')
  })

  it('gives the service a role that owns only its database', async () => {
    const { url, stop } = await startEmbeddedPostgres({ dataDir })
    const [role] = await query(
      url,
      `select rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls
       from pg_roles where rolname = current_user`,
    )
    expect(Object.values(role ?? {})).toEqual([false, false, false, false, false])
    await expect(query(url, 'create database more')).rejects.toThrow('permission denied')
    await expect(query(url, `copy (select 1) to program 'true'`)).rejects.toThrow('permission')
    await expect(query(url, `select pg_read_file('/etc/passwd')`)).rejects.toThrow('permission')
    await expect(query(url, 'set session_replication_role = replica')).rejects.toThrow('permission')
    await stop()
  })

  it('transfers objects that earlier versions created as the superuser', async () => {
    const first = await startEmbeddedPostgres({ dataDir })
    await query(
      first.superuserUrl,
      'create table kept (id serial, n int generated always as identity)',
    )
    await query(first.superuserUrl, 'create view shown as select * from kept')
    await query(first.superuserUrl, `create function one() returns int language sql as 'select 1'`)
    await query(first.superuserUrl, 'create sequence alone')
    await query(first.superuserUrl, 'create domain positive as int check (value > 0)')
    await first.stop()
    const { url, stop } = await startEmbeddedPostgres({ dataDir })
    await query(url, 'drop view shown')
    await query(url, 'alter table kept add column more positive')
    await query(url, `create or replace function one() returns int language sql as 'select 2'`)
    await query(url, 'drop sequence alone')
    expect(await query(url, 'select one()')).toEqual([{ one: 2 }])
    await stop()
  })

  it('enables fsync, and rejects clients without the password', async () => {
    const { url, stop } = await startEmbeddedPostgres({ dataDir })
    expect(await query(url, 'show fsync')).toEqual([{ fsync: 'on' }])
    const stranger = Object.assign(new URL(url), { password: 'guess' })
    await expect(query(stranger.href, 'select 1')).rejects.toThrow('password authentication failed')
    await stop()
  })

  it('ends when its process is killed, and keeps acknowledged data', async () => {
    const { url, child } = await startElsewhere('setInterval(() => {}, 1000)')
    await query(url, 'create table kept as select 42 as answer')
    child.kill('SIGKILL')
    await vi.waitFor(async () => expect(await processes('postgres')).toEqual([]), 10_000)
    const next = await startEmbeddedPostgres({ dataDir })
    expect(await query(next.url, 'select answer from kept')).toEqual([{ answer: 42 }])
    await next.stop()
  })

  it('ends when its process exits without stopping it', async () => {
    const { child } = await startElsewhere('process.exit(3)')
    await once(child, 'exit')
    await vi.waitFor(async () => expect(await processes('postgres')).toEqual([]), 10_000)
  })

  it('stops the server that a killed process left running', async () => {
    const { url, child } = await startElsewhere('setInterval(() => {}, 1000)')
    await query(url, 'create table kept as select 42 as answer')
    const leftOver = await serverPid()
    for (const watcher of await processes('sh')) process.kill(watcher, 'SIGKILL')
    child.kill('SIGKILL')
    await once(child, 'exit')
    expect(await query(url, 'select 1 as alive')).toEqual([{ alive: 1 }])
    const next = await startEmbeddedPostgres({ dataDir })
    expect(await serverPid()).not.toBe(leftOver)
    expect(await query(next.url, 'select answer from kept')).toEqual([{ answer: 42 }])
    await next.stop()
  })

  it('rejects a second process on its directory and names the first', async () => {
    const { url, child } = await startElsewhere('setInterval(() => {}, 1000)')
    await expect(startEmbeddedPostgres({ dataDir })).rejects.toThrow(
      `${dataDir} is in use by process ${child.pid}`,
    )
    expect(await query(url, 'select 1 as alive')).toEqual([{ alive: 1 }])
  })

  it('rejects a second start in the same process', async () => {
    const { stop } = await startEmbeddedPostgres({ dataDir })
    await expect(startEmbeddedPostgres({ dataDir })).rejects.toThrow(`process ${process.pid}`)
    await stop()
  })

  it('ignores recorded pids that now belong to unrelated processes', async () => {
    const first = await startEmbeddedPostgres({ dataDir })
    await first.stop()
    await writeFile(join(dataDir, 'tollgate.pid'), `${process.ppid} 1\n`)
    await writeFile(join(dataDir, 'cluster', 'postmaster.pid'), `${process.ppid}\n`)
    const second = await startEmbeddedPostgres({ dataDir })
    expect(await query(second.url, 'select 1 as alive')).toEqual([{ alive: 1 }])
    await second.stop()
  })

  it('reports that the server ended before it was stopped', async () => {
    const ended = Promise.withResolvers<string>()
    const { stop } = await startEmbeddedPostgres({ dataDir, onUnexpectedExit: ended.resolve })
    process.kill((await serverPid()) ?? 0, 'SIGQUIT')
    expect(await ended.promise).toMatch('exited with')
    await stop()
  })

  it('explains in one line why it cannot start', async () => {
    const settings = { shared_buffers: 'none' }
    const failure = startEmbeddedPostgres({ dataDir, settings })
    await expect(failure).rejects.toThrow(/^embedded PostgreSQL did not start: .*shared_buffers.*$/)
    const { stop } = await startEmbeddedPostgres({ dataDir })
    await stop()
  })

  it('names DATABASE_URL if there are no binaries for the platform', async () => {
    const arch = vi.spyOn(process, 'arch', 'get').mockReturnValue('mips')
    await expect(startEmbeddedPostgres({ dataDir })).rejects.toThrow(
      'no embedded PostgreSQL for linux-mips: set DATABASE_URL',
    )
    arch.mockRestore()
  })
})
