import { randomUUID } from 'node:crypto'
import { escrowStore } from '../../../core/balances/escrow/store.ts'
import type { NewAuthorisation } from '../../../core/balances/escrow/port.ts'
import { totals } from '../../../core/balances/escrow/session-sums.ts'
import { usdAttos } from '../../../core/lib/money.ts'
import { type Pool, tx } from '../../../core/lib/sql.ts'
import { parseEvent } from '../../../core/metering/events/parse.ts'
import type { StreamRecord } from '../../../core/metering/events/record.ts'
import { authId, appId, userId } from '../../../core/shared/ids.ts'

const chunk = 10_000
const sidecarInstance = randomUUID()
const bound = usdAttos(10n ** 15n)

/** Holds money for tickets that will be booked, as sidecar reports do. */
export function createHolds(pool: Pool) {
  /** Inserts one pending authorisation per event. The users must exist. */
  async function authorise(batches: readonly StreamRecord[][]): Promise<void> {
    const users = await usersByAuthId(pool)
    const at = new Date()
    for (const records of batches) {
      const calls = records.map((record) => toAuthorisation(record, { users, at }))
      for (let from = 0; from < calls.length; from += chunk)
        await insert(pool, calls.slice(from, from + chunk))
    }
    await pool.query('vacuum analyze authorisations, authorised_sessions')
  }

  /** Throws unless every authorisation is settled. */
  async function check(): Promise<void> {
    const { rows } = await pool.query(
      `select (select count(*) from authorisations) as open, (select sum(pending_attos) from balances)::text as pending,
              (select sum(authorised_count - ticketed_count) from authorised_sessions)::text as unticketed`,
    )
    const [{ open, pending, unticketed }] = rows
    if (open !== 0n || pending !== '0' || unticketed !== '0')
      throw new Error(
        `${open} authorisations are left, ${pending} pending, ${unticketed} unticketed`,
      )
  }

  return { authorise, check }
}

type UsersByAuthId = ReadonlyMap<string, Pick<NewAuthorisation, 'appId' | 'userId'>>

async function usersByAuthId(pool: Pool): Promise<UsersByAuthId> {
  const { rows } = await pool.query(
    `select u.app_id, u.id, u.external_user_id, c.client_id
     from end_users u join clients c on c.app_id = u.app_id and c.kind = 'public'`,
  )
  return new Map(
    rows.map((row) => [
      authId(row.client_id, row.external_user_id),
      { appId: appId(row.app_id), userId: userId(row.id) },
    ]),
  )
}

function toAuthorisation(
  { bytes }: StreamRecord,
  { users, at }: { users: UsersByAuthId; at: Date },
): NewAuthorisation {
  const event = parseEvent(Buffer.from(bytes), at)
  if (event.kind !== 'ticket') throw new Error('the bench writes tickets only')
  const { clientId, externalUserId, sessionId, sequenceNumber, signedAtMicros } = event.ticket
  const user = users.get(authId(clientId, externalUserId))
  if (!user) throw new Error(`no user ${externalUserId}`)
  return {
    ...user,
    sessionId,
    sequence: BigInt(sequenceNumber),
    signedMicros: BigInt(signedAtMicros),
    sidecarId: 'bench',
    keyId: null,
    sessionType: 'live',
    bound,
    authorisedAt: at,
    isApproximate: false,
    isOffline: false,
  }
}

async function insert(pool: Pool, calls: readonly NewAuthorisation[]): Promise<void> {
  await tx(pool, async (db) => {
    await escrowStore.insertAuthorisations(db, calls)
    await escrowStore.addSessions(
      db,
      calls.map((call) => ({
        ...call,
        at: call.authorisedAt,
        instance: sidecarInstance,
        calls: [{ sequence: call.sequence, seconds: call.signedMicros / 1_000_000n, nanos: 0 }],
        added: totals({ authorised: { count: 1, amount: call.bound } }),
      })),
    )
    const counts = Map.groupBy(calls, (call) => call.userId)
    await db.query(
      `update balances b set pending_attos = pending_attos + c.amount
       from unnest($1::uuid[], $2::numeric[]) as c (user_id, amount) where b.user_id = c.user_id`,
      [[...counts.keys()], [...counts.values()].map((of) => BigInt(of.length) * bound)],
    )
  })
}
