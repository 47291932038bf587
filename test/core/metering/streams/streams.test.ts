import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { advanceStreams, lockStreams } from '../../../../core/metering/ingest/position-store.ts'
import { readStreams, saveEnds } from '../../../../core/metering/streams/store.ts'
import { tx } from '../../../../core/lib/sql.ts'
import { createWorld, type World } from '../harness.ts'

const source = 'kafka:tickets:1'
const start = new Date('2026-09-14T10:20:00Z')
const after = (seconds: number): Date => new Date(start.getTime() + seconds * 1_000)

let world: World
beforeEach(async () => {
  world = await createWorld()
})
afterEach(() => world.stop())

/** Books `count` ignored records of a partition from `first` on. */
async function book(
  partition: number,
  { first, count, at, producedAt }: { first: bigint; count: number; at: Date; producedAt: Date },
): Promise<void> {
  const records = Array.from({ length: count }, (_, n) => ({
    source,
    partition,
    offset: first + BigInt(n),
    bytes: Buffer.alloc(0),
    producedAtMs: producedAt.getTime(),
  }))
  await tx(world.pool, async (db) => {
    await lockStreams(db, records)
    await advanceStreams(db, { at, records, outcomes: records.map(() => 'ignored') })
  })
}

const range = (partition: number, from: bigint, end: bigint) => ({ partition, start: from, end })
const save = (at: Date, ...ranges: ReturnType<typeof range>[]): Promise<void> =>
  saveEnds(world.pool, { source, ranges }, at)
const lagOf = async (at: Date) =>
  (await readStreams(world.pool, at)).map(({ partition, nextOffset, newestAt, lag }) => ({
    partition,
    nextOffset,
    newestAt,
    ...lag,
  }))

describe('streams', () => {
  it('have the time of the newest event, which no producer sets into the future', async () => {
    await book(0, { first: 0n, count: 2, at: after(0), producedAt: after(900) })
    await book(1, { first: 0n, count: 2, at: after(0), producedAt: after(-7) })
    await book(1, { first: 2n, count: 1, at: after(1), producedAt: after(-9) })
    await book(2, { first: 0n, count: 1, at: after(0), producedAt: new Date(-1) })
    expect((await lagOf(after(2))).map(({ newestAt }) => newestAt)).toEqual([
      after(0),
      after(-7),
      null,
    ])
  })

  it('mark the partition that stands still while others move', async () => {
    await book(0, { first: 0n, count: 10, at: after(0), producedAt: after(0) })
    await book(1, { first: 0n, count: 10, at: after(0), producedAt: after(0) })
    await save(after(1), range(0, 0n, 10n), range(1, 0n, 10n))
    await book(1, { first: 10n, count: 80, at: after(65), producedAt: after(60) })
    await save(after(66), range(0, 0n, 14n), range(1, 0n, 95n))
    expect(await lagOf(after(70))).toEqual([
      {
        partition: 0,
        nextOffset: 10n,
        newestAt: after(0),
        events: 4n,
        seconds: 69,
        isStalled: true,
      },
      {
        partition: 1,
        nextOffset: 90n,
        newestAt: after(60),
        events: 5n,
        seconds: 10,
        isStalled: false,
      },
    ])
  })

  it('list a partition of which nothing was ever booked, once it has events', async () => {
    await save(after(0), range(0, 3n, 3n), range(1, 3n, 3n))
    expect(await lagOf(after(1))).toEqual([])
    await save(after(10), range(0, 3n, 3n), range(1, 3n, 5n))
    expect(await lagOf(after(20))).toEqual([
      { partition: 1, nextOffset: 3n, newestAt: null, events: 2n, seconds: 20, isStalled: false },
    ])
    expect(await lagOf(after(61))).toMatchObject([{ seconds: 61, isStalled: true }])
  })

  it('keep the newer of two readings, and count no events that the broker has deleted', async () => {
    await book(0, { first: 0n, count: 1, at: after(0), producedAt: after(0) })
    await save(after(20), range(0, 90n, 100n))
    await save(after(10), range(0, 0n, 50n))
    expect(await lagOf(after(21))).toMatchObject([{ nextOffset: 90n, events: 10n }])
  })

  it('count as booked up to the end when the broker has deleted what was not booked', async () => {
    await book(0, { first: 0n, count: 1, at: after(0), producedAt: after(0) })
    await save(after(300), range(0, 90n, 90n))
    await save(after(310), range(0, 90n, 91n))
    expect(await lagOf(after(310))).toMatchObject([{ events: 1n, seconds: 10, isStalled: false }])
  })

  it('forget the end of a recreated topic a day after its last reading', async () => {
    const old = { source: 'kafka:tickets:0', ranges: [range(0, 0n, 5n)] }
    await book(0, { first: 0n, count: 1, at: after(0), producedAt: after(0) })
    await saveEnds(world.pool, old, after(0))
    const ends = async (at: Date) =>
      (await readStreams(world.pool, at)).map(({ source: name, end, lag }) => [
        name,
        end?.readAt,
        lag?.events,
      ])
    await save(after(86_400), range(0, 0n, 1n))
    expect(await ends(after(86_400))).toEqual([
      [old.source, after(0), undefined],
      [source, after(86_400), 0n],
    ])
    await save(after(86_401), range(0, 0n, 1n))
    expect(await ends(after(86_401))).toEqual([[source, after(86_401), 0n]])
  })
})
