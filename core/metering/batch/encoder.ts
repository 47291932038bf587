import { setImmediate as yieldToOthers } from 'node:timers/promises'
import { createRowBuffer } from '../../lib/copy-sql.ts'
import type { SigningLimits } from '../events/parse.ts'
import { type ParsedBatch, createBatchParser } from './parsed-batch.ts'

/** A parsed batch with the rows of its tickets. */
export interface EncodedBatch {
  readonly batch: ParsedBatch
  /** The first parts of the tickets' rows. */
  readonly rows: Buffer
}

const yieldEvery = 50

/**
 * Parses records at `at`; `limits` bound the signing times. Yields in between, because a transaction
 * may be running.
 */
export async function encodeBatch(
  records: readonly { readonly bytes: Buffer }[],
  { at, limits }: { readonly at: Date; readonly limits: SigningLimits },
): Promise<EncodedBatch> {
  const rows = createRowBuffer()
  const parser = createBatchParser(rows, { at, limits }, records.length)
  for (const [index, { bytes }] of records.entries()) {
    parser.add(index, bytes)
    if (index % yieldEvery === yieldEvery - 1) await yieldToOthers()
  }
  return { batch: parser.read(), rows: rows.slice(0, rows.end()) }
}
