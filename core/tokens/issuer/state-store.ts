import { type Db, many, prepared } from '../../lib/sql.ts'

/** Ids that can end a JWT, and its time of issue. */
export interface TokenEnds {
  readonly ids: readonly string[]
  /** The login that the JWT came from, if any. */
  readonly familyId: string | null
  readonly issuedAt: Date
}

/** State of the ids that a JWT descends from. */
export interface TokenState {
  /** The ids that have ended for this JWT. */
  readonly ended: readonly string[]
  /** Whether the login is still active; true for a JWT without a login. */
  readonly isLoginLive: boolean
}

/** Returns the states of the JWTs, in the same order. */
export const findStates = (db: Db, tokens: readonly TokenEnds[]): Promise<TokenState[]> =>
  many(
    db,
    prepared('token-states')`
    select ended_grants(array(select jsonb_array_elements_text(ids)), issued_at) as ended,
           family_id is null or exists (
             select from token_families where id = family_id and ended_at is null) as "isLoginLive"
    from unnest(${tokens.map(({ ids }) => JSON.stringify(ids))}::jsonb[], ${tokens.map(({ issuedAt }) => issuedAt)}::timestamptz[],
                ${tokens.map(({ familyId }) => familyId)}::uuid[]) with ordinality as token (ids, issued_at, family_id, n)
    order by n`,
  )
