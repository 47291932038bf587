import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { headerBytes } from '../../../sidecar/spool/log-format.ts'
import { createTaker, filesOf, newFolder, startSpool, until } from './support.ts'

const event = (n: number, size = 0): string => `{"id":"event-${n}","fill":"${'x'.repeat(size)}"}`
const events = (from: number, to: number): string[] =>
  Array.from({ length: to - from }, (_, i) => event(from + i))

describe('the spool', () => {
  it('passes events on in order, byte for byte, and leaves nothing behind', async () => {
    const [directory, taker] = [await newFolder(), createTaker()]
    const spool = await startSpool({ directory, taker })
    await spool.keep('{"a":\n1}', '', '"\ud83d\ude00"', 'not json')
    await Promise.all(Array.from({ length: 500 }, (_, n) => spool.keep(event(n))))
    await until(() => taker.taken.length === 504)
    expect(taker.taken).toEqual(['{"a":\n1}', '', '"\ud83d\ude00"', 'not json', ...events(0, 500)])
    await spool.stop()
    expect(await filesOf(directory, '')).toEqual([join(directory, 'position')])
  })

  it('takes events while core is away, tells how many and how old, and sends them when it is back', async () => {
    const [directory, taker] = [await newFolder(), createTaker()]
    const spool = await startSpool({ directory, taker })
    taker.script.away = true
    for (let n = 0; n < 3_000; n += 100) await spool.keep(...events(n, n + 100))
    expect(await spool.figure('tollgate_sidecar_spool_events')).toBe(3_000)
    expect(await spool.figure('tollgate_sidecar_spool_bytes')).toBeGreaterThan(3_000 * headerBytes)
    await until(
      async () => (await spool.figure('tollgate_sidecar_spool_oldest_event_age_seconds')) > 0.1,
    )
    taker.script.away = false
    await until(() => taker.taken.length === 3_000)
    expect(taker.taken).toEqual(events(0, 3_000))
    await until(
      async () => (await spool.figure('tollgate_sidecar_spool_oldest_event_age_seconds')) === 0,
    )
    expect(await spool.figure('tollgate_sidecar_spool_events')).toBe(0)
  })

  it('keeps for the next start what core has not taken, and starts while core is away', async () => {
    const [directory, taker] = [await newFolder(), createTaker()]
    taker.script.away = true
    const first = await startSpool({ directory, taker })
    await first.keep(...events(0, 100))
    await first.stop()
    const second = await startSpool({ directory, taker })
    expect(await second.figure('tollgate_sidecar_spool_events')).toBe(100)
    await second.keep(...events(100, 200))
    await second.stop()
    taker.script.away = false
    await startSpool({ directory, taker })
    await until(() => taker.taken.length === 200)
    expect(taker.taken).toEqual(events(0, 200))
  })

  it('drains while it stops, and never hangs on a core that does not answer', async () => {
    const [directory, taker] = [await newFolder(), createTaker()]
    const first = await startSpool({ directory, taker })
    taker.script.delayMs = 50
    for (let n = 0; n < 300; n += 100) await first.keep(...events(n, n + 100))
    await first.stop()
    expect(taker.taken).toEqual(events(0, 300))
    taker.script.delayMs = 60_000
    const second = await startSpool({ directory, taker })
    await second.keep(event(300))
    const begun = performance.now()
    await second.stop()
    expect(performance.now() - begun).toBeLessThan(2_000)
    taker.script.delayMs = 0
    await startSpool({ directory, taker })
    await until(() => taker.taken.length === 301)
  })

  it('sets aside the one event that core refuses, and only that', async () => {
    const [directory, taker] = [await newFolder(), createTaker()]
    taker.script.refuses = (text) => text === event(7)
    const spool = await startSpool({ directory, taker })
    await spool.keep(...events(0, 20))
    await until(() => taker.taken.length === 19)
    expect(taker.taken).toEqual(events(0, 20).filter((text) => text !== event(7)))
    const [aside = ''] = await filesOf(directory, '.damaged')
    expect((await readFile(aside)).subarray(headerBytes).toString()).toBe(event(7))
    await until(async () => (await spool.figure('tollgate_sidecar_spool_events')) === 0)
    expect(await spool.figure('tollgate_sidecar_spool_damaged_total')).toBe(1)
  })

  it('is used by one process at a time', async () => {
    const [directory, taker] = [await newFolder(), createTaker()]
    const spool = await startSpool({ directory, taker })
    await expect(startSpool({ directory, taker })).rejects.toThrow(
      `${directory} is in use by process ${process.pid}: stop it, or set another SPOOL_DIR`,
    )
    await spool.stop()
    await startSpool({ directory, taker })
  })

  it('says which setting names a folder that cannot be used', async () => {
    const file = join(await newFolder(), 'file')
    await writeFile(file, '')
    for (const directory of [file, join(file, 'below')]) {
      await expect(startSpool({ directory, taker: createTaker() })).rejects.toThrow(
        /cannot use the spool .* set SPOOL_DIR/,
      )
    }
  })
})

describe('a full spool', () => {
  const large = (n: number): string => event(n, 100_000)

  it('refuses and says so, takes what fits again when core has taken enough', async () => {
    const [directory, taker] = [await newFolder(), createTaker()]
    taker.script.away = true
    const spool = await startSpool({ directory, taker })
    let kept = 0
    const fill = async (): Promise<void> => {
      for (; ; kept++) await spool.keep(large(kept))
    }
    await expect(fill()).rejects.toMatchObject({
      reason: 'SPOOL_UNAVAILABLE',
      message: expect.stringContaining('spool is full'),
    })
    expect(kept).toBeGreaterThan(75)
    expect([spool.isFull(), await spool.figure('tollgate_sidecar_spool_full')]).toEqual([true, 1])
    expect(await spool.figure('tollgate_sidecar_spool_bytes')).toBeLessThanOrEqual(8 * 1024 * 1024)
    taker.script.away = false
    await until(() => taker.taken.length === kept)
    await until(() => !spool.isFull())
    expect(await spool.figure('tollgate_sidecar_spool_full')).toBe(0)
    await spool.keep(large(kept))
    await until(() => taker.taken.length === kept + 1)
    expect(taker.taken).toEqual(Array.from({ length: kept + 1 }, (_, n) => large(n)))
  })

  it('starts full, too, and drains', async () => {
    const [directory, taker] = [await newFolder(), createTaker()]
    taker.script.away = true
    const first = await startSpool({ directory, taker })
    const kept = await Promise.allSettled(
      Array.from({ length: 100 }, (_, n) => first.keep(large(n))),
    )
    const count = kept.filter(({ status }) => status === 'fulfilled').length
    await first.stop()
    const second = await startSpool({ directory, taker })
    await expect(second.keep(large(100))).rejects.toMatchObject({ reason: 'SPOOL_UNAVAILABLE' })
    expect(await second.figure('tollgate_sidecar_spool_events')).toBe(count)
    taker.script.away = false
    await until(() => taker.taken.length === count)
    await second.keep(large(100))
  })
})
