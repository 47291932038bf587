import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import type { Stops } from '../../support/deployment/parts.ts'
import { freePorts } from '../../support/deployment/processes.ts'
import { type Program, startProgram } from '../../support/run/programs.ts'
import { makeFolder, programOf, untilTrue, writeOwned } from './folder.ts'

/** A Redis with two replicas and three Sentinels, which run with deploy/redis/sentinel.conf. */
export interface RedisCluster {
  /** REDIS_URL for the service. */
  readonly url: string
  /** The port of the master that the Sentinels name. */
  masterPort(): Promise<number>
  /** Kills the master with SIGKILL. Returns a function that starts it again, as a replica. */
  killMaster(): Promise<() => Promise<void>>
}

const name = 'tollgate'
const shipped = join(import.meta.dirname, '../../../deploy/redis/sentinel.conf')
const upMs = 30_000

export async function startRedisCluster(
  stops: Stops,
  { folder, downAfterMs = 3_000 }: { readonly folder: string; readonly downAfterMs?: number },
): Promise<RedisCluster> {
  await makeFolder(folder)
  const ports = await freePorts(6)
  const [redises, sentinels] = [ports.slice(0, 3), ports.slice(3)]
  const [first = 0] = redises
  const running = new Map<number, Program>()
  const run = async (port: number, args: readonly string[]): Promise<void> => {
    running.set(port, await startProgram(programOf('redis-server'), args, { port, cwd: folder }))
  }
  stops.push(async () => {
    for (const program of running.values()) await program.stop('SIGKILL')
  })
  const startRedis = (port: number, more: readonly string[] = []): Promise<void> =>
    run(port, [...redisOptions(port), ...more])
  await startRedis(first)
  for (const port of redises.slice(1))
    await startRedis(port, ['--replicaof', '127.0.0.1', String(first)])
  for (const port of sentinels) {
    const file = join(folder, `sentinel-${port}.conf`)
    await writeOwned(file, await sentinelFile({ port, master: first, downAfterMs }))
    await run(port, [file, '--sentinel', '--bind', '127.0.0.1'])
  }
  const sentinel = new Redis({ host: '127.0.0.1', port: sentinels[0] ?? 0 })
  sentinel.on('error', () => {})
  stops.push(async () => sentinel.disconnect())
  await untilComplete(sentinel)

  async function masterPort(): Promise<number> {
    const address = await sentinel.call('sentinel', 'get-master-addr-by-name', name)
    return Array.isArray(address) ? Number(address[1]) : 0
  }

  async function killMaster(): Promise<() => Promise<void>> {
    const port = await masterPort()
    await running.get(port)?.stop('SIGKILL')
    return () => startRedis(port)
  }

  const at = sentinels.map((port) => `127.0.0.1:${port}`).join(',')
  return { url: `redis+sentinel://${at}/${name}`, masterPort, killMaster }
}

const redisOptions = (port: number): string[] =>
  ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no'].concat(
    '--repl-diskless-sync-delay',
    '0',
  )

const sentinelFile = async ({
  port,
  master,
  downAfterMs,
}: Readonly<Record<'port' | 'master' | 'downAfterMs', number>>): Promise<string> =>
  (await readFile(shipped, 'utf8'))
    .replace('port 26379', `port ${port}`)
    .replace(`monitor ${name} redis-1 6379`, `monitor ${name} 127.0.0.1 ${master}`)
    .replace(
      `down-after-milliseconds ${name} 3000`,
      `down-after-milliseconds ${name} ${downAfterMs}`,
    )

/** Waits until the Sentinel knows both replicas and both other Sentinels. */
async function untilComplete(sentinel: Redis): Promise<void> {
  const count = async (what: string): Promise<number> => {
    const list = await sentinel.call('sentinel', what, name)
    return Array.isArray(list) ? list.length : 0
  }
  const isSo = async (): Promise<boolean> =>
    (await count('replicas')) === 2 && (await count('sentinels')) === 2
  await untilTrue('the Sentinels know all', { withinMs: upMs, isSo })
}
