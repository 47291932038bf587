import { type Db, many, sql } from '../../lib/sql.ts'
import type { SigningAlgorithm } from '../types.ts'

export type PublicJwk = Readonly<Record<string, string>>

export interface SigningKeyRow {
  readonly kid: string
  readonly alg: SigningAlgorithm
  readonly public_jwk: PublicJwk
  readonly sealed_private: Buffer
  readonly status: 'next' | 'active' | 'retired'
}

/** Keys that verify or will sign: active, next, and retired ones until their last token is dead. */
export async function publishedKeys(db: Db, at: Date): Promise<SigningKeyRow[]> {
  return many<SigningKeyRow>(
    db,
    sql`
    select kid, alg, public_jwk, sealed_private, status
    from signing_keys
    where status <> 'retired' or retire_at > ${at}
    order by status = 'active' desc, created_at desc`,
  )
}

export interface NewSigningKey {
  readonly kid: string
  readonly alg: SigningAlgorithm
  readonly publicJwk: PublicJwk
  readonly sealedPrivate: Buffer
  readonly status: 'next' | 'active'
  readonly at: Date
}

/** Of two processes that start together one wins; the other's key is dropped (one active, one next). */
export async function insertSigningKey(db: Db, key: NewSigningKey): Promise<void> {
  await db.query(sql`
    insert into signing_keys (kid, alg, public_jwk, sealed_private, status, created_at)
    values (${key.kid}, ${key.alg}, ${key.publicJwk}, ${key.sealedPrivate}, ${key.status}, ${key.at})
    on conflict do nothing`)
}
