import { type Db, many } from '../../lib/sql.ts'
import type { SealedTable } from './rewrap.ts'
import type { SealedPlace } from './sealing.ts'

/** A column of sealed values. Names of tables and columns are constants of the store that owns them. */
export interface SealedColumn {
  readonly table: string
  readonly column: string
  /** Columns that identify a row. No value of a key with several columns holds a space. */
  readonly key: readonly string[]
  /** Whether the key is a UUID, which is ordered as text. */
  readonly isUuid?: boolean
  /** The place of a row's value, by the values of its key. */
  readonly placeOf: (...key: string[]) => SealedPlace
}

const headBytes = 7

/** Counts, reads and replaces a column's sealed values for re-encryption under another key. */
export function sealedColumn(declared: SealedColumn): SealedTable {
  const { table, column, key, isUuid = false, placeOf } = declared
  const texts = key.map((name) => (isUuid ? `${name}::text` : name))
  const head = `substring(${column} for ${headBytes})`
  const params = (from: number): string => key.map((_, index) => `$${index + from}`).join(', ')
  const partsOf = (name: string): string[] =>
    key.length === 1 ? [name] : key.map((_, index) => name.split(' ')[index] ?? '')

  return {
    table,

    countByHead: (db) =>
      many<{ head: string; count: number }>(db, {
        text: `
          select case when get_byte(${column}, 0) = 1 then encode(${head}, 'hex') else '' end as head,
                 count(*)::integer as count
          from ${table}
          where ${column} is not null
          group by 1`,
        values: [],
      }),

    async rowsToRewrap(db, page) {
      const rows = await many<{ key: string[]; sealed: Buffer }>(db, {
        text: `
          select array[${texts.join(', ')}]::text[] as key, ${column} as sealed
          from ${table}
          where (${texts.join(', ')}) > (${params(3)}) and ${column} is not null and ${head} <> $1
          order by ${texts.join(', ')}
          limit $2`,
        values: [page.head, page.limit, ...partsOf(page.after)],
      })
      return rows.map((row) => ({
        name: row.key.join(' '),
        place: placeOf(...row.key),
        sealed: row.sealed,
      }))
    },

    async replaceSealed(db: Db, row, sealed) {
      await db.query({
        text: `
          update ${table} set ${column} = $1
          where (${key.join(', ')}) = (${params(3)}) and ${column} = $2`,
        values: [sealed, row.sealed, ...partsOf(row.name)],
      })
    },
  }
}
