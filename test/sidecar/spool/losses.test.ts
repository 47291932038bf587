import { readFile, rm, stat, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { crc32 } from 'node:zlib'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { headerBytes } from '../../../sidecar/spool/log-format.ts'
import { type Receiver, createReceiver, filesOf, newFolder, startSpool, until } from './support.ts'

const lost = 'tollgate_sidecar_spool_lost_records_total'
const lostBytes = 'tollgate_sidecar_spool_lost_bytes_total'

/**
 * Creates a folder with a stopped spool. The first `forwarded` groups of events are delivered to
 * core.
 */
async function spoolOf(groups: readonly (readonly string[])[], forwarded = 0) {
  const [directory, receiver] = [await newFolder(), createReceiver()]
  const spool = await startSpool({ directory, receiver, maxBytes })
  for (const group of groups.slice(0, forwarded)) await spool.store(...group)
  const taken = groups.slice(0, forwarded).flat().length
  await until(() => receiver.envelopes.length === taken)
  receiver.script.away = true
  for (const group of groups.slice(forwarded)) await spool.store(...group)
  await spool.stop()
  receiver.script.away = false
  receiver.envelopes.length = 0
  return { directory, receiver }
}

// Segments of 4 KiB.
const maxBytes = 64 * 1024

async function restart({ directory, receiver }: { directory: string; receiver: Receiver }) {
  const spool = await startSpool({ directory, receiver, maxBytes })
  const atStart = await spool.figure(lost)
  await spool.store('last')
  await until(() => receiver.envelopes.includes('last'))
  const figures = {
    atStart,
    lost: await spool.figure(lost),
    bytes: await spool.figure(lostBytes),
    envelopes: receiver.envelopes.slice(0, -1),
  }
  await spool.stop()
  return figures
}

const recordOf = (text: string): number => headerBytes + text.length

describe('a spool with damaged acknowledged events', () => {
  it('reports a truncated acknowledged end, and keeps its rest', async () => {
    const spool = await spoolOf([['one'], ['two', 'three']])
    const [file = ''] = await filesOf(spool.directory, '.events')
    const bytes = await readFile(file)
    await truncate(file, bytes.length - 2)
    expect(await restart(spool)).toEqual({
      atStart: 1,
      lost: 1,
      bytes: recordOf('three') - 2,
      envelopes: ['one', 'two'],
    })
    const [kept = ''] = await filesOf(spool.directory, '.damaged')
    expect(await readFile(kept)).toEqual(bytes.subarray(-recordOf('three'), -2))
    expect(await restart(spool)).toMatchObject({ lost: 0 })
  })

  it('reports events without a trace: a file cut between two, and a missing file', async () => {
    const cut = await spoolOf([['one'], ['two', 'three']])
    const [file = ''] = await filesOf(cut.directory, '.events')
    await truncate(file, recordOf('one'))
    expect(await restart(cut)).toMatchObject({ atStart: 2, lost: 2, envelopes: ['one'] })
    const gone = await spoolOf([['one'], ['two', 'three']])
    await rm((await filesOf(gone.directory, '.events'))[0] ?? '')
    expect(await restart(gone)).toMatchObject({ atStart: 3, lost: 3, envelopes: [] })
  })

  it('does not report a write that was never acknowledged', async () => {
    const spool = await spoolOf([['one']])
    const [file = ''] = await filesOf(spool.directory, '.events')
    const bytes = await readFile(file)
    await writeFile(file, Buffer.concat([bytes, bytes.subarray(0, 30)]))
    expect(await restart(spool)).toEqual({ atStart: 0, lost: 0, bytes: 0, envelopes: ['one'] })
    expect(await filesOf(spool.directory, '.damaged')).toEqual([])
  })

  it('reports damage that occurs while it runs', async () => {
    const [directory, receiver] = [await newFolder(), createReceiver()]
    receiver.script.away = true
    const spool = await startSpool({ directory, receiver, maxBytes })
    await spool.store('one', 'two', 'three')
    const [file = ''] = await filesOf(directory, '.events')
    const bytes = await readFile(file)
    bytes[recordOf('one') + 5] = 0x41
    await writeFile(file, bytes)
    receiver.script.away = false
    await until(async () => (await spool.figure(lost)) === 1)
    await until(() => receiver.envelopes.includes('three'))
    expect(receiver.envelopes).toEqual(['one', 'three'])
    expect(await spool.figure(lostBytes)).toBe(recordOf('two'))
  })

  it('reports a loss once, even after several starts without core', async () => {
    const spool = await spoolOf([['one'], ['two'], ['three']])
    const [file = ''] = await filesOf(spool.directory, '.events')
    const bytes = await readFile(file)
    bytes[recordOf('one') + 5] = 0x41
    await writeFile(file, bytes)
    spool.receiver.script.away = true
    const reports: number[] = []
    for (let start = 0; start < 3; start++) {
      const again = await startSpool({ ...spool, maxBytes })
      reports.push(await again.figure(lost))
      await again.stop()
    }
    spool.receiver.script.away = false
    expect(reports).toEqual([1, 0, 0])
    expect(await restart(spool)).toMatchObject({ lost: 0, envelopes: ['one', 'three'] })
  })

  it('limits the disk used by damaged bytes', async () => {
    const spool = await spoolOf([['x'.repeat(40_000)], ['two']])
    const [file = ''] = await filesOf(spool.directory, '.events')
    const bytes = await readFile(file)
    bytes[5] = 0xff
    await writeFile(file, bytes)
    expect(await restart(spool)).toMatchObject({ lost: 1, bytes: recordOf('x'.repeat(40_000)) })
    expect(await filesOf(spool.directory, '.damaged')).toEqual([])
  })

  it('forwards or reports every acknowledged event after any damage, and invents no event', async () => {
    const groups = fc.array(
      fc.array(
        fc.integer({ min: 0, max: 900 }).map((length) => 'e'.repeat(length)),
        { minLength: 1, maxLength: 5 },
      ),
      { minLength: 1, maxLength: 8 },
    )
    const damages = fc.array(
      fc.record({
        file: fc.nat(),
        from: fc.nat(),
        length: fc.integer({ min: 1, max: 2_000 }),
        how: fc.constantFrom('flip', 'cut', 'end'),
      }),
      { minLength: 1, maxLength: 3 },
    )
    await fc.assert(
      fc.asyncProperty(groups, fc.nat({ max: 3 }), damages, async (lengths, forwarded, all) => {
        const named = lengths.map((group, g) => group.map((fill, i) => `${g}.${i} ${fill}`))
        const spool = await spoolOf(named, forwarded)
        for (const damage of all) await spoil(spool.directory, damage)
        const outcome = await restart(spool)
        const open = named.slice(forwarded).flat()
        const known = new Set(named.flat())
        expect(outcome.envelopes.filter((text) => !known.has(text))).toEqual([])
        const missing = open.filter((text) => !outcome.envelopes.includes(text))
        expect(outcome.lost).toBe(missing.length)
        expect(outcome.atStart).toBe(missing.length)
        expect(outcome.envelopes).toEqual(open.filter((text) => !missing.includes(text)))
      }),
      { numRuns: 60 },
    )
  }, 120_000)
})

interface Damage {
  readonly file: number
  readonly from: number
  readonly length: number
  readonly how: string
}

async function spoil(directory: string, { file, from, length, how }: Damage): Promise<void> {
  const files = await filesOf(directory, '.events')
  const path = files[file % files.length]
  if (path === undefined) return
  const { size } = await stat(path)
  const at = size === 0 ? 0 : from % size
  const bytes = await readFile(path)
  if (how === 'flip')
    for (let i = at; i < Math.min(size, at + length); i++) bytes[i] = ~(bytes[i] ?? 0)
  const left = how === 'cut' ? [bytes.subarray(0, at), bytes.subarray(at + length)] : [bytes]
  await writeFile(path, how === 'end' ? bytes.subarray(0, at) : Buffer.concat(left))
}

describe('a spool without event numbers, from an earlier release', () => {
  it('is read from its position on, including later writes', async () => {
    const [directory, receiver] = [await newFolder(), createReceiver()]
    const records = ['one', 'two'].map(unnumbered)
    await writeFile(join(directory, '000000000001.events'), Buffer.concat(records))
    const position = Buffer.alloc(20)
    position.writeDoubleLE(1, 0)
    position.writeDoubleLE(records[0]?.length ?? 0, 8)
    position.writeUInt32LE(crc32(position.subarray(0, 16)), 16)
    await writeFile(join(directory, 'position'), position)
    expect(await restart({ directory, receiver })).toMatchObject({ lost: 0, envelopes: ['two'] })
    receiver.envelopes.length = 0
    expect(await restart({ directory, receiver })).toMatchObject({ lost: 0, envelopes: [] })
  })
})

function unnumbered(text: string): Buffer {
  const header = Buffer.alloc(24)
  header.set([0xf5, 0xff, 0xc1, 0xfe])
  header.writeUInt32LE(text.length, 4)
  header.writeDoubleLE(1_789_380_930_000, 8)
  header.writeUInt32LE(crc32(text), 16)
  header.writeUInt32LE(crc32(header.subarray(0, 20)), 20)
  return Buffer.concat([header, Buffer.from(text)])
}
