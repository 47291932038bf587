import { audit } from '../../platform/audit.ts'
import { type Db, many, sql } from '../../lib/sql.ts'
import type { SigningAlgorithm } from '../types.ts'

export interface KeyState {
  readonly kid: string
  readonly alg: SigningAlgorithm
  readonly status: 'next' | 'active' | 'retired'
  readonly created_at: Date
  readonly activated_at: Date | null
  readonly retire_at: Date | null
}

/** Every key that is published now, the active one first. */
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

/** Rotations happen one after the other: the second waits, then sees what the first has done. */
export async function lockRotation(db: Db): Promise<void> {
  await db.query(sql`select pg_advisory_xact_lock(hashtext('tollgate.signing-keys'))`)
}

export interface Succession {
  readonly from: string
  readonly to: string
  readonly at: Date
  readonly retireAt: Date
}

/** The one active key retires, then the next one takes its place: never two, as the database demands. */
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

/** Forgets retired keys that no live token needs, their private parts with them. */
export async function deleteRetired(db: Db, at: Date): Promise<void> {
  await db.query(sql`delete from signing_keys where status = 'retired' and retire_at <= ${at}`)
}
