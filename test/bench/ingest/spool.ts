import { randomUUID } from 'node:crypto'
import { mkdtemp, open, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { newSecret } from '../../../core/lib/crypto.ts'
import { startCoreDouble } from '../../fakes/sidecar-core.ts'
import { type Helper, figure, startHelper } from '../helper.ts'
import type { Bench, Finding } from '../row.ts'
import { median, pairedRatio } from '../stats.ts'
import { count } from '../table.ts'

const connections = 50
const appends = 300

/**
 * Compares events acknowledged with 202, each pushed alone and synced to disk first, with a plain
 * file to which the same events are appended with an fsync each. The ratio is the gain from group
 * commit less the cost of HTTP.
 */
export async function spool(bench: Bench): Promise<Finding[]> {
  const secret = newSecret('whsec_')
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-bench-'))
  bench.defer(() => rm(folder, { recursive: true, force: true }))
  const core = await startCoreDouble()
  bench.defer(async () => core.stop())
  // About the duration of a commit, so that events are forwarded in realistic batches.
  core.script.delayMs = 5
  const start = async (program: string, args: string[]): Promise<Helper> => {
    const helper = await startHelper({ program, args })
    bench.defer(helper.stop)
    return helper
  }
  const settings = {
    CORE_TARGET: core.target,
    WEBHOOK_SECRET: secret,
    SPOOL_DIR: join(folder, 'spool'),
  }
  const sidecar = await start('sidecar-server.ts', [JSON.stringify(settings)])
  const load = await start('load.ts', [])
  await load.ask(Array.from({ length: 2_000 }, () => requestOf(secret)))
  const [rounds, events] = bench.quick ? [3, 4_000] : [7, 10_000]
  const plain: number[] = []
  const spooled: number[] = []
  await push({ load, sidecar, events })
  for (let round = 0; round < rounds; round++) {
    plain.push(await append(join(folder, `plain-${round}`)))
    core.script.ingested.length = 0
    spooled.push(await push({ load, sidecar, events }))
  }
  const rates = `${count(median(spooled))}/s acknowledged, one by one ${count(median(plain))}/s`
  return [
    {
      name: 'spool by append and fsync',
      unit: '',
      target: null,
      ...pairedRatio(spooled, plain),
      detail: `${rates}; ${connections} connections, an event each`,
    },
  ]
}

interface Pushing {
  readonly load: Helper
  readonly sidecar: Helper
  readonly events: number
}

async function push({ load, sidecar, events }: Pushing): Promise<number> {
  const run = await load.ask({ port: figure(sidecar.ready, 'port'), count: events, connections })
  return events / figure(run, 'seconds')
}

async function append(path: string): Promise<number> {
  const event = Buffer.from(eventOf())
  const file = await open(path, 'wx')
  const started = performance.now()
  for (let n = 0; n < appends; n++) {
    await file.write(event, 0, event.length, n * event.length)
    await file.datasync()
  }
  const seconds = (performance.now() - started) / 1000
  await file.close()
  return appends / seconds
}

function requestOf(secret: string): string {
  const body = eventOf()
  return (
    'POST /events HTTP/1.1\r\nHost: 127.0.0.1:8090\r\nX-Correlation-Id: bench\r\n' +
    `Content-Length: ${Buffer.byteLength(body)}\r\nAuthorization: Bearer ${secret}\r\n\r\n${body}`
  )
}

/** Returns an event as large as the signer's (docs/signer-events.md). */
const eventOf = (): string =>
  JSON.stringify({
    id: randomUUID(),
    type: 'create_signed_ticket',
    timestamp: '1789380930131',
    gateway: '',
    data: { auth_id: 'acme:alice', computed_fee: '120000', fill: 'x'.repeat(620) },
  })
