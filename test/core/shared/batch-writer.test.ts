import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type Db, type Pool, createPool, many, sql } from '../../../core/lib/sql.ts'
import { createBatchWriter } from '../../../core/shared/batch-writer.ts'
import { DomainError } from '../../../proto/errors.ts'
import { createDatabase, type TestDatabase } from '../../support/run/postgres.ts'

let database: TestDatabase
let pool: Pool
beforeEach(async () => {
  database = await createDatabase()
  pool = createPool({ url: database.url, max: 6, name: 'batch-test', statementTimeoutMs: 20_000 })
  pool.on('error', () => {})
  await pool.query('create table notes (note text primary key check (note <> $$bad$$), tx bigint)')
})
afterEach(async () => {
  await pool.end()
  await database.drop()
})

/** Writes notes. The writer itself rejects `refused`; the database rejects `bad`. */
async function writeNotes(db: Db, notes: readonly string[]): Promise<(string | DomainError)[]> {
  const good = notes.filter((note) => note !== 'refused')
  await db.query(sql`
    insert into notes (note, tx) select note, txid_current() from unnest(${good}::text[]) as note`)
  return notes.map((note) =>
    note === 'refused' ? new DomainError('CONFLICT', 'not this one') : note.toUpperCase(),
  )
}

const rows = () =>
  many<{ note: string; tx: bigint }>(pool, sql`select note, tx from notes order by note`)

describe('createBatchWriter', () => {
  it('writes concurrent requests in one transaction, and returns to each its own reply', async () => {
    const write = createBatchWriter(pool, writeNotes)
    expect(await Promise.all(['a', 'b', 'c'].map(write))).toEqual(['A', 'B', 'C'])
    expect(new Set((await rows()).map(({ tx }) => tx)).size).toBe(1)
  })

  it('rejects one request without the others', async () => {
    const write = createBatchWriter(pool, writeNotes)
    const [first, refused, last] = await Promise.allSettled(['a', 'refused', 'b'].map(write))
    expect([first, last]).toMatchObject([{ value: 'A' }, { value: 'B' }])
    expect(refused).toMatchObject({ reason: { reason: 'CONFLICT' } })
    expect((await rows()).map(({ note }) => note)).toEqual(['a', 'b'])
  })

  it('writes each request alone when the database rejects the batch', async () => {
    const write = createBatchWriter(pool, writeNotes)
    const [first, bad, last] = await Promise.allSettled(['a', 'bad', 'b'].map(write))
    expect([first, last]).toMatchObject([{ value: 'A' }, { value: 'B' }])
    expect(bad).toMatchObject({ status: 'rejected', reason: { code: '23514' } })
    const stored = await rows()
    expect(stored.map(({ note }) => note)).toEqual(['a', 'b'])
    expect(new Set(stored.map(({ tx }) => tx)).size).toBe(2)
  })

  it('does not retry when the database is unavailable', async () => {
    let calls = 0
    const write = createBatchWriter<string, string>(pool, async () => {
      calls++
      throw Object.assign(new Error('terminating connection'), { code: '57P01' })
    })
    const settled = await Promise.allSettled(['a', 'b'].map(write))
    expect(settled.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
    expect(calls).toBe(1)
  })
})
