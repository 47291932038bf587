import * as fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createRowBuffer } from '../../../../core/lib/copy-sql.ts'
import { wei } from '../../../../core/lib/money.ts'
import { type Pool, createPool, tx } from '../../../../core/lib/sql.ts'
import { createDeduplicator, encodeEventIds } from '../../../../core/metering/ingest/deduplicate.ts'
import { createColumns, digestOfBytes } from '../../../../core/metering/batch/parsed-batch.ts'
import { createDatabase } from '../../../support/run/postgres.ts'

let pool: Pool
let drop: () => Promise<void>
beforeAll(async () => {
  const database = await createDatabase()
  drop = database.drop
  pool = createPool({ url: database.url, max: 2, name: 'dedup-test', statementTimeoutMs: 10_000 })
  pool.on('error', () => {})
})
afterAll(async () => {
  await pool.end()
  await drop()
})

interface Event {
  readonly id: string
  readonly bytes: string
}

function columnsOf(events: readonly Event[]) {
  const columns = createColumns(events.length)
  events.forEach(({ id, bytes }, index) =>
    columns.add({
      index,
      eventId: id,
      digest: digestOfBytes(bytes),
      pixels: '0',
      sequence: '0',
      session: 0,
      feature: 0,
      from: 0,
      to: 0,
      signedAtMicros: 0,
      fee: wei(1n),
      billableSecs: '1',
    }),
  )
  return columns.read()
}

/**
 * Plain version: handles one event after the other, and compares it with the bytes of the first
 * event with its id.
 */
function plainly(events: readonly Event[], known: Map<string, string>) {
  const outcomes = {
    newTickets: [] as number[],
    duplicates: [] as number[],
    conflicts: [] as number[],
  }
  events.forEach(({ id, bytes }, index) => {
    const first = known.get(id)
    if (first === undefined) {
      known.set(id, bytes)
      outcomes.newTickets.push(index)
    } else (first === bytes ? outcomes.duplicates : outcomes.conflicts).push(index)
  })
  return outcomes
}

const inOrder = (indexes: Iterable<number>): number[] => [...indexes].toSorted((a, b) => a - b)

describe('deduplicating batches', () => {
  it('classifies new events, duplicates and conflicts like a sequence of single events', async () => {
    // Few ids and contents, so that they repeat within and between batches.
    const event = fc.record({
      id: fc.nat(30).map((n) => `event ${n}`),
      bytes: fc.constantFrom('a', 'b'),
    })
    const batches = fc.array(fc.array(event, { maxLength: 12 }), { maxLength: 5 })
    await fc.assert(
      fc.asyncProperty(batches, async (stream) => {
        await pool.query('truncate envelopes')
        const deduplicator = createDeduplicator()
        const known = new Map<string, string>()
        for (const events of stream) {
          const out = createRowBuffer()
          const places = Uint32Array.from(events.keys())
          const ids = encodeEventIds(columnsOf(events), places, out)
          const outcomes = await tx(pool, (db) => deduplicator.insert(db, ids, out))
          expect({
            newTickets: inOrder(outcomes.newTickets),
            duplicates: inOrder(outcomes.duplicates),
            conflicts: inOrder(outcomes.conflicts),
          }).toEqual(plainly(events, known))
        }
      }),
      { numRuns: 60 },
    )
  })
})
