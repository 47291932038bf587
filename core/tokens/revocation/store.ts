import { type Db, one, prepared, sql } from '../../lib/sql.ts'

/** What of a JWT can end it, and when it was issued. */
export interface TokenEnds {
  readonly ids: readonly string[]
  /** The login that it came from; null for none. */
  readonly familyId: string | null
  readonly issuedAt: Date
}

/** Which of the ids have ended for the JWT, and whether its login goes on; true for a JWT of no login. */
export const findEnds = (
  db: Db,
  token: TokenEnds,
): Promise<{ ended: string[]; isLoginLive: boolean }> =>
  one(
    db,
    prepared(
      'token-ends',
      sql`
    select ended_grants(${token.ids}::text[], ${token.issuedAt}) as ended,
           ${token.familyId}::uuid is null or exists (
             select from token_families where id = ${token.familyId}::uuid and ended_at is null) as "isLoginLive"`,
    ),
  )
