import { execFile } from 'node:child_process'
import { chmod, chown, mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { freePorts } from '../deployment/processes.ts'
import { type Program, nobody, startProgram } from './programs.ts'

const run = promisify(execFile)
const parent = '/usr/lib/postgresql'
const [version] = (await readdir(parent).catch(() => [])).toSorted((a, b) => Number(b) - Number(a))

/** The folder of Debian's PostgreSQL, which has pg_basebackup; undefined if it is not installed. */
export const debianPostgres = version === undefined ? undefined : join(parent, version, 'bin')

export interface ReplicatedPostgres {
  readonly url: string
  readonly replicaUrl: string
  stopReplica(): Promise<void>
  stop(): Promise<void>
}

const serverSettings = (port: number): string[] =>
  [
    `port=${port}`,
    'listen_addresses=127.0.0.1',
    'unix_socket_directories=',
    'fsync=off',
    'max_connections=60',
    'shared_buffers=32MB',
    'timezone=UTC',
  ].flatMap((setting) => ['-c', setting])

/** Starts a PostgreSQL and a streaming replica of it, with an empty database. */
export async function startReplicated(): Promise<ReplicatedPostgres> {
  const bin = debianPostgres ?? ''
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-replica-'))
  const [primaryPort = 0, replicaPort = 0] = await freePorts(2)
  const [primaryData, replicaData] = [join(folder, 'primary'), join(folder, 'replica')]
  if (nobody) await chown(folder, nobody.uid, nobody.gid)
  await chmod(folder, 0o711)
  const options = { cwd: folder, ...nobody }
  const running: Program[] = []

  async function start(data: string, port: number): Promise<Program> {
    const server = join(bin, 'postgres')
    const program = await startProgram(server, ['-D', data, ...serverSettings(port)], {
      port,
      cwd: folder,
    })
    running.push(program)
    return program
  }

  async function stop(): Promise<void> {
    // An immediate shutdown is enough, because the files are removed.
    for (const program of running.toReversed()) await program.stop('SIGQUIT')
    await rm(folder, { recursive: true, force: true })
  }

  try {
    await run(
      join(bin, 'initdb'),
      ['-D', primaryData, '-U', 'tollgate', '-A', 'trust', '-N'],
      options,
    )
    await start(primaryData, primaryPort)
    const source = ['-h', '127.0.0.1', '-p', String(primaryPort), '-U', 'tollgate']
    await run(
      join(bin, 'pg_basebackup'),
      [...source, '-D', replicaData, '-R', '-X', 'stream', '-c', 'fast', '-N'],
      options,
    )
    const replica = await start(replicaData, replicaPort)
    const url = (port: number): string => `postgres://tollgate@127.0.0.1:${port}/postgres`
    return {
      url: url(primaryPort),
      replicaUrl: url(replicaPort),
      stopReplica: () => replica.stop('SIGQUIT'),
      stop,
    }
  } catch (error) {
    await stop()
    throw error
  }
}
