import type { Pool } from '../../../../core/lib/sql.ts'

/**
 * Transactions for in-memory stores. They run one at a time; a rollback restores every replaced
 * row. Tests of overlapping transactions use PostgreSQL.
 */
export function createMemoryDatabase({ onChange }: { onChange?: (key: string) => void } = {}) {
  let undo: (() => void)[] = []
  let isOpen = false
  let turn: Promise<void> = Promise.resolve()

  /** Sets a row of a table, or deletes it if `value` is undefined. */
  function set<Row>(table: Map<string, Row>, key: string, value: Row | undefined): void {
    if (isOpen) {
      const old = table.get(key)
      undo.push(() => void (old === undefined ? table.delete(key) : table.set(key, old)))
    }
    if (value === undefined) table.delete(key)
    else table.set(key, value)
    onChange?.(key)
  }

  async function connect() {
    const before = turn
    const { promise, resolve: release } = Promise.withResolvers<void>()
    turn = promise
    await before
    return { query, release, on: () => {}, off: () => {} }
  }

  async function query(statement: unknown): Promise<{ rows: [] }> {
    if (statement === 'begin') isOpen = true
    else if (statement === 'commit') undo = []
    else if (statement === 'rollback') rollBack()
    else throw new Error(`a store in memory runs no SQL: ${String(statement)}`)
    if (statement !== 'begin') isOpen = false
    return { rows: [] }
  }

  function rollBack(): void {
    isOpen = false
    for (const step of undo.reverse()) step()
    undo = []
  }

  // The functions under test only pass it to their stores.
  const pool = { connect, query } as unknown as Pool
  return { pool, set }
}

export type MemoryDatabase = ReturnType<typeof createMemoryDatabase>
