import { plainArray } from '../../../lib/copy-sql.ts'
import { type UsdAttos, usdAttos } from '../../../lib/money.ts'
import { type Db, many, prepared, sql } from '../../../lib/sql.ts'
import { appId, userId } from '../../../shared/ids.ts'
import type { SettlingTickets } from '../../../metering/ingest/charges.ts'
import { appColumn, keyColumns, numberColumn, sessionColumn, userColumn } from './key-columns.ts'
import { matchEarlyTickets } from '../matching.ts'
import type { EarlyMatch, EscrowStore, NewAuthorisation } from '../port.ts'

/** Writes early_tickets. The functions are documented in `port.ts`. */

export async function takeEarlyTickets(
  db: Db,
  authorisations: readonly NewAuthorisation[],
): Promise<readonly (EarlyMatch | null)[]> {
  if (authorisations.length === 0) return []
  const rows = await many<EarlyRow>(
    db,
    prepared('early-tickets')`
    select e.app_id, e.user_id, e.session_id, e.sequence_number, e.signed_micros, e.id, e.cost_attos
    from (select distinct *
          from unnest(${appColumn(authorisations)}::uuid[], ${userColumn(authorisations)}::uuid[],
                      ${sessionColumn(authorisations)}::text[], ${plainArray(authorisations.map(lowestNumber))}::bigint[],
                      ${numberColumn(authorisations)}::bigint[])
            as calls (app_id, user_id, session_id, from_number, to_number)) c
    join early_tickets e on e.app_id = c.app_id and e.user_id = c.user_id and e.session_id = c.session_id
      and e.sequence_number between c.from_number and c.to_number
    order by e.id`,
  )
  if (rows.length === 0) return authorisations.map(() => null)
  const unique = new Map(rows.map((row) => [row.id, earlyFromRow(row)]))
  const matches = matchEarlyTickets(authorisations, [...unique.values()])
  await deleteEarlyTickets(db, matches.flat())
  return matches.map(toEarlyMatch)
}

const lowestNumber = ({ sequence, run }: NewAuthorisation): bigint =>
  run ? sequence - BigInt(run.micros.length) + 1n : sequence

/** Returns null without tickets. */
export function toEarlyMatch(
  tickets: readonly { readonly sequence: bigint; readonly cost: UsdAttos | null }[],
): EarlyMatch | null {
  if (tickets.length === 0) return null
  const costs = tickets.flatMap(({ cost }) => cost ?? [])
  return {
    numbers: tickets.map(({ sequence }) => sequence),
    priced: costs.length,
    cost: costs.length > 0 ? usdAttos(costs.reduce((sum: bigint, cost) => sum + cost, 0n)) : null,
  }
}

interface EarlyRow {
  app_id: string
  user_id: string
  session_id: string
  sequence_number: bigint
  signed_micros: bigint
  id: bigint
  cost_attos: string | null
}

const earlyFromRow = (row: EarlyRow) => ({
  appId: appId(row.app_id),
  userId: userId(row.user_id),
  sessionId: row.session_id,
  sequence: row.sequence_number,
  signedMicros: row.signed_micros,
  id: row.id,
  cost: row.cost_attos === null ? null : usdAttos(BigInt(row.cost_attos)),
})

type EarlyTicket = ReturnType<typeof earlyFromRow>

async function deleteEarlyTickets(db: Db, tickets: readonly EarlyTicket[]): Promise<void> {
  if (tickets.length === 0) return
  await db.query(sql`
    delete from early_tickets e
    using unnest(
      ${appColumn(tickets)}::uuid[], ${userColumn(tickets)}::uuid[], ${sessionColumn(tickets)}::text[], ${numberColumn(tickets)}::bigint[],
      ${plainArray(tickets.map((ticket) => ticket.signedMicros))}::bigint[], ${plainArray(tickets.map((ticket) => ticket.id))}::bigint[])
      as m (app_id, user_id, session_id, sequence_number, signed_micros, id)
    where e.app_id = m.app_id and e.user_id = m.user_id and e.session_id = m.session_id
      and e.sequence_number = m.sequence_number and e.signed_micros = m.signed_micros and e.id = m.id`)
}

export async function insertEarlyTickets(
  db: Db,
  tickets: SettlingTickets,
  at: Date,
): Promise<void> {
  const keys = keyColumns(tickets)
  await db.query(sql`
    insert into early_tickets (app_id, user_id, session_id, sequence_number, signed_micros, cost_attos, booked_at)
    select app_id, user_id, session_id, sequence, micros, cost, ${at}
    from unnest(
      ${keys.apps}::uuid[], ${keys.users}::uuid[], ${keys.sessions}::text[], ${keys.sequences}::bigint[],
      ${keys.micros}::bigint[],
      ${plainArray(tickets.cost)}::numeric[]) as t (app_id, user_id, session_id, sequence, micros, cost)`)
}

export const takeOldEarlyTickets: EscrowStore['takeOldEarlyTickets'] = async (
  db,
  users,
  { before, limit },
) => {
  const rows = await many<{ app_id: string; user_id: string; cost_attos: string }>(
    db,
    sql`
    delete from early_tickets
    where ctid = any(array(
      select e.ctid
      from unnest(${plainArray(users.map((u) => u.appId))}::uuid[], ${plainArray(users.map((u) => u.userId))}::uuid[])
        as w (app_id, user_id)
      join early_tickets e on e.app_id = w.app_id and e.user_id = w.user_id
      where e.booked_at < ${before}
      order by e.booked_at
      limit ${limit}))
    returning app_id, user_id, cost_attos`,
  )
  return rows.map((row) => ({
    appId: appId(row.app_id),
    userId: userId(row.user_id),
    cost: usdAttos(BigInt(row.cost_attos)),
  }))
}

/** Deletes at most `limit` early tickets. */
export async function forgetEarlyTickets(db: Db, before: Date, limit: number): Promise<void> {
  await db.query(sql`
    delete from early_tickets
    where ctid = any(array(
      select ctid
      from early_tickets
      where booked_at < ${before}
      order by booked_at
      limit ${limit}
      for update skip locked))`)
}
