import type { Pool } from '../../../core/lib/sql.ts'

interface Node {
  readonly [key: string]: unknown
}
/** A scan of a table, and the rows that it read. */
export interface Scan {
  readonly node: string
  readonly on: string
  readonly read: number
}

/** Returns the same pool, which also explains its queries, and the table scans in their plans. */
export function explaining(pool: Pool): { pool: Pool; scans: Scan[] } {
  const scans: Scan[] = []
  const explain =
    (target: Pick<Pool, 'query'>) =>
    async (statement: string | { text: string; values: unknown[] }) => {
      const { text, values } =
        typeof statement === 'string' ? { text: statement, values: [] } : statement
      if (/^\s*(with|select)\b/.test(text)) {
        const { rows } = await target.query<{ 'QUERY PLAN': [{ Plan: Node }] }>(
          `explain (analyze, format json) ${text}`,
          values,
        )
        collect(rows[0]?.['QUERY PLAN'][0].Plan, scans)
      }
      return target.query(text, values)
    }
  const proxied = <T extends object>(target: T, replaced: Record<string, unknown>): T =>
    new Proxy(target, {
      get: (of, name) =>
        typeof name === 'string' && name in replaced ? replaced[name] : bound(of, name),
    })
  const connect = async () => {
    const client = await pool.connect()
    return proxied(client, { query: explain(client) })
  }
  return { pool: proxied(pool, { query: explain(pool), connect }), scans }
}

function bound(of: object, name: string | symbol): unknown {
  const value: unknown = Reflect.get(of, name)
  return typeof value === 'function' ? value.bind(of) : value
}

const number = (value: unknown): number => (typeof value === 'number' ? value : 0)

function collect(node: Node | undefined, scans: Scan[]): void {
  if (!node) return
  const on = node['Relation Name']
  if (typeof on === 'string') {
    const each =
      number(node['Actual Rows']) +
      number(node['Rows Removed by Filter']) +
      number(node['Rows Removed by Index Recheck'])
    // A node that was planned but never run reads nothing.
    if (number(node['Actual Loops']) > 0)
      scans.push({ node: String(node['Node Type']), on, read: each * number(node['Actual Loops']) })
  }
  for (const child of Array.isArray(node['Plans']) ? node['Plans'] : []) collect(child, scans)
}
