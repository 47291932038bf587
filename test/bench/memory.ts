import { execFileSync } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Bench, Finding } from './row.ts'
import { readFile } from 'node:fs/promises'
import { newDataDir, startService } from './service.ts'

const idleMs = 5_000

/** What all in one holds when nothing happens, its database's processes not counted. */
export async function idleMemory(bench: Bench): Promise<Finding[]> {
  const service = await startService(bench, [process.execPath, ...(await startArguments())], {
    dataDir: await newDataDir(bench),
  })
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

/** What `npm start` runs, without npm: the arguments that package.json gives to node. */
async function startArguments(): Promise<string[]> {
  const text = await readFile(new URL('../../package.json', import.meta.url), 'utf8')
  const { scripts }: { scripts: { start: string } } = JSON.parse(text)
  return scripts.start.split(' ').slice(1)
}
