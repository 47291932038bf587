import { type AppId, userId } from '../platform/ids.ts'
import { usdAttos, wei } from '../lib/money.ts'
import { type Db, type Pool, type Statement, many, sql, tx } from '../lib/sql.ts'
import { selectedHours, selectedRequest, selectedSessions } from './selection-store.ts'
import type { Grouping, Selection, UsageRow } from './types.ts'

// By the dearest rows first; what is beyond the rows comes together in one.
const keysOf: Readonly<Record<Grouping, readonly Key[]>> = {
  none: [],
  user: ['user_id'],
  pipeline_model: ['pipeline', 'model_id'],
  daily_pipeline: ['day', 'pipeline', 'model_id'],
  manifest: ['manifest_id', 'pipeline', 'model_id'],
  session: ['user_id', 'session_id', 'manifest_id', 'pipeline', 'model_id'],
  day: ['day'],
}

type Key = 'user_id' | 'pipeline' | 'model_id' | 'day' | 'manifest_id' | 'session_id'
const keys: readonly Key[] = ['user_id', 'pipeline', 'model_id', 'day', 'manifest_id', 'session_id']

interface Row {
  rest: boolean
  user_id: string | null
  external_user_id: string | null
  pipeline: string | null
  model_id: string | null
  day: string | null
  manifest_id: string | null
  session_id: string | null
  requests: string
  unpriced: string
  fee: string
  cost: string
  secs: string
  first_at: Date | null
  last_at: Date | null
}

const toRow = (row: Row): UsageRow => ({
  rest: row.rest,
  userId: row.user_id === null ? null : userId(row.user_id),
  externalUserId: row.external_user_id,
  pipeline: row.pipeline,
  modelId: row.model_id,
  manifestId: row.manifest_id,
  sessionId: row.session_id,
  day: row.day,
  requests: BigInt(row.requests),
  unpriced: BigInt(row.unpriced),
  fee: wei(BigInt(row.fee)),
  cost: usdAttos(BigInt(row.cost)),
  billableSecs: row.secs,
  firstAt: row.first_at,
  lastAt: row.last_at,
})

/**
 * Sums of a selection by a grouping, the dearest first, at most `limit` rows and one for the rest. All of it in one
 * state of the database.
 */
export async function sums(
  pool: Pool,
  selection: Selection,
  by: { grouping: Grouping; limit: number },
): Promise<UsageRow[]> {
  if (selection.requestId !== null)
    return inRequest(pool, (db) => grouped(db, selectedRequest(selection), { ...by, ...selection }))
  if (by.grouping !== 'manifest' && by.grouping !== 'session')
    return grouped(pool, selectedHours(selection), { ...by, ...selection })
  return tx(pool, async (db) => {
    await db.query(sql`set transaction isolation level repeatable read, read only`)
    const rows = await grouped(db, selectedSessions(selection), { ...by, ...selection })
    const all = await grouped(db, selectedHours(selection), {
      ...by,
      ...selection,
      grouping: 'none',
    })
    return withRest(rows, all)
  })
}

/**
 * Runs a query by gateway request. The planner takes an index that knows only of ranges of pages for useless, and would
 * read everything instead.
 */
export const inRequest = <T>(pool: Pool, work: (db: Db) => Promise<T>): Promise<T> =>
  tx(pool, async (db) => {
    await db.query(sql`set local enable_seqscan = off`)
    // Starting workers would take longer than the few pages.
    await db.query(sql`set local max_parallel_workers_per_gather = 0`)
    return work(db)
  })

interface By {
  readonly grouping: Grouping
  readonly limit: number
  readonly appId: AppId
}

async function grouped(
  db: Db,
  head: Statement,
  { grouping, limit, appId }: By,
): Promise<UsageRow[]> {
  const by = keysOf[grouping]
  const rows = await many<Row>(
    db,
    after(head, {
      text: `
    , grouped as (
      select ${keys
        .map((key) => (by.includes(key) ? expressionOf(key) : `null::${typeOf(key)}`))
        .map((each, i) => `${each} as ${keys[i]}`)
        .join(', ')},
             coalesce(sum(requests), 0) as requests, coalesce(sum(unpriced), 0) as unpriced, coalesce(sum(fee), 0) as fee,
             coalesce(sum(cost), 0) as cost, coalesce(sum(secs), 0) as secs, min(first_at) as first_at, max(last_at) as last_at
      from selected
      ${by.length === 0 ? '' : `group by ${by.map((key) => keys.indexOf(key) + 1).join(', ')}`}
    ), ranked as (
      select *, row_number() over (order by cost desc, requests desc, ${keys.join(', ')}) > $1 as rest,
             row_number() over (order by cost desc, requests desc, ${keys.join(', ')}) as place
      from grouped
    ), bounded as (
      select rest, ${keys.map((key) => `case when not rest then ${key} end as ${key}`).join(', ')},
             sum(requests) as requests, sum(unpriced) as unpriced, sum(fee) as fee, sum(cost) as cost, sum(secs) as secs,
             min(first_at) as first_at, max(last_at) as last_at, min(place) as place
      from ranked
      group by ${[rest, ...keys].map((_, i) => i + 1).join(', ')}
    )
    select b.*, u.external_user_id
    from bounded b
    left join end_users u on u.app_id = $2 and u.id = b.user_id
    order by b.place`,
      values: [limit, appId],
    }),
  )
  return rows.map(toRow)
}

const rest = 'rest'
const typeOf = (key: Key): string => (key === 'user_id' ? 'uuid' : 'text')
const expressionOf = (key: Key): string =>
  key === 'day' ? `to_char(first_at at time zone 'UTC', 'YYYY-MM-DD')` : key

/** Puts `tail` behind `head`, and numbers its holes on from there. */
export function after(head: Statement, tail: Statement): Statement {
  const shifted = tail.text.replace(
    /\$(\d+)/g,
    (_hole, position: string) => `$${Number(position) + head.values.length}`,
  )
  return { text: head.text + shifted, values: [...head.values, ...tail.values] }
}

// What no session row covers goes to the rest, so that the rows add up to the hours.
function withRest(rows: readonly UsageRow[], [all]: readonly UsageRow[]): UsageRow[] {
  if (!all) return [...rows]
  const left = (value: (row: UsageRow) => bigint): bigint =>
    rows.reduce((open, row) => open - value(row), value(all))
  const requests = left((row) => row.requests)
  if (requests === 0n) return [...rows]
  const missing = {
    requests,
    unpriced: left((row) => row.unpriced),
    fee: wei(left((row) => row.fee)),
    cost: usdAttos(left((row) => row.cost)),
  }
  const shown = rows.filter((row) => !row.rest)
  const known = rows.find((row) => row.rest)
  const billableSecs = decimalOf(
    shown.reduce((open, row) => open - scaled(row.billableSecs), scaled(all.billableSecs)),
  )
  const none = {
    userId: null,
    externalUserId: null,
    pipeline: null,
    modelId: null,
    manifestId: null,
    sessionId: null,
    day: null,
  }
  const merged =
    known === undefined
      ? missing
      : {
          requests: missing.requests + known.requests,
          unpriced: missing.unpriced + known.unpriced,
          fee: wei(missing.fee + known.fee),
          cost: usdAttos(missing.cost + known.cost),
        }
  return [...shown, { ...none, ...merged, rest: true, billableSecs, firstAt: null, lastAt: null }]
}

const places = 30

/** A decimal with at most 30 places, as Postgres writes it, as an integer. */
function scaled(text: string): bigint {
  const [whole = '0', fraction = ''] = text.split('.')
  return BigInt(whole + fraction.padEnd(places, '0'))
}

function decimalOf(value: bigint): string {
  const digits = value.toString().padStart(places + 1, '0')
  return `${digits.slice(0, -places)}.${digits.slice(-places)}`.replace(/\.?0+$/, '')
}
