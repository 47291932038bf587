import { type Db, many, prepared, sql } from '../../lib/sql.ts'

/** What of a JWT can end it, and when it was issued. */
export interface TokenEnds {
  readonly ids: readonly string[]
  /** The login that it came from; null for none. */
  readonly familyId: string | null
  readonly issuedAt: Date
}

/** What has become of what a JWT descends from. */
export interface TokenState {
  /** Those of its ids that have ended for it. */
  readonly ended: readonly string[]
  /** Whether its login goes on; true for a JWT of no login. */
  readonly isLoginLive: boolean
}

/** The states of the JWTs, in their order. */
export const findStates = (db: Db, tokens: readonly TokenEnds[]): Promise<TokenState[]> =>
  many(
    db,
    prepared(
      'token-states',
      sql`
    select ended_grants(array(select jsonb_array_elements_text(ids)), issued_at) as ended,
           family_id is null or exists (
             select from token_families where id = family_id and ended_at is null) as "isLoginLive"
    from unnest(${tokens.map(({ ids }) => JSON.stringify(ids))}::jsonb[], ${tokens.map(({ issuedAt }) => issuedAt)}::timestamptz[],
                ${tokens.map(({ familyId }) => familyId)}::uuid[]) with ordinality as token (ids, issued_at, family_id, n)
    order by n`,
    ),
  )
