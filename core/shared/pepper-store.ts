import { type Db, many, sql } from '../lib/sql.ts'
import { type SealedPlace, type Sealing, SealError } from './sealing/sealing.ts'
import type { SealedTable } from './sealing/rewrap.ts'

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
export const sealedPeppers: SealedTable = {
  table: 'restored_peppers',

  countByHead: (db) =>
    many<{ head: string; count: number }>(
      db,
      sql`
      select encode(substring(sealed_pepper for 7), 'hex') as head, count(*)::integer as count
      from restored_peppers
      group by 1`,
    ),

  async rowsToRewrap(db, { head, after, limit }) {
    const rows = await many<{ id: string; sealed: Buffer }>(
      db,
      sql`
      select id, sealed_pepper as sealed
      from restored_peppers
      where id > ${after} and substring(sealed_pepper for 7) <> ${head}
      order by id
      limit ${limit}`,
    )
    return rows.map(({ id, sealed }) => ({ name: id, place: placeOf(id), sealed }))
  },

  async replaceSealed(db, row, sealed) {
    await db.query(sql`
      update restored_peppers set sealed_pepper = ${sealed} where id = ${row.name} and sealed_pepper = ${row.sealed}`)
  },
}
