import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { startEmbeddedPostgres } from '../../../core/db/embedded/embedded.ts'

/**
 * A PostgreSQL for one test, which may stop it. The first process that connects runs the
 * migrations.
 */
export interface OwnPostgres {
  readonly url: string
  /** Crashes it and starts it again on the same port after `awayMs`. */
  restart(awayMs: number): Promise<void>
  stop(): Promise<void>
}

export async function startOwnPostgres(): Promise<OwnPostgres> {
  const directory = await mkdtemp(join(tmpdir(), 'tollgate-test-'))
  // If this process is root, PostgreSQL runs as another user, which needs access to the directory.
  await chmod(directory, 0o711)
  const dataDir = join(directory, 'postgres')
  // Only the server crashes, not the machine, so its writes survive without fsync.
  const settings = { fsync: 'off', max_connections: '100' }
  let running = await startEmbeddedPostgres({ dataDir, settings })
  const { url } = running
  const port = Number(new URL(url).port)

  async function restart(awayMs: number): Promise<void> {
    const [pid = ''] = (await readFile(join(dataDir, 'cluster', 'postmaster.pid'), 'utf8')).split(
      '\n',
    )
    // Immediate shutdown: open work is aborted, and the next start recovers from the log.
    process.kill(Number(pid), 'SIGQUIT')
    await running.stop()
    await sleep(awayMs)
    running = await startEmbeddedPostgres({ dataDir, settings, port })
  }

  async function stop(): Promise<void> {
    await running.stop()
    await rm(directory, { recursive: true, force: true })
  }

  return { url, restart, stop }
}
