import { randomUUID } from 'node:crypto'
import * as fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  byteas,
  copyRows,
  createRowBuffer,
  instants,
  int8s,
  numerics,
  texts,
  uuids,
} from '../../../core/lib/copy-sql.ts'
import { type Pool, createPool, tx } from '../../../core/lib/sql.ts'
import { createDatabase } from '../../support/run/postgres.ts'

let pool: Pool
let drop: () => Promise<void>
beforeAll(async () => {
  const database = await createDatabase()
  drop = database.drop
  pool = createPool({ url: database.url, max: 2, name: 'copy-test', statementTimeoutMs: 10_000 })
  pool.on('error', () => {})
  await pool.query(`create table copied (place integer, words text, amount numeric, small integer, large bigint,
    yes boolean, at timestamptz, id uuid, constraint small_enough check (small < 1000000))`)
})
afterAll(async () => {
  await pool.end()
  await drop()
})

const digits = (max: number) => fc.stringMatching(new RegExp(`^[0-9]{1,${max}}$`))
const decimal = fc
  .tuple(fc.boolean(), digits(30), fc.option(digits(30)))
  .map(
    ([negative, whole, fraction]) =>
      `${negative ? '-' : ''}${whole.replace(/^0+(?=\d)/, '')}${fraction === null ? '' : `.${fraction}`}`,
  )
const row = fc.record({
  words: fc
    .oneof(
      fc.string(),
      fc.string({ unit: 'binary', maxLength: 100 }),
      fc.constant('x'.repeat(5_000)),
    )
    .map((text) => text.toWellFormed().replaceAll('\u0000', '')),
  amount: fc.option(decimal),
  small: fc.integer({ min: -(2 ** 31), max: 999_999 }),
  large: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
  yes: fc.boolean(),
  // The years 1970 to 2223: a double holds their distance to 2000 exactly.
  micros: fc.integer({ min: 0, max: 8_000_000_000_000_000 }),
})

describe('copyRows', () => {
  it('stores any values unchanged', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(row, { maxLength: 40 }), async (given) => {
        const rows = createRowBuffer(new ArrayBuffer(64))
        const ids = given.map(() => randomUUID())
        given.forEach(({ words, amount, small, large, yes, micros }, place) => {
          rows.row(8)
          rows.int4(place)
          rows.text(words)
          if (amount === null) rows.none()
          else rows.numeric(amount)
          rows.int4(small)
          rows.int8(large)
          rows.boolean(yes)
          rows.instant(micros)
          rows.hex(ids[place] ?? '')
        })
        await tx(pool, async (db) => {
          await db.query('delete from copied')
          await copyRows(db, 'copied', rows.slice(0, rows.end()))
        })
        const read = await pool.query(
          `
        select words, amount, small, large, yes, (extract(epoch from at) * 1000000)::bigint as micros, id,
               amount is not distinct from told as same
        from copied join unnest($1::numeric[]) with ordinality as t (told, nth) on nth = place + 1 order by place`,
          [given.map(({ amount }) => amount)],
        )
        expect(read.rows).toEqual(
          given.map(({ words, small, large, yes, micros }, place) => ({
            words,
            small,
            large,
            yes,
            micros: BigInt(micros),
            id: ids[place],
            same: true,
            amount: read.rows[place].amount,
          })),
        )
      }),
      { numRuns: 60 },
    )
  })

  it('rejects with the Postgres error and leaves the connection usable', async () => {
    const rows = createRowBuffer()
    for (let i = 0; i < 50_000; i++) {
      rows.row(2)
      rows.int4(i)
      rows.int4(i === 40_000 ? 1_000_000 : 1)
    }
    await tx(pool, async (db) => {
      await db.query('savepoint before')
      const copying = copyRows(db, 'copied (place, small)', rows.slice(0, rows.end()))
      await expect(copying).rejects.toMatchObject({ code: '23514' })
      await db.query('rollback to savepoint before')
      expect((await db.query('select 1 as one')).rows).toEqual([{ one: 1 }])
    })
  })
})

describe('array parameters', () => {
  it("store the same values as the driver's arrays", async () => {
    const item = fc.record({
      words: row.map(({ words }) => words),
      amount: decimal,
      large: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
      at: fc.option(
        fc.date({ min: new Date(0), max: new Date('2200-01-01'), noInvalidDate: true }),
      ),
      id: fc.uuid(),
      hash: fc.option(
        fc.uint8Array({ maxLength: 64 }).map((bytes) => Buffer.from(bytes).toString('hex')),
      ),
    })
    await fc.assert(
      fc.asyncProperty(fc.array(item, { maxLength: 40 }), async (items) => {
        const column = <T>(value: (of: (typeof items)[number]) => T): T[] => items.map(value)
        const { rows } = await pool.query(
          `
        select $1::text[] = $7::text[] as words, $2::numeric[]::text = $8::numeric[]::text as amount,
               $3::bigint[] = $9::bigint[] as large, $4::timestamptz[] = $10::timestamptz[] as at,
               $5::uuid[] = $11::uuid[] as id, $6::bytea[] = $12::bytea[] as hash`,
          [
            texts(column((of) => of.words)),
            numerics(column((of) => of.amount)),
            int8s(column((of) => of.large)),
            instants(column((of) => of.at)),
            uuids(column((of) => of.id)),
            byteas(column((of) => of.hash)),
            column((of) => of.words),
            column((of) => of.amount),
            column((of) => of.large),
            column((of) => of.at),
            column((of) => of.id),
            column((of) => of.hash && Buffer.from(of.hash, 'hex')),
          ],
        )
        const same = { words: true, amount: true, large: true, at: true, id: true, hash: true }
        expect(rows).toEqual([same])
      }),
      { numRuns: 60 },
    )
  })

  it('reject text that is not hexadecimal', () => {
    expect(() => uuids(['0190a5c0-0000-7000-8000-00000000000g'])).toThrow('not hexadecimal')
  })
})
