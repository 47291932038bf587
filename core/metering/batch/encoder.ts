import { setImmediate as yieldToOthers } from 'node:timers/promises'
import { type RowBuffer, createRowBuffer } from '../../lib/copy-sql.ts'
import type { SigningLimits } from '../events/parse.ts'
import { type ParsedBatch, createBatchParser } from './parsed-batch.ts'

/** A parsed batch with the rows of its tickets. */
export interface EncodedBatch {
  readonly batch: ParsedBatch
  /** The first parts of the tickets' rows. */
  readonly rows: Buffer
  /** Call once, when the rows are no longer needed. */
  readonly release: () => void
}

const yieldEvery = 50
const maxIdleBuffers = 4

/** Parses batches, and reuses the memory of their rows. `limits` bound the signing times. */
export function createBatchEncoder(limits: SigningLimits) {
  const idle: RowBuffer[] = []

  /** Parses records at `at`. Yields in between, because a transaction may be running. */
  async function encode(
    records: readonly { readonly bytes: Buffer }[],
    at: Date,
  ): Promise<EncodedBatch> {
    const rows = idle.pop() ?? createRowBuffer()
    const parser = createBatchParser(rows, { at, limits }, records.length)
    for (const [index, { bytes }] of records.entries()) {
      parser.add(index, bytes)
      if (index % yieldEvery === yieldEvery - 1) await yieldToOthers()
    }
    return {
      batch: parser.read(),
      rows: rows.slice(0, rows.end()),
      release: () => {
        rows.clear()
        if (idle.length < maxIdleBuffers) idle.push(rows)
      },
    }
  }

  return { encode }
}

export type BatchEncoder = ReturnType<typeof createBatchEncoder>
