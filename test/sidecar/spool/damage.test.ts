import { open, readFile, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { encodeRecords, magic } from '../../../sidecar/spool/log-format.ts'
import { segmentPath } from '../../../sidecar/spool/segments.ts'
import { createReceiver, filesOf, newFolder, startSpool, until } from './support.ts'

const texts = ['{"id":"a"}', '{"id":"b","note":"\u00e9\u00e9"}', '{"id":"c"}']
const records = (of: readonly string[], sequence = 1): Buffer =>
  encodeRecords(
    of.map((text) => Buffer.from(text)),
    1_789_380_930_000,
    { sequence, place: 0 },
  )

/**
 * Returns the envelopes that a spool forwards from a segment with these bytes, and the damage it
 * counts.
 */
async function outcomeOf(
  bytes: Buffer,
): Promise<{ envelopes: string[]; damaged: number; directory: string }> {
  const [directory, receiver] = [await newFolder(), createReceiver()]
  await writeFile(segmentPath(directory, 1), bytes)
  const spool = await startSpool({ directory, receiver })
  await spool.store('last')
  await until(() => receiver.envelopes.includes('last'))
  const damaged = await spool.figure('tollgate_sidecar_spool_damaged_total')
  await spool.stop()
  return { envelopes: receiver.envelopes.slice(0, -1), damaged, directory }
}

describe('a spool whose process was killed', () => {
  it('loses only the record that was being written', async () => {
    const [before, last] = [records(texts.slice(0, 2)), records(texts.slice(2), 3)]
    for (let cut = 0; cut < last.length; cut++) {
      const { envelopes, damaged } = await outcomeOf(Buffer.concat([before, last.subarray(0, cut)]))
      expect([cut, damaged, ...envelopes]).toEqual([cut, 0, ...texts.slice(0, 2)])
    }
    expect((await outcomeOf(Buffer.concat([before, last]))).envelopes).toEqual(texts)
  })

  it('ignores zeros that a power cut left at the end', async () => {
    const { envelopes, damaged } = await outcomeOf(
      Buffer.concat([records(texts), Buffer.alloc(5_000)]),
    )
    expect([damaged, ...envelopes]).toEqual([0, ...texts])
  })

  it('continues at the acknowledged position, and at the start when that is unknown', async () => {
    const [directory, receiver] = [await newFolder(), createReceiver()]
    receiver.script.delayMs = 5
    const first = await startSpool({ directory, receiver })
    await first.store(...texts)
    await until(() => receiver.envelopes.length === 3)
    receiver.script.away = true
    await first.store('d')
    await first.stop()
    const position = await readFile(join(directory, 'position'))
    receiver.script.away = false
    await (await startSpool({ directory, receiver })).stop()
    expect(receiver.envelopes).toEqual([...texts, 'd'])

    await writeFile(segmentPath(directory, 7), records(texts))
    for (const torn of [
      position.subarray(0, 11),
      Buffer.concat([position.subarray(0, 19), Buffer.from([position[19] ?? 0 ^ 1])]),
      Buffer.alloc(0),
    ]) {
      await writeFile(join(directory, 'position'), torn)
      await writeFile(segmentPath(directory, 7), records(['e', 'f']))
      receiver.envelopes.length = 0
      const again = await startSpool({ directory, receiver })
      await until(() => receiver.envelopes.length === 2)
      await again.stop()
      expect(receiver.envelopes).toEqual(['e', 'f'])
    }
  })
})

describe('a damaged spool', () => {
  it('sets aside the broken record, and forwards all others', async () => {
    const [before, broken, behind] = texts.map((text, i) => records([text], 1 + i))
    if (!before || !broken || !behind) throw new Error('three records')
    for (let at = 0; at < broken.length; at++) {
      const spoilt = Buffer.from(broken)
      spoilt[at] = (spoilt[at] ?? 0) ^ 0x41
      const { envelopes, damaged, directory } = await outcomeOf(
        Buffer.concat([before, spoilt, behind]),
      )
      expect([at, damaged, ...envelopes]).toEqual([at, 1, texts[0], texts[2]])
      const [aside = ''] = await filesOf(directory, '.damaged')
      expect((await readFile(aside)).equals(spoilt)).toBe(true)
    }
  })

  it('finds the records after any damage, and never forwards damage as an event', async () => {
    const envelope = fc.oneof(
      fc.json(),
      fc.string(),
      fc.uint8Array({ maxLength: 60 }).map((bytes) => Buffer.from(bytes).toString('latin1')),
    )
    await fc.assert(
      fc.asyncProperty(
        fc.array(envelope, { minLength: 1, maxLength: 4 }),
        fc.array(envelope, { minLength: 1, maxLength: 4 }),
        fc.oneof(
          fc.uint8Array({ minLength: 1, maxLength: 200 }),
          fc.constant(magic),
          fc.constant(Buffer.concat([magic, magic.subarray(0, 2)])),
        ),
        async (before, behind, damage) => {
          const { envelopes, damaged } = await outcomeOf(
            Buffer.concat([records(before), damage, records(behind, before.length + 1)]),
          )
          expect(envelopes).toEqual([...before, ...behind])
          expect(damaged).toBe(1)
        },
      ),
      { numRuns: 60 },
    )
  })

  it('finds the records after damage that is larger than one read', async () => {
    const { envelopes, damaged } = await outcomeOf(
      Buffer.concat([records(['a']), Buffer.alloc(3_000_000, 0xf5), records(['b'], 2)]),
    )
    expect([damaged, ...envelopes]).toEqual([1, 'a', 'b'])
  })

  it('gives up an unreadable segment, keeps its file, and continues', async () => {
    const [directory, receiver] = [await newFolder(), createReceiver()]
    receiver.script.away = true
    const spool = await startSpool({ directory, receiver })
    for (let n = 0; n < 12; n++) await spool.store(`"${'x'.repeat(100_000)}${n}"`)
    const [first = ''] = await filesOf(directory, '.events')
    await truncate(first, 250_000)
    receiver.script.away = false
    await until(() => receiver.envelopes.some((text) => text.endsWith('11"')))
    expect(receiver.envelopes.length).toBeGreaterThan(5)
    expect(await filesOf(directory, '.damaged')).toEqual([`${first}.damaged`])
  })

  it('counts files that were set aside as used disk', async () => {
    const directory = await newFolder()
    const file = await open(join(directory, '000000000001.events-0.damaged'), 'w')
    await file.truncate(5_000_000).finally(() => file.close())
    const spool = await startSpool({ directory, receiver: createReceiver() })
    expect(await spool.figure('tollgate_sidecar_spool_bytes')).toBe(5_000_000)
  })
})
