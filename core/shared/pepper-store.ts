import { type Db, many, sql } from '../lib/sql.ts'
import { type SealedPlace, type Sealing, SealError } from './sealing/sealing.ts'
import { sealedColumn } from './sealing/column-sql.ts'

/** Writes `restored_peppers`: peppers that came with a backup of another deployment. */

const placeOf = (id: string): SealedPlace => ({ purpose: 'pepper', context: `pepper:${id}` })

export interface RestoredPepper {
  readonly id: string
  readonly value: Buffer
}

/** Returns the peppers of restored backups. Throws one clear error if no key opens one. */
export async function readRestoredPeppers(db: Db, sealing: Sealing): Promise<RestoredPepper[]> {
  const rows = await many<{ id: string; sealed: Buffer }>(
    db,
    sql`select id, sealed_pepper as sealed from restored_peppers order by id`,
  )
  try {
    return rows.map(({ id, sealed }) => ({ id, value: sealing.unseal(sealed, placeOf(id)) }))
  } catch (error) {
    if (!(error instanceof SealError)) throw error
    throw new Error(
      `KEY_ENCRYPTION_KEY does not open the restored peppers in the database; set the one they were sealed with, or add that to KEY_ENCRYPTION_KEYS_OLD (${error.message})`,
      { cause: error },
    )
  }
}

/** Stores a pepper of a backup, unless it is stored already. */
export async function insertRestoredPepper(
  db: Db,
  { id, value }: RestoredPepper,
  { sealing, at }: { readonly sealing: Sealing; readonly at: Date },
): Promise<void> {
  await db.query(sql`
    insert into restored_peppers (id, sealed_pepper, restored_at)
    values (${id}, ${sealing.seal(value, placeOf(id))}, ${at})
    on conflict (id) do nothing`)
}

/** The peppers of restored backups, for re-encryption under a new key-encryption key. */
export const sealedPeppers = sealedColumn({
  table: 'restored_peppers',
  column: 'sealed_pepper',
  key: ['id'],
  placeOf,
})
