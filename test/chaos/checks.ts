import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { TicketRecord } from '../../deploy/signer-double/stats.ts'
import type { Db } from '../../core/lib/sql.ts'
import { bareEnv } from '../support/deployment/processes.ts'
import { derivedFaults, ledgerFaults, readStreams } from '../support/usage/database-lines.ts'
import { type Product, ethUsd } from './product.ts'
import type { Writer } from './writes.ts'

/** What must be in the database after a run. */
export interface Expected {
  readonly tickets: readonly TicketRecord[]
  readonly writers: readonly Writer[]
}

export interface Check {
  /** The sentence that is true without faults. */
  readonly claim: string
  /** What was counted. */
  readonly counted: string
  readonly faults: readonly string[]
}

const shown = 5
const listed = (faults: readonly string[]): string[] =>
  faults.length <= shown
    ? [...faults]
    : [...faults.slice(0, shown), `and ${faults.length - shown} more`]

/** Compares every signed ticket with the ledger, in both directions. */
export async function checkTickets(db: Db, { tickets }: Expected): Promise<Check> {
  const { rows } = await db.query<{ id: string; line: string; count: string }>(`
    select t.event_id as id, count(*)::text as count,
           min(concat_ws(' ', c.client_id || ':' || u.external_user_id, t.session_id, t.sequence_number,
                         t.fee_wei, t.cost_attos)) as line
    from tickets t
    join end_users u on u.app_id = t.app_id and u.id = t.user_id
    join clients c on c.app_id = t.app_id and c.kind = 'public'
    group by t.event_id`)
  const booked = new Map(rows.map(({ id, line, count }) => [id, { line, count }]))
  const signed = new Map(tickets.map((ticket) => [ticket.id, lineOf(ticket)]))
  const faults: string[] = []
  for (const [id, line] of signed) {
    const found = booked.get(id)
    if (found === undefined) faults.push(`ticket ${id} was produced and is not in the ledger`)
    else if (found.count !== '1') faults.push(`ticket ${id} is in the ledger ${found.count} times`)
    else if (found.line !== line)
      faults.push(`ticket ${id}: produced ${line}, booked ${found.line}`)
  }
  for (const id of booked.keys())
    if (!signed.has(id)) faults.push(`ticket ${id} is in the ledger and was never produced`)
  return {
    claim: 'Each ticket that the signers produced is in the ledger exactly once, with its price.',
    counted: `${signed.size} tickets`,
    faults: listed(faults),
  }
}

const lineOf = ({ authId, sessionId, sequenceNumber, fee }: TicketRecord): string =>
  `${authId} ${sessionId} ${sequenceNumber} ${fee} ${fee * ethUsd}`

/** Compares acknowledged users and credits with the database. */
export async function checkWrites(db: Db, { writers }: Expected): Promise<Check> {
  const faults: string[] = []
  let count = 0
  for (const { clientId, users, credits, requested } of writers) {
    count += users.size + credits.size
    const known = await db.query<{ name: string }>(
      `select u.external_user_id as name
       from end_users u
       join clients c on c.app_id = u.app_id and c.kind = 'public'
       where c.client_id = $1`,
      [clientId],
    )
    const names = new Set(known.rows.map(({ name }) => name))
    for (const name of users)
      if (!names.has(name)) faults.push(`the acknowledged user ${name} does not exist`)
    const given = await db.query<{ micros: string; name: string; count: string }>(
      `select (g.amount_attos / 1000000000000)::bigint::text as micros, u.external_user_id as name, count(*)::text as count
       from grants g
       join end_users u on u.app_id = g.app_id and u.id = g.user_id
       join clients c on c.app_id = g.app_id and c.kind = 'public'
       where c.client_id = $1 and g.kind = 'grant'
       group by 1, 2`,
      [clientId],
    )
    const found = new Map(given.rows.map((row) => [BigInt(row.micros), row]))
    for (const [amount, name] of credits) {
      const credit = found.get(amount)
      if (credit?.count !== '1' || credit.name !== name)
        faults.push(
          `the acknowledged credit of ${amount} for ${name} was given ${credit?.count ?? 0} times`,
        )
    }
    for (const [amount, { count: times }] of found)
      if (!requested.has(amount) || times !== '1')
        faults.push(`a credit of ${amount} was given ${times} times, without one request for each`)
  }
  return {
    claim: 'Each write that was acknowledged over REST is in the database, exactly once.',
    counted: `${count} writes`,
    faults: listed(faults),
  }
}

/** The rule of the gate: nothing is promised beyond a balance, and nothing was signed beyond it. */
export async function checkGate(db: Db, { tickets }: Expected): Promise<Check> {
  const { rows } = await db.query<{ name: string; granted: string; overage: string }>(`
    select c.client_id || ':' || u.external_user_id as name, b.granted_attos::text as granted,
           b.overage_attos::text as overage
    from balances b
    join end_users u on u.app_id = b.app_id and u.id = b.user_id
    join clients c on c.app_id = b.app_id and c.kind = 'public'`)
  const signed = new Map<string, bigint>()
  for (const { authId, fee } of tickets)
    signed.set(authId, (signed.get(authId) ?? 0n) + fee * ethUsd)
  const faults = rows
    .filter(
      ({ name, granted, overage }) => (signed.get(name) ?? 0n) > BigInt(granted) || overage !== '0',
    )
    .map(
      ({ name, granted, overage }) =>
        `${name}: signed ${signed.get(name) ?? 0n}, given ${granted}, overage ${overage}`,
    )
  return {
    claim: 'The signers never signed for more than a user was given.',
    counted: `${signed.size} users with tickets`,
    faults: listed([...faults, ...(await overlent(db))]),
  }
}

/** Users whose held money exceeds their balance. Users of a run have no credit line. */
export async function overlent(db: Db): Promise<string[]> {
  const { rows } = await db.query<{ line: string }>(`
    select concat_ws(' ', user_id, 'has', balance_attos, 'and is lent', lent_attos, 'with pending', pending_attos) as line
    from balances
    where lent_attos + pending_attos > balance_attos`)
  return rows.map(({ line }) => line)
}

export async function checkBooks(db: Db): Promise<Check> {
  const faults = [...(await ledgerFaults(db)), ...(await derivedFaults(db))].map((fault) =>
    JSON.stringify(fault, bigintAsText),
  )
  const { tickets, duplicates, ignored, quarantined, missing, offsets } = await readStreams(db)
  if (tickets + duplicates + ignored + quarantined !== offsets)
    faults.push(`the counters of the streams do not add up to ${offsets}`)
  if (missing !== 0n) faults.push(`${missing} events are missing in the streams`)
  if (quarantined !== 0n) faults.push(`${quarantined} events are in quarantine`)
  const { rows } = await db.query<{ entries: string }>(
    'select count(*)::text as entries from ledger_entries',
  )
  return {
    claim: 'Balances, sessions and streams equal the sums of their entries, tickets and events.',
    counted: `${rows[0]?.entries} ledger entries, ${duplicates} repeated events`,
    faults: listed(faults),
  }
}

const bigintAsText = (_: string, value: unknown): unknown =>
  typeof value === 'bigint' ? String(value) : value

const run = promisify(execFile)
const root = join(import.meta.dirname, '../..')

/** Runs `tollgate verify`. */
export async function checkVerify({ coreTarget, coreToken }: Product): Promise<Check> {
  const args = ['deploy/tollgate.mjs', 'verify', '--json', '--target', coreTarget]
  const env = { ...bareEnv(), CORE_TOKEN: coreToken }
  const { stdout } = await run(process.execPath, args, { cwd: root, env }).catch(
    ({ stdout = '', stderr = '' }: { stdout?: string; stderr?: string }) => ({
      stdout: stdout || JSON.stringify({ ok: false, users: 0, differences: [stderr] }),
    }),
  )
  const answer = JSON.parse(stdout) as {
    ok: boolean
    users: number
    differences: unknown[]
  }
  return {
    claim: '`tollgate verify` finds no difference.',
    counted: `${answer.users} users`,
    faults: listed(answer.differences.map((difference) => JSON.stringify(difference))),
  }
}

/** Everything that a run compares inside one database connection. */
export const checkDatabase = async (db: Db, expected: Expected): Promise<Check[]> => [
  await checkTickets(db, expected),
  await checkWrites(db, expected),
  await checkGate(db, expected),
  await checkBooks(db),
]
