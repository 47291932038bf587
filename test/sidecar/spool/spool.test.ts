import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { headerBytes } from '../../../sidecar/spool/log-format.ts'
import { createReceiver, filesOf, newFolder, startSpool, until } from './support.ts'

const event = (n: number, size = 0): string => `{"id":"event-${n}","fill":"${'x'.repeat(size)}"}`
const events = (from: number, to: number): string[] =>
  Array.from({ length: to - from }, (_, i) => event(from + i))

describe('the spool', () => {
  it('forwards events unchanged and in order, and leaves no files', async () => {
    const [directory, receiver] = [await newFolder(), createReceiver()]
    const spool = await startSpool({ directory, receiver })
    await spool.store('{"a":\n1}', '', '"\ud83d\ude00"', 'not json')
    await Promise.all(Array.from({ length: 500 }, (_, n) => spool.store(event(n))))
    await until(() => receiver.envelopes.length === 504)
    expect(receiver.envelopes).toEqual([
      '{"a":\n1}',
      '',
      '"\ud83d\ude00"',
      'not json',
      ...events(0, 500),
    ])
    await spool.stop()
    expect(await filesOf(directory, '')).toEqual([join(directory, 'position')])
  })

  it('accepts events while core is unavailable, reports their number and age, and sends them later', async () => {
    const [directory, receiver] = [await newFolder(), createReceiver()]
    const spool = await startSpool({ directory, receiver })
    receiver.script.away = true
    for (let n = 0; n < 3_000; n += 100) await spool.store(...events(n, n + 100))
    expect(await spool.figure('tollgate_sidecar_spool_events')).toBe(3_000)
    expect(await spool.figure('tollgate_sidecar_spool_bytes')).toBeGreaterThan(3_000 * headerBytes)
    await until(
      async () => (await spool.figure('tollgate_sidecar_spool_oldest_event_age_seconds')) > 0.1,
    )
    receiver.script.away = false
    await until(() => receiver.envelopes.length === 3_000)
    expect(receiver.envelopes).toEqual(events(0, 3_000))
    await until(
      async () => (await spool.figure('tollgate_sidecar_spool_oldest_event_age_seconds')) === 0,
    )
    expect(await spool.figure('tollgate_sidecar_spool_events')).toBe(0)
  })

  it('keeps unacknowledged events for the next start, and starts without core', async () => {
    const [directory, receiver] = [await newFolder(), createReceiver()]
    receiver.script.away = true
    const first = await startSpool({ directory, receiver })
    await first.store(...events(0, 100))
    await first.stop()
    const second = await startSpool({ directory, receiver })
    expect(await second.figure('tollgate_sidecar_spool_events')).toBe(100)
    await second.store(...events(100, 200))
    await second.stop()
    receiver.script.away = false
    await startSpool({ directory, receiver })
    await until(() => receiver.envelopes.length === 200)
    expect(receiver.envelopes).toEqual(events(0, 200))
  })

  it('drains while it stops, and does not hang when core does not answer', async () => {
    const [directory, receiver] = [await newFolder(), createReceiver()]
    const first = await startSpool({ directory, receiver })
    receiver.script.delayMs = 50
    for (let n = 0; n < 300; n += 100) await first.store(...events(n, n + 100))
    await first.stop()
    expect(receiver.envelopes).toEqual(events(0, 300))
    receiver.script.delayMs = 60_000
    const second = await startSpool({ directory, receiver })
    await second.store(event(300))
    const begun = performance.now()
    await second.stop()
    expect(performance.now() - begun).toBeLessThan(2_000)
    receiver.script.delayMs = 0
    await startSpool({ directory, receiver })
    await until(() => receiver.envelopes.length === 301)
  })

  it('sets aside only the event that core refuses', async () => {
    const [directory, receiver] = [await newFolder(), createReceiver()]
    receiver.script.refuses = (text) => text === event(7)
    const spool = await startSpool({ directory, receiver })
    await spool.store(...events(0, 20))
    await until(() => receiver.envelopes.length === 19)
    expect(receiver.envelopes).toEqual(events(0, 20).filter((text) => text !== event(7)))
    const [aside = ''] = await filesOf(directory, '.damaged')
    expect((await readFile(aside)).subarray(headerBytes).toString()).toBe(event(7))
    await until(async () => (await spool.figure('tollgate_sidecar_spool_events')) === 0)
    expect(await spool.figure('tollgate_sidecar_spool_damaged_total')).toBe(1)
  })

  it('is used by one process at a time', async () => {
    const [directory, receiver] = [await newFolder(), createReceiver()]
    const spool = await startSpool({ directory, receiver })
    await expect(startSpool({ directory, receiver })).rejects.toThrow(
      `${directory} is in use by process ${process.pid}: stop it, or set another SPOOL_DIR`,
    )
    await spool.stop()
    await startSpool({ directory, receiver })
  })

  it('names the setting of a folder that cannot be used', async () => {
    const file = join(await newFolder(), 'file')
    await writeFile(file, '')
    for (const directory of [file, join(file, 'below')]) {
      await expect(startSpool({ directory, receiver: createReceiver() })).rejects.toThrow(
        /cannot use the spool .* set SPOOL_DIR/,
      )
    }
  })
})

describe('a full spool', () => {
  const large = (n: number): string => event(n, 100_000)

  it('refuses events and reports that, and recovers when core has acknowledged enough', async () => {
    const [directory, receiver] = [await newFolder(), createReceiver()]
    receiver.script.away = true
    const spool = await startSpool({ directory, receiver })
    let count = 0
    const fill = async (): Promise<void> => {
      for (; ; count++) await spool.store(large(count))
    }
    await expect(fill()).rejects.toMatchObject({
      reason: 'SPOOL_UNAVAILABLE',
      message: expect.stringContaining('spool is full'),
    })
    expect(count).toBeGreaterThan(75)
    expect([spool.isFull(), await spool.figure('tollgate_sidecar_spool_full')]).toEqual([true, 1])
    expect(await spool.figure('tollgate_sidecar_spool_bytes')).toBeLessThanOrEqual(8 * 1024 * 1024)
    receiver.script.away = false
    await until(() => receiver.envelopes.length === count)
    await until(() => !spool.isFull())
    expect(await spool.figure('tollgate_sidecar_spool_full')).toBe(0)
    await spool.store(large(count))
    await until(() => receiver.envelopes.length === count + 1)
    expect(receiver.envelopes).toEqual(Array.from({ length: count + 1 }, (_, n) => large(n)))
  })

  it('can be started when full, and drains', async () => {
    const [directory, receiver] = [await newFolder(), createReceiver()]
    receiver.script.away = true
    const first = await startSpool({ directory, receiver })
    const writes = await Promise.allSettled(
      Array.from({ length: 100 }, (_, n) => first.store(large(n))),
    )
    const count = writes.filter(({ status }) => status === 'fulfilled').length
    await first.stop()
    const second = await startSpool({ directory, receiver })
    await expect(second.store(large(100))).rejects.toMatchObject({ reason: 'SPOOL_UNAVAILABLE' })
    expect(await second.figure('tollgate_sidecar_spool_events')).toBe(count)
    receiver.script.away = false
    await until(() => receiver.envelopes.length === count)
    await second.store(large(100))
  })
})
