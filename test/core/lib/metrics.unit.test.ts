import { setTimeout as sleep } from 'node:timers/promises'
import { Counter } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { silentLog } from '../../../core/lib/log.ts'
import { startLoop } from '../../../core/lib/loop.ts'
import { type Metrics, createMetrics, shareReads, startAtZero } from '../../../core/lib/metrics.ts'

/** Returns the value of the series of a loop. */
async function valueOf(metrics: Metrics, name: string, loop: string): Promise<number> {
  const text = await metrics.getSingleMetricAsString(name)
  return Number(new RegExp(`loop="${loop}"[^}]*\\} (\\S+)`).exec(text)?.[1])
}

describe('startAtZero', () => {
  it('begins every combination of labels at 0, and keeps what is counted', async () => {
    const metrics = createMetrics('test')
    const options = { name: 'calls_total', help: 'Calls', registers: [metrics] }
    const counter = new Counter({ ...options, labelNames: ['purpose', 'result'] })
    counter.inc({ purpose: 'plan', result: 'failed' }, 2)
    startAtZero(counter, { purpose: ['plan', 'invoice'], result: ['paid', 'failed'] })
    const { values } = await counter.get()
    expect(
      values
        .map(({ labels: { purpose, result }, value }) => `${purpose} ${result} ${value}`)
        .toSorted(),
    ).toEqual(['invoice failed 0', 'invoice paid 0', 'plan failed 2', 'plan paid 0'])
  })
})

describe('shareReads', () => {
  it('reads once for callers at the same time, again later, and returns null for a failure', async () => {
    let calls = 0
    const read = shareReads(async () => {
      calls += 1
      if (calls === 2) throw new Error('away')
      return calls
    })
    expect(await Promise.all([read(), read(), read()])).toEqual([1, 1, 1])
    expect(await Promise.all([read(), read()])).toEqual([null, null])
    expect(await read()).toBe(3)
  })
})

describe('startLoop', () => {
  it('shows its last success, its pause and its failures', async () => {
    const metrics = createMetrics('test')
    let isBroken = false
    const round = async (): Promise<void> => {
      if (isBroken) throw new Error('broken')
    }
    const options = { log: silentLog(), metrics, round }
    const loop = startLoop({ ...options, name: 'a', pauseMs: 5 })
    const other = startLoop({ ...options, name: 'b', pauseMs: 60_000 })
    const read = (name: string, of = 'a') => valueOf(metrics, `tollgate_loop_${name}`, of)
    expect([await read('pause_seconds'), await read('pause_seconds', 'b')]).toEqual([0.005, 60])
    const begin = await read('success_timestamp_seconds')
    expect(Math.abs(begin - Date.now() / 1000)).toBeLessThan(5)
    await expect.poll(() => read('success_timestamp_seconds')).toBeGreaterThan(begin)
    expect(await read('failures_total')).toBe(0)
    isBroken = true
    await expect.poll(() => read('failures_total')).toBeGreaterThan(1)
    const last = await read('success_timestamp_seconds')
    await sleep(30)
    expect(await read('success_timestamp_seconds')).toBe(last)
    expect(await read('failures_total', 'b')).toBe(0)
    await Promise.all([loop.stop(), other.stop()])
  })
})
