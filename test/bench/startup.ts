import type { Bench, Finding } from './row.ts'
import { newDataDir, startService } from './service.ts'
import { median, middleHalf } from './stats.ts'

const command = ['npm', 'start', '--silent']

/**
 * Measures `npm start` of an installed project until it is ready: with an empty data directory and
 * with that of an earlier start.
 */
export async function startup(bench: Bench): Promise<Finding[]> {
  const rounds = bench.quick ? 1 : 3
  const times = { empty: [] as number[], old: [] as number[] }
  for (let round = 0; round < rounds; round++) {
    const dataDir = await newDataDir(bench)
    for (const kind of ['empty', 'old'] as const) {
      const service = await startService(bench, command, { dataDir })
      await service.stop()
      times[kind].push(service.readySeconds)
    }
  }
  const finding = (name: string, seconds: readonly number[], atMost: number): Finding => ({
    name,
    unit: 's',
    target: { atMost },
    value: median(seconds),
    spread: middleHalf(seconds),
    detail: `${seconds.length} x npm start`,
  })
  return [
    finding('start, empty data directory', times.empty, 10),
    finding('start, old data directory', times.old, 4),
  ]
}
