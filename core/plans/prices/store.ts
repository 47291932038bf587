import { type Db, many, maybeOne, sql } from '../../lib/sql.ts'
import type { AppId } from '../../shared/ids.ts'

/** Writes price_chain and price_heads. */

/** The columns of a row as text. */
export type Facts = Readonly<Record<string, string | null>>

/** A plan version with its bundles, or a cut, as stored now. */
export interface Priced {
  readonly item: string
  readonly facts: Facts
}

export interface ChainedPrice extends Priced {
  readonly number: bigint
  /** Hexadecimal. */
  readonly hash: string
}

export interface PriceHead {
  readonly number: bigint
  readonly hash: string
}

/** Locks the head of an app's chain until the transaction ends. Creates a missing head. */
export async function lockHead(db: Db, app: AppId): Promise<PriceHead> {
  await db.query(sql`
    insert into price_heads (app_id, number, hash) values (${app}, 0, '') on conflict (app_id) do nothing`)
  const row = await maybeOne<PriceHead>(
    db,
    sql`
    select number, encode(hash, 'hex') as hash
    from price_heads
    where app_id = ${app}
    for update`,
  )
  if (row === null) throw new Error('the head of a price chain was not made')
  return row
}

/** Appends one or more items to an app's chain. The caller holds the lock on the head. */
export async function appendItems(
  db: Db,
  app: AppId,
  items: readonly ChainedPrice[],
): Promise<void> {
  const column = <T>(value: (item: ChainedPrice) => T): T[] => items.map(value)
  await db.query(sql`
    insert into price_chain (app_id, number, item, facts, hash)
    select ${app}, number, item, facts, decode(hash, 'hex')
    from unnest(${column(({ number }) => number)}::bigint[], ${column(({ item }) => item)}::text[],
                ${column(({ facts }) => JSON.stringify(facts))}::jsonb[], ${column(({ hash }) => hash)}::text[])
      as c (number, item, facts, hash)`)
  const head = items.at(-1)
  await db.query(sql`
    update price_heads
    set number = ${head?.number}, hash = decode(${head?.hash}, 'hex')
    where app_id = ${app}`)
}

/** Returns null while the app has no chained items. */
export async function findHead(db: Db, app: AppId): Promise<PriceHead | null> {
  return maybeOne<PriceHead>(
    db,
    sql`
    select number, encode(hash, 'hex') as hash
    from price_heads
    where app_id = ${app} and number > 0`,
  )
}

/** Returns a page of an app's chain after the number `after`, in order. */
export async function chainAfter(
  db: Db,
  { app, after, limit }: { app: AppId; after: bigint; limit: number },
): Promise<ChainedPrice[]> {
  return many<ChainedPrice>(
    db,
    sql`
    select number, item, facts, encode(hash, 'hex') as hash
    from price_chain
    where app_id = ${app} and number > ${after}
    order by number
    limit ${limit}`,
  )
}

/**
 * Plan versions with their bundles, and cuts, of the app $1. Facts are text, so that numbers keep
 * all digits. If a column is added to these tables, it is not a fact of rows already chained.
 */
const pricedRows = `
    select 'plan_version ' || v.plan_id || ' ' || v.version as item, v.created_at as made_at,
           jsonb_build_object(
             'terms_id', v.id::text, 'type', v.type, 'price_amount', v.price_amount, 'price_currency', v.price_currency,
             'included_attos', v.included_attos::text, 'included_units', v.included_units::text,
             'overage_rate_wei', v.overage_rate_wei::text, 'retail_rate', trim_scale(v.retail_rate)::text,
             'billing_cycle', v.billing_cycle, 'charge_threshold_attos', v.charge_threshold_attos::text,
             'created_at', to_char(v.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')) || b.bundles as facts
    from plan_versions v
    cross join lateral (
      select coalesce(jsonb_object_agg(
               'bundle ' || jsonb_build_array(pipeline, model_id)::text,
               jsonb_build_object('id', id, 'position', position, 'retail_rate', trim_scale(retail_rate)::text,
                                  'max_price_per_unit', max_price_per_unit::text, 'sla_target_score', sla_target_score::text,
                                  'sla_target_p95_ms', sla_target_p95_ms)::text), '{}') as bundles
      from plan_bundles
      where app_id = v.app_id and plan_id = v.plan_id and version = v.version) b
    where v.app_id = $1
    union all
    select 'cut ' || to_char(since at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), created_at,
           jsonb_build_object('percent', percent::text,
                              'created_at', to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
    from platform_cuts
    where app_id = $1`

/** Returns unchained rows of an app, oldest first. */
export const unchained = (db: Db, app: AppId, limit: number): Promise<Priced[]> =>
  many<Priced>(db, {
    text: `
    select item, facts
    from (${pricedRows}) p
    where not exists (select from price_chain c where c.app_id = $1 and c.item = p.item)
    order by made_at, item
    limit $2`,
    values: [app, limit],
  })

/** Returns these rows of an app as stored now. Omits missing rows. */
export const findPriced = (db: Db, app: AppId, items: readonly string[]): Promise<Priced[]> =>
  many<Priced>(db, {
    text: `select item, facts from (${pricedRows}) p where item = any($2::text[])`,
    values: [app, items],
  })
