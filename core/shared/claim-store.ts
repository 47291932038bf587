import { type Db, maybeOne, sql } from '../lib/sql.ts'

/** A key that one running request holds, independent of any transaction. */
export interface KeyClaim {
  readonly scope: string
  readonly key: string
  /** Identifies the request, so that it releases only its own claim. */
  readonly claim: string
}

/** Takes the key until `until`. Returns false while another request holds it. */
export async function takeKey(
  db: Db,
  { scope, key, claim }: KeyClaim,
  { at, until }: { readonly at: Date; readonly until: Date },
): Promise<boolean> {
  const row = await maybeOne(
    db,
    sql`
    insert into idempotency_claims (scope, key, claim, claimed_until)
    values (${scope}, ${key}, ${claim}, ${until})
    on conflict (scope, key) do update
    set claim = excluded.claim, claimed_until = excluded.claimed_until
    where idempotency_claims.claimed_until <= ${at}
    returning 1`,
  )
  return row !== null
}

export async function giveKeyBack(db: Db, { scope, key, claim }: KeyClaim): Promise<void> {
  await db.query(sql`
    delete from idempotency_claims where scope = ${scope} and key = ${key} and claim = ${claim}`)
}

/** Deletes at most `limit` claims of interrupted requests. Returns their number. */
export async function deleteOldClaims(db: Db, before: Date, limit: number): Promise<number> {
  const { rowCount } = await db.query(sql`
    delete from idempotency_claims
    where ctid in (
      select ctid from idempotency_claims where claimed_until <= ${before} limit ${limit} for update skip locked)`)
  return rowCount ?? 0
}
