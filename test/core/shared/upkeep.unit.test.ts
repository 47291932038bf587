import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { startUpkeep } from '../../../core/shared/upkeep.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

const deps = () => ({ log: silentLog(), metrics: createMetrics('test') })

describe('startUpkeep', () => {
  it('runs every step in order once a minute, also after a failed step', async () => {
    const calls: string[] = []
    const metrics = createMetrics('test')
    const step =
      (name: string, isFailing = false) =>
      async () => {
        calls.push(name)
        if (isFailing) throw new Error('broken')
      }
    const upkeep = startUpkeep([step('a'), step('b', true), step('c')], {
      log: silentLog(),
      metrics,
    })
    await vi.advanceTimersByTimeAsync(60_000)
    expect(calls).toEqual(['a', 'b', 'c'])
    await vi.advanceTimersByTimeAsync(60_000)
    expect(calls).toEqual(['a', 'b', 'c', 'a', 'b', 'c'])
    // A round with a failed step is no success.
    expect(await metrics.metrics()).toMatch(/^tollgate_loop_failures_total\S*upkeep\S* 2$/m)
    await upkeep.stop()
    await vi.advanceTimersByTimeAsync(120_000)
    expect(calls).toHaveLength(6)
  })

  it('lets a running round finish before it stops, and starts no second round meanwhile', async () => {
    const gate = Promise.withResolvers<void>()
    let started = 0
    const slow = async () => {
      started++
      await gate.promise
    }
    const upkeep = startUpkeep([slow], deps())
    await vi.advanceTimersByTimeAsync(60_000)
    let isStopped = false
    const stopped = upkeep.stop().then(() => void (isStopped = true))
    await vi.advanceTimersByTimeAsync(1_000)
    expect([started, isStopped]).toEqual([1, false])
    gate.resolve()
    await stopped
    expect(isStopped).toBe(true)
  })
})
