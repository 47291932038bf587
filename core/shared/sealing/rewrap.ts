import { DomainError } from '../../../proto/errors.ts'
import type { Db } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { audit } from '../audit.ts'
import { type SealedPlace, SealError, type Sealing } from './sealing.ts'

/** A sealed value of a table. `name` is unique in the table and orders its rows. */
export interface SealedRow {
  readonly name: string
  readonly place: SealedPlace
  readonly sealed: Buffer
}

/** A table with sealed values, provided by its store. */
export interface SealedTable {
  readonly table: string
  /** Number of values per head, in hexadecimal; "" for values that do not begin with a version. */
  countByHead(db: Db): Promise<readonly { readonly head: string; readonly count: number }[]>
  /** At most `limit` rows after `after`, ordered by name, that begin with another head. */
  rowsToRewrap(
    db: Db,
    page: { readonly head: Buffer; readonly after: string; readonly limit: number },
  ): Promise<readonly SealedRow[]>
  /** Replaces a value, unless it has changed since it was read. */
  replaceSealed(db: Db, row: SealedRow, sealed: Buffer): Promise<void>
}

export interface RewrapDeps {
  readonly pool: Db
  readonly sealing: Sealing
  readonly tables: readonly SealedTable[]
  readonly now: Now
}

const batchMax = 200

/**
 * Re-encrypts sealed values with the current key-encryption key, a batch at a time, while the
 * service runs.
 */
export function createRewrap({ pool, sealing, tables, now }: RewrapDeps) {
  /**
   * Re-encrypts one batch. The returned cursor is empty at the end. Throws REQUEST_INVALID for a
   * cursor that this function did not return.
   */
  async function rewrap(cursor: string, correlationId: string) {
    const { index, after } = parseCursor(cursor, tables.length)
    const table = tables[index]
    if (!table) return { rewrapped: 0, unopened: 0, cursor: '' }
    const page = { head: sealing.currentKey().head, after, limit: batchMax }
    const rows = await table.rowsToRewrap(pool, page)
    let rewrapped = 0
    for (const row of rows) if (await reseal(table, row)) rewrapped++
    if (rewrapped > 0) await record(table.table, rewrapped, correlationId)
    const last = rows.at(-1)
    const isWhole = rows.length < batchMax || !last
    const next = isWhole ? { index: index + 1, after: '' } : { index, after: last.name }
    return {
      rewrapped,
      unopened: rows.length - rewrapped,
      cursor: next.index < tables.length ? formatCursor(next) : '',
    }
  }

  async function reseal(table: SealedTable, row: SealedRow): Promise<boolean> {
    try {
      const plain = sealing.unseal(row.sealed, row.place)
      await table.replaceSealed(pool, row, sealing.seal(plain, row.place))
      return true
    } catch (error) {
      if (error instanceof SealError) return false
      throw error
    }
  }

  const record = (table: string, rewrapped: number, correlationId: string): Promise<void> =>
    audit(pool, {
      appId: null,
      actor: 'operator',
      action: 'sealed_values_rewrapped',
      status: 'success',
      correlationId,
      details: { table, rewrapped, keyId: sealing.currentKey().id },
      at: now(),
    })

  /** Number of values per table and key. */
  async function count() {
    const sealed = []
    for (const { table, countByHead } of tables) {
      const counts = new Map<string, number>()
      for (const row of await countByHead(pool)) {
        const keyId = sealing.idOfHead(row.head) ?? ''
        counts.set(keyId, (counts.get(keyId) ?? 0) + row.count)
      }
      sealed.push(...[...counts].map(([keyId, sum]) => ({ table, keyId, count: sum })))
    }
    return { currentKeyId: sealing.currentKey().id, sealed }
  }

  return { rewrap, count }
}

export type Rewrap = ReturnType<typeof createRewrap>

interface Position {
  readonly index: number
  readonly after: string
}

const formatCursor = ({ index, after }: Position): string =>
  Buffer.from(`${index} ${after}`).toString('base64url')

function parseCursor(cursor: string, tables: number): Position {
  if (cursor === '') return { index: 0, after: '' }
  const parts = /^(\d{1,3}) (.*)$/s.exec(Buffer.from(cursor, 'base64url').toString('utf8'))
  const index = Number(parts?.[1] ?? tables)
  if (index >= tables)
    throw new DomainError('REQUEST_INVALID', 'cursor is not one that was returned here')
  return { index, after: parts?.[2] ?? '' }
}
