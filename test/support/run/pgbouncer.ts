import { chmod, chown, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePorts } from '../deployment/processes.ts'
import { findProgram, nobody, startProgram } from './programs.ts'

/** The path of Debian's PgBouncer; undefined if it is not installed. */
export const pgbouncer = findProgram('pgbouncer')

export interface Pooler {
  /** The address of the database behind it. */
  readonly url: string
  stop(): Promise<void>
}

/**
 * Starts a PgBouncer with the settings of deploy/pgbouncer/pgbouncer.ini before the database at
 * `databaseUrl`. `hasLimits: false` omits the time limits.
 */
export async function startPooler(
  databaseUrl: string,
  { connections, hasLimits = true }: { connections: number; hasLimits?: boolean },
): Promise<Pooler> {
  const { hostname, port, username, password, pathname } = new URL(databaseUrl)
  const name = pathname.slice(1)
  const [ownPort = 0] = await freePorts(1)
  const shipped = await readFile(
    join(import.meta.dirname, '../../../deploy/pgbouncer/pgbouncer.ini'),
    'utf8',
  )
  const [, limits = ''] = /(connect_query='[^']+')/.exec(shipped) ?? []
  const target = `host=${hostname} port=${port} dbname=${name} user=${username} password='${password}'`
  const settings = shipped
    .replace(/^tollgate = .*$/m, `${name} = ${target} ${hasLimits ? limits : ''}`)
    .replace(/^listen_port = .*$/m, `listen_port = ${ownPort}`)
    .replace(/^auth_type = .*\nauth_file = .*$/m, 'auth_type = any\nunix_socket_dir =')
    .replace(/^default_pool_size = .*$/m, `default_pool_size = ${connections}`)
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-pgbouncer-'))
  const file = join(folder, 'pgbouncer.ini')
  await writeFile(file, settings)
  await chmod(folder, 0o711)
  if (nobody) await chown(file, nobody.uid, nobody.gid)
  await chmod(file, 0o600)
  const program = await startProgram(pgbouncer ?? 'pgbouncer', [file], {
    port: ownPort,
    cwd: folder,
  })
  return {
    url: `postgres://${username}@127.0.0.1:${ownPort}/${name}`,
    stop: async () => {
      await program.stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}
