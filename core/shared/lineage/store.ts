import { type Db, many, one, prepared, sql } from '../../lib/sql.ts'

export interface NewEnd {
  readonly id: string
  readonly cause: string
  readonly at: Date
  readonly endsBefore?: Date
  readonly expiresAt: Date | null
}

/**
 * Inserts ends. If a grant has ended before, the earlier end stays unless the later one ends more
 * credentials.
 */
export async function insertEnds(db: Db, ends: readonly NewEnd[]): Promise<void> {
  await db.query(sql`
    insert into grant_ends (id, ends_before, cause, ended_at, expires_at)
    select distinct on (id) id, coalesce(ends_before, 'infinity'), cause, ended_at, expires_at
    from unnest(${ends.map(({ id }) => id)}::text[], ${ends.map(({ endsBefore }) => endsBefore ?? null)}::timestamptz[],
                ${ends.map(({ cause }) => cause)}::text[], ${ends.map(({ at }) => at)}::timestamptz[],
                ${ends.map(({ expiresAt }) => expiresAt)}::timestamptz[])
      as new (id, ends_before, cause, ended_at, expires_at)
    order by id
    on conflict (id) do update
    set ends_before = excluded.ends_before, cause = excluded.cause, ended_at = excluded.ended_at, expires_at = excluded.expires_at
    where grant_ends.ends_before < excluded.ends_before`)
}

const channel = 'tollgate_grant_ends'

/** Notifies every listening core when the transaction commits. `messages` hold the sender's id. */
export async function notifyEnds(db: Db, messages: readonly string[]): Promise<void> {
  await db.query(sql`
    select pg_notify(${channel}, message) from unnest(${messages}::text[]) as message`)
}

export const listen = (db: Db): Promise<unknown> => db.query(`listen ${channel}`)

/** Ends since an instant, oldest first. */
export const listEnds = (
  db: Db,
  since: Date,
): Promise<{ id: string; ends_before: Date | null }[]> =>
  many(
    db,
    sql`
    select id, case when ends_before < 'infinity' then ends_before end as ends_before
    from grant_ends
    where ended_at > ${since}
    order by ended_at
    limit 10000`,
  )

export interface Ends {
  /** Grants that have ended for the credential. */
  readonly ended: readonly string[]
  /** The latest `endsBefore` of those that continue; null if no grant continues. */
  readonly last: Date | null
}

export async function findEnds(db: Db, ids: readonly string[], issuedAt: Date): Promise<Ends> {
  return one<{ ended: string[]; last: Date | null }>(
    db,
    prepared('grant-ends')`
    select ended_grants(${ids}::text[], ${issuedAt}) as ended,
           (select max(ends_before) from grant_ends where id = any(${ids}::text[]) and ends_before < 'infinity') as last`,
  )
}

/** Deletes at most `limit` ends without living descendants. Returns their number. */
export async function deleteExpiredEnds(db: Db, at: Date, limit: number): Promise<number> {
  const { rowCount } = await db.query(sql`
    delete from grant_ends where id in (
      select id from grant_ends where expires_at < ${at} order by expires_at limit ${limit} for update skip locked)`)
  return rowCount ?? 0
}
