import { type Db, many, sql } from '../../lib/sql.ts'
import { sealedColumn } from '../../shared/sealing/column-sql.ts'
import type { SealedPlace } from '../../shared/sealing/sealing.ts'
import { audit } from '../../shared/audit.ts'
import type { SigningAlgorithm } from '../types.ts'

export type PublicJwk = Readonly<Record<string, string>>

export interface SigningKeyRow {
  readonly kid: string
  readonly alg: SigningAlgorithm
  readonly public_jwk: PublicJwk
  readonly sealed_private: Buffer
  readonly status: 'next' | 'active' | 'retired'
}

/**
 * Returns the keys that verify or will sign, active key first. Includes retired keys until their
 * last token has expired.
 */
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

/**
 * Inserts a key. There is one active and one next key: when two processes start concurrently, the
 * second one's key is dropped.
 */
export async function insertSigningKey(db: Db, key: NewSigningKey): Promise<void> {
  await db.query(sql`
    insert into signing_keys (kid, alg, public_jwk, sealed_private, status, created_at)
    values (${key.kid}, ${key.alg}, ${key.publicJwk}, ${key.sealedPrivate}, ${key.status}, ${key.at})
    on conflict do nothing`)
}

/** Replaces the next key, which has signed nothing. */
export async function replaceNext(db: Db, kid: string, key: NewSigningKey): Promise<void> {
  await db.query(sql`delete from signing_keys where kid = ${kid} and status = 'next'`)
  await insertSigningKey(db, key)
}

export interface KeyState {
  readonly kid: string
  readonly alg: SigningAlgorithm
  readonly status: 'next' | 'active' | 'retired'
  readonly created_at: Date
  readonly activated_at: Date | null
  readonly retire_at: Date | null
}

/** Same as `publishedKeys`, with the times of state changes and without the keys themselves. */
export async function keyStates(db: Db, at: Date): Promise<KeyState[]> {
  return many<KeyState>(
    db,
    sql`
    select kid, alg, status, created_at, activated_at, retire_at
    from signing_keys
    where status <> 'retired' or retire_at > ${at}
    order by status = 'active' desc, created_at desc`,
  )
}

/** Waits for other rotations and locks them out until the transaction ends. */
export async function lockRotation(db: Db): Promise<void> {
  await db.query(sql`select pg_advisory_xact_lock(hashtext('tollgate.signing-keys'))`)
}

export interface Succession {
  readonly from: string
  readonly to: string
  readonly at: Date
  readonly retireAt: Date
}

/**
 * Retires the active key, then activates the next one, because a constraint allows only one active
 * key.
 */
export async function succeed(db: Db, { from, to, at, retireAt }: Succession): Promise<void> {
  await db.query(sql`
    update signing_keys set status = 'retired', retire_at = ${retireAt} where kid = ${from} and status = 'active'`)
  await db.query(sql`
    update signing_keys set status = 'active', activated_at = ${at} where kid = ${to} and status = 'next'`)
}

export async function recordRotation(
  db: Db,
  { from, to, at }: Succession,
  actor: string,
): Promise<void> {
  await audit(db, {
    appId: null,
    actor,
    action: 'signing_keys_rotated',
    status: 'success',
    details: { from, to },
    at,
  })
}

/** Deletes retired keys and their private keys once no valid token needs them. */
export async function deleteRetired(db: Db, at: Date): Promise<void> {
  await db.query(sql`delete from signing_keys where status = 'retired' and retire_at <= ${at}`)
}

/** The place that a private key's sealing is bound to. */
export const placeOfKey = (kid: string): SealedPlace => ({
  purpose: 'signing-key',
  context: `signing-key:${kid}`,
})

/** Private signing keys, for re-encryption under a new key-encryption key. */
export const sealedSigningKeys = sealedColumn({
  table: 'signing_keys',
  column: 'sealed_private',
  key: ['kid'],
  placeOf: placeOfKey,
})
