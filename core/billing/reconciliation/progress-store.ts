import { type Db, many, one, sql } from '../../lib/sql.ts'
import { type AppId, appId } from '../../shared/ids.ts'
import { accountColumn } from '../payments/customer-store.ts'
import type { PaymentProcessor, Plane, ProcessorAccount } from '../processor/port.ts'

/** Writes processor_reconciliations: how far each account of the processor is compared. */

/** An account of the processor whose movements are compared. */
export interface Place {
  readonly processor: PaymentProcessor['kind']
  readonly at: ProcessorAccount
  /** Null for the platform's own account. */
  readonly appId: AppId | null
}

export interface Progress extends Place {
  readonly through: Date
  readonly windowTo: Date | null
  readonly pageAfter: string | null
  readonly failures: number
}

interface ProgressRow {
  processor: PaymentProcessor['kind']
  plane: Plane
  account_id: string
  app_id: string | null
  through: Date
  window_to: Date | null
  page_after: string | null
  failures: number
}

const columns = 'processor, plane, account_id, app_id, through, window_to, page_after, failures'

const fromRow = (row: ProgressRow): Progress => ({
  processor: row.processor,
  at: { plane: row.plane, account: row.account_id === '' ? null : row.account_id },
  appId: row.app_id === null ? null : appId(row.app_id),
  through: row.through,
  windowTo: row.window_to,
  pageAfter: row.page_after,
  failures: row.failures,
})

/**
 * Inserts the accounts that are not known yet: the platform's own in each plane, and those of
 * apps. Each begins where its first customer was created, because nothing was paid before.
 */
export async function insertPlaces(
  db: Db,
  {
    processor,
    planes,
    at,
  }: Pick<Place, 'processor'> & { readonly planes: readonly Plane[]; readonly at: Date },
): Promise<void> {
  for (const place of await findNewPlaces(db, processor, planes))
    // First the customer, alone: on a cluster the other tables are on the coordinator.
    await db.query(sql`
    with first as materialized (
      select min(created_at) - interval '1 hour' as at
      from processor_customers
      where processor = ${processor} and plane = ${place.plane} and (${place.account_id} = '' or account_id = ${place.account_id})
    )
    insert into processor_reconciliations (processor, plane, account_id, app_id, through, due_at)
    select ${processor}, ${place.plane}, ${place.account_id}, ${place.app_id}::uuid,
           coalesce(first.at, ${at}::timestamptz - interval '1 hour'), ${at}
    from first
    on conflict do nothing`)
}

const findNewPlaces = (
  db: Db,
  processor: Place['processor'],
  planes: readonly Plane[],
): Promise<Pick<ProgressRow, 'plane' | 'account_id' | 'app_id'>[]> =>
  many(
    db,
    sql`
    select w.plane, w.account_id, w.app_id
    from (
      select unnest(${planes}::text[]) as plane, '' as account_id, null::uuid as app_id
      union all
      select plane, account, app_id
      from processor_accounts
      where processor = ${processor} and account is not null and plane = any(${planes}::text[])) w
    where not exists (
      select from processor_reconciliations
      where processor = ${processor} and plane = w.plane and account_id = w.account_id)`,
  )

/** The processor, with the planes that are configured. Accounts of others are not compared. */
export type Compared = Pick<PaymentProcessor, 'kind' | 'planes'>

/** Lists the accounts by plane, the platform's own first. */
export async function listPlaces(
  db: Db,
  { kind, planes }: Compared,
  { after, limit }: { readonly after: ProcessorAccount | null; readonly limit: number },
): Promise<Progress[]> {
  const rows = await many<ProgressRow>(db, {
    text: `
    select ${columns}
    from processor_reconciliations
    where processor = $1 and plane = any($2::text[]) and ($3::text is null or (plane, account_id) > ($3, $4))
    order by plane, account_id
    limit $5`,
    values: [kind, planes, after?.plane ?? null, after && accountColumn(after), limit],
  })
  return rows.map(fromRow)
}

/**
 * Claims accounts that are due until `until`, the platform's own first. Skips those that another
 * core claims.
 */
export async function claimPlaces(
  db: Db,
  { kind, planes }: Compared,
  { at, until, limit }: { readonly at: Date; readonly until: Date; readonly limit: number },
): Promise<Progress[]> {
  const rows = await many<ProgressRow>(db, {
    text: `
    update processor_reconciliations
    set due_at = $3
    where (processor, plane, account_id) in (
      select processor, plane, account_id
      from processor_reconciliations
      where processor = $1 and plane = any($5::text[]) and ended_at is null and due_at <= $2
      order by account_id = '' desc, due_at
      limit $4
      for update skip locked)
    returning ${columns}`,
    values: [kind, at, until, limit, planes],
  })
  return rows.map(fromRow)
}

/** Stores that a page of the window was recorded, and postpones the claim. */
export async function savePage(
  db: Db,
  { processor, at }: Place,
  { windowTo, pageAfter, dueAt }: { windowTo: Date; pageAfter: string | null; dueAt: Date },
): Promise<void> {
  await db.query(sql`
    update processor_reconciliations
    set window_to = ${windowTo}, page_after = ${pageAfter}, due_at = ${dueAt}
    where processor = ${processor} and plane = ${at.plane} and account_id = ${accountColumn(at)} and through < ${windowTo}`)
}

/** Stores that everything before `through` is recorded and compared. */
export async function saveThrough(db: Db, { processor, at }: Place, through: Date): Promise<void> {
  await db.query(sql`
    update processor_reconciliations
    set through = ${through}, window_to = null, page_after = null
    where processor = ${processor} and plane = ${at.plane} and account_id = ${accountColumn(at)} and through < ${through}`)
}

/** Stores the end of a turn: when the account is due again, and why the turn failed, if it did. */
export async function saveTurn(
  db: Db,
  { processor, at }: Place,
  {
    dueAt,
    failures,
    failure,
  }: { readonly dueAt: Date; readonly failures: number; readonly failure: string | null },
): Promise<void> {
  await db.query(sql`
    update processor_reconciliations
    set due_at = ${dueAt}, failures = ${failures}, failure = ${failure?.slice(0, 500) ?? null}
    where processor = ${processor} and plane = ${at.plane} and account_id = ${accountColumn(at)}`)
}

/** Ends the comparison of an account whose connection has ended. Returns false if it has not. */
export async function endPlace(db: Db, { processor, at }: Place, now: Date): Promise<boolean> {
  if (at.account === null) return false
  const { is_connected } = await one<{ is_connected: boolean }>(
    db,
    sql`
    select exists (
      select from processor_accounts
      where account = ${at.account} and plane = ${at.plane} and processor = ${processor} and ended_at is null) as is_connected`,
  )
  if (is_connected) return false
  const { rowCount } = await db.query(sql`
    update processor_reconciliations
    set ended_at = ${now}
    where processor = ${processor} and plane = ${at.plane} and account_id = ${at.account}`)
  return rowCount === 1
}

/** Returns through when all accounts that have not ended are compared; null without one. */
export async function comparedThrough(db: Db, { kind, planes }: Compared): Promise<Date | null> {
  const { through } = await one<{ through: Date | null }>(
    db,
    sql`
    select min(through) as through
    from processor_reconciliations
    where processor = ${kind} and plane = any(${planes}::text[]) and ended_at is null`,
  )
  return through
}

/** Returns through when the platform's own account in a plane is recorded; null if it is not. */
export async function platformThrough(db: Db, { processor, at }: Place): Promise<Date | null> {
  const { through } = await one<{ through: Date | null }>(
    db,
    sql`
    select min(through) as through
    from processor_reconciliations
    where processor = ${processor} and plane = ${at.plane} and account_id = ''`,
  )
  return through
}
