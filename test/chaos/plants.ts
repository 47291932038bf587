import { type Db, type Pool, rollbackAfter } from '../../core/lib/sql.ts'
import { type Check, type Expected, checkDatabase } from './checks.ts'

/** Damage that the checks must find; a check that cannot fail proves nothing. */
export const plants = {
  'lost-ticket': {
    what: 'a ticket is deleted',
    damage: async (db: Db) => {
      await db.query('alter table tickets disable trigger tickets_append_only')
      return db.query(`delete from tickets where event_id = (select max(event_id) from tickets)`)
    },
  },
  'doubled-ticket': {
    what: 'a ticket is booked twice',
    damage: async (db: Db) => {
      const { rows } = await db.query<{ columns: string }>(`
        select string_agg(quote_ident(column_name), ', ' order by ordinal_position) as columns
        from information_schema.columns
        where table_name = 'tickets' and table_schema = current_schema()`)
      const columns = rows[0]?.columns ?? ''
      const later = columns.replace('signed_at', "signed_at + interval '1 microsecond'")
      return db.query(
        `insert into tickets (${columns}) select ${later} from tickets where event_id = (select max(event_id) from tickets)`,
      )
    },
  },
  'lost-user': {
    what: 'an acknowledged user is renamed',
    damage: (db: Db) =>
      db.query(`
        update end_users set external_user_id = 'renamed'
        where (app_id, id) = (select app_id, id from end_users where external_user_id like 'written-%' limit 1)`),
  },
  'lost-credit': {
    what: 'an acknowledged credit is deleted',
    damage: async (db: Db) => {
      await db.query('alter table grants disable trigger grants_immutable')
      return db.query(`
        delete from grants
        where (app_id, user_id, id) = (select app_id, user_id, id from grants where kind = 'grant' limit 1)`)
    },
  },
  'too-much-lent': {
    what: 'a user is lent more than the balance',
    damage: (db: Db) =>
      db.query(`
        update balances set lent_attos = balance_attos + 1
        where (app_id, user_id) = (select app_id, user_id from balances where balance_attos > 0 limit 1)`),
  },
  'wrong-balance': {
    what: 'a balance is one atto-dollar too high, as if it was given',
    damage: (db: Db) =>
      db.query(`
        update balances set balance_attos = balance_attos + 1, granted_attos = granted_attos + 1
        where (app_id, user_id) = (select app_id, user_id from balances where balance_attos > 0 limit 1)`),
  },
} as const

export type PlantName = keyof typeof plants

export const isPlant = (name: string): name is PlantName => Object.hasOwn(plants, name)

/** Plants the damage, checks, and takes the damage back. */
export const checkWithPlant = (pool: Pool, name: PlantName, expected: Expected): Promise<Check[]> =>
  rollbackAfter(pool, async (db) => {
    const { rowCount } = await plants[name].damage(db)
    if (rowCount !== 1) throw new Error(`${name} changed ${rowCount} rows`)
    return checkDatabase(db, expected)
  })

/** Plants each damage by itself. Returns the first fault that the checks find with it. */
export async function findPlants(
  pool: Pool,
  expected: Expected,
): Promise<{ readonly name: PlantName; readonly found: string | null }[]> {
  const results: { name: PlantName; found: string | null }[] = []
  for (const name of Object.keys(plants).filter(isPlant)) {
    const checks = await checkWithPlant(pool, name, expected)
    results.push({ name, found: checks.flatMap(({ faults }) => faults)[0] ?? null })
  }
  return results
}
