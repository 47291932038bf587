import { execFileSync } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { figure } from './helper.ts'
import type { Bench, Finding } from './row.ts'
import { readFile } from 'node:fs/promises'
import { newDataDir, startService } from './service.ts'
import { count } from './table.ts'

const mib = 1024 * 1024
const idleMs = 5_000

/** What all in one holds when nothing happens, its database's processes not counted. */
export async function idleMemory(bench: Bench): Promise<Finding[]> {
  const service = await startService(
    bench,
    [process.execPath, ...(await startArguments())],
    await newDataDir(bench),
  )
  await sleep(idleMs)
  const rss = residentMiB(service.pid)
  await service.stop()
  return [
    {
      name: 'memory, all in one idle',
      unit: 'MB',
      target: { atMost: 250 },
      value: rss,
      spread: null,
      detail: `resident ${idleMs / 1000} s after it was ready, without PostgreSQL`,
    },
  ]
}

function residentMiB(pid: number): number {
  const kib = Number(execFileSync('ps', ['-o', 'rss=', '-p', String(pid)], { encoding: 'utf8' }))
  return kib / 1024
}

/** What the collector holds after a million tickets, by what it held after the first fifth. */
export async function collectorMemory(bench: Bench): Promise<Finding[]> {
  const { figures, many } = await bench.million()
  const points = Object.keys(figures).filter((name) => name.startsWith('rssAt'))
  const early = points[Math.max(0, Math.round(points.length / 5) - 1)] ?? ''
  const values = points.map((name) => figure(figures, name))
  const [low, high] = [Math.min(...values), Math.max(...values)]
  const [first, last] = [figure(figures, early), values.at(-1) ?? NaN]
  const rate = many / figure(figures, 'seconds')
  return [
    {
      name: 'memory, collector growth',
      unit: '',
      target: { atMost: 1.15 },
      value: last / first,
      spread: { low: low / first, high: high / first },
      detail:
        `${(first / mib).toFixed(0)} MB after ${count(Number(early.slice(5)))} tickets, `
        + `${(last / mib).toFixed(0)} MB after ${count(many)}, at ${count(rate)}/s`,
    },
  ]
}

/** What `npm start` runs, without npm: the arguments that package.json gives to node. */
async function startArguments(): Promise<string[]> {
  const text = await readFile(new URL('../../package.json', import.meta.url), 'utf8')
  const { scripts }: { scripts: { start: string } } = JSON.parse(text)
  return scripts.start.split(' ').slice(1)
}
