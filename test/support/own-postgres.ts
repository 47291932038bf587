import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { startEmbeddedPostgres } from '../../core/db/embedded/embedded.ts'

/** A PostgreSQL for one test, which the test may stop. The first process that connects migrates it. */
export interface OwnPostgres {
  readonly url: string
  /** Ends it as a crash would, and starts it again on the same port after `awayMs`. */
  restart(awayMs: number): Promise<void>
  stop(): Promise<void>
}

export async function startOwnPostgres(): Promise<OwnPostgres> {
  const directory = await mkdtemp(join(tmpdir(), 'tollgate-test-'))
  // Root's PostgreSQL runs as another user, who must be able to enter.
  await chmod(directory, 0o711)
  const dataDir = join(directory, 'postgres')
  // The machine does not crash here, only the server: what it wrote is there without waiting for the disk.
  const settings = { fsync: 'off', max_connections: '100' }
  let running = await startEmbeddedPostgres({ dataDir, settings })
  const { url } = running
  const port = Number(new URL(url).port)

  async function restart(awayMs: number): Promise<void> {
    const [pid = ''] = (await readFile(join(dataDir, 'cluster', 'postmaster.pid'), 'utf8')).split(
      '\n',
    )
    // Immediate shutdown: nothing is finished, and the next start recovers from the log.
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
