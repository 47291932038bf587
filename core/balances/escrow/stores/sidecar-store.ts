import { type Db, many, maybeOne, prepared, sql } from '../../../lib/sql.ts'
import { addSeconds } from '../../../lib/time.ts'
import { latestPlausible } from '../due.ts'
import type { Contact, SidecarProcess, SidecarState } from '../port.ts'

/** Writes sidecars. The functions are documented in `port.ts`. */

interface SidecarRow {
  instance: string
  seen_at: Date
  stopped_at: Date | null
  reported_through: bigint
}

export async function lockSidecar(
  db: Db,
  process: SidecarProcess,
  times: { readonly at: Date; readonly silentSince: Date },
): Promise<{ readonly reportedThrough: bigint } | null> {
  const row =
    (await selectForUpdate(db, process.id)) ?? (await insertSidecar(db, process, times.at))
  if (row.instance === process.instance) return { reportedThrough: row.reported_through }
  // An instant from before the database's clock was set back does not prove that the process is
  // alive.
  const isAlive = row.seen_at >= times.silentSince && row.seen_at <= latestPlausible(times.at)
  if (row.stopped_at === null && isAlive) return null
  await db.query(sql`
    update sidecars
    set instance = ${process.instance}, started_at = ${times.at}, seen_at = ${times.at}, stopped_at = null, reported_through = 0,
        complete_at = null, shared_through = null
    where id = ${process.id}`)
  return { reportedThrough: 0n }
}

const selectForUpdate = (db: Db, id: string): Promise<SidecarRow | null> =>
  maybeOne<SidecarRow>(
    db,
    prepared('lock-sidecar')`
    select instance, seen_at, stopped_at, reported_through
    from sidecars
    where id = ${id}
    for update`,
  )

async function insertSidecar(db: Db, process: SidecarProcess, at: Date): Promise<SidecarRow> {
  await db.query(sql`
    insert into sidecars (id, instance, started_at, seen_at)
    values (${process.id}, ${process.instance}, ${at}, ${at})
    on conflict do nothing`)
  const row = await selectForUpdate(db, process.id)
  if (!row) throw new Error('a sidecar that exists cannot be found')
  return row
}

export async function saveSidecar(
  db: Db,
  process: SidecarProcess,
  state: SidecarState,
): Promise<void> {
  const { seenAt, reportedThrough, lastAuthorisedAt, stopped } = state
  await db.query(
    prepared('save-sidecar')`
    update sidecars
    set seen_at = ${seenAt}, reported_through = ${reportedThrough}, stopped_at = ${stopped ? seenAt : null},
        complete_at = ${state.completeAt}, shared_through = ${state.sharedThrough},
        last_authorised_at = greatest(last_authorised_at, ${lastAuthorisedAt}::timestamptz)
    where id = ${process.id} and instance = ${process.instance}`,
  )
}

export async function findContacts(
  db: Db,
  instances: readonly string[],
): Promise<ReadonlyMap<string, Contact>> {
  if (instances.length === 0) return new Map()
  const rows = await many<ContactRow>(
    db,
    prepared('contacts')`
    select instance, seen_at, coalesce(complete_at, started_at) as complete_at,
           coalesce(shared_through, started_at) as shared_through
    from sidecars
    where instance = any(${instances}::uuid[])`,
  )
  return new Map(
    rows.map((row) => [
      row.instance,
      { seenAt: row.seen_at, completeAt: row.complete_at, sharedThrough: row.shared_through },
    ]),
  )
}

interface ContactRow {
  instance: string
  seen_at: Date
  complete_at: Date
  shared_through: Date
}

export const ownsSidecar = async (db: Db, process: SidecarProcess): Promise<boolean> =>
  (await ownRow(db, process)) !== null

const ownRow = (db: Db, { id, instance }: SidecarProcess) =>
  maybeOne<{ last_authorised_at: Date | null }>(
    db,
    prepared('own-sidecar')`
    select last_authorised_at
    from sidecars
    where id = ${id} and instance = ${instance} and stopped_at is null`,
  )

// How far in the future the latest decision is recorded, so that reservations seldom wait for the
// report that locks the row.
const aheadSeconds = 10

export async function noteReservation(db: Db, process: SidecarProcess, at: Date): Promise<boolean> {
  const row = await ownRow(db, process)
  if (!row) return false
  if (row.last_authorised_at !== null && row.last_authorised_at >= at) return true
  const { rowCount } = await db.query(sql`
    update sidecars
    set last_authorised_at = greatest(last_authorised_at, ${addSeconds(at, aheadSeconds)}::timestamptz)
    where id = ${process.id} and instance = ${process.instance}`)
  return rowCount === 1
}

/**
 * Deletes up to `limit` sidecars without contact since `before`. Keeps those with held money,
 * because their calls become due by these rows. Returns the number deleted.
 */
export async function forgetSidecars(db: Db, before: Date, limit: number): Promise<number> {
  const { rowCount } = await db.query(sql`
    delete from sidecars
    where ctid = any(array(
      select s.ctid
      from sidecars s
      where s.seen_at < ${before} and coalesce(s.last_authorised_at, s.seen_at) < ${before}
        and not exists (select 1 from authorisations a
                        where a.sidecar_id = s.id and a.state = 'pending' and not a.ticketed)
        and not exists (select 1 from leases l where l.sidecar_id = s.id)
      limit ${limit}
      for update of s skip locked))`)
  return rowCount ?? 0
}
