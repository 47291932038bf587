import { randomUUID } from 'node:crypto'
import { escrowStore } from '../../../../core/balances/escrow/store.ts'
import type { Lease, NewAuthorisation } from '../../../../core/balances/escrow/port.ts'
import { totals } from '../../../../core/balances/escrow/session-sums.ts'
import { usdAttos, networkRatio } from '../../../../core/lib/money.ts'
import { appId, userId, type UserKey } from '../../../../core/shared/ids.ts'
import { envelope } from '../../metering/harness.ts'
import type { TestApp, TestCore } from '../../support.ts'

/** Converts dollars to atto-dollars. */
export const usd = (dollars: number) =>
  usdAttos(BigInt(Math.round(dollars * 1e6)) * 1_000_000_000_000n)

/**
 * Empties the tables of the escrow while a core runs. Empties one table at a time, because a
 * statement that locks them all can deadlock with core's own rounds.
 */
export async function emptyEscrow(core: TestCore): Promise<void> {
  for (const table of [
    'authorisations',
    'early_tickets',
    'leases',
    'sidecar_clocks',
    'authorised_sessions',
    'sidecars',
  ]) {
    await core.sql.query(`delete from ${table}`)
  }
}

/** One call of a session, with the data for its state and for its event. */
export interface Call {
  readonly session?: string
  readonly sequence: number
  /** Milliseconds after the start of the test. */
  readonly ms: number
  readonly bound?: number
  readonly cost?: number
}

/** Creates a user of a test core, with functions to authorise and book calls. */
export async function escrowUser(core: TestCore, app: TestApp, name = 'ada') {
  await core.as().getAccess({ clientId: app.clientId, externalUserId: name })
  const { rows } = await core.sql.query<{ app_id: string; id: string }>(
    `select u.app_id, u.id from end_users u join clients c on c.app_id = u.app_id and c.kind = 'public'
     where c.client_id = $1 and u.external_user_id = $2`,
    [app.clientId, name],
  )
  const user: UserKey = { appId: appId(rows[0]?.app_id ?? ''), userId: userId(rows[0]?.id ?? '') }
  const begin = core.clock.now().getTime()
  const base = { core, app, name, user, begin }
  return { user, begin, ...callsOf(base), ...holdsOf(base) }
}

interface Base {
  readonly core: TestCore
  readonly app: TestApp
  readonly name: string
  readonly user: UserKey
  readonly begin: number
}

const nanosOf = (ms: number): string => `${String((ms % 1000) * 1000 + 123).padStart(6, '0')}789`

function callsOf({ core, app, name, user, begin }: Base) {
  const timeOf = ({ ms }: Call): string =>
    `${new Date(begin + ms).toISOString().slice(0, 19)}.${nanosOf(begin + ms)}Z`
  const micros = ({ ms }: Call): bigint => BigInt(begin + ms) * 1000n + 123n

  function authorisation(call: Call, more: Partial<NewAuthorisation> = {}): NewAuthorisation {
    return {
      ...user,
      sessionId: call.session ?? 's1',
      sequence: BigInt(call.sequence),
      signedMicros: micros(call),
      sidecarId: 'sidecar-1',
      keyId: null,
      sessionType: 'live',
      bound: usd(call.bound ?? 0.1),
      authorisedAt: new Date(begin + call.ms),
      isApproximate: false,
      isOffline: false,
      ...more,
    }
  }

  const event = (call: Call, id: string = randomUUID()): Buffer =>
    envelope(
      {
        auth_id: `${app.clientId}:${name}`,
        session_id: call.session ?? 's1',
        sequence_number: call.sequence,
        current_time: timeOf(call),
        // At 3000 USD for one ETH.
        computed_fee: String((BigInt(Math.round((call.cost ?? 0.1) * 1e6)) * 10n ** 12n) / 3000n),
      },
      { id },
    )

  const ingest = (...events: readonly Buffer[]) =>
    core.as().ingestEvents({ envelopes: [...events] })
  const book = (...calls: readonly Call[]) => ingest(...calls.map((call) => event(call)))

  /** Stores a call as a report would: pending, in its session, and with a known sidecar. */
  async function authorise(call: Call, more: Partial<NewAuthorisation> = {}): Promise<void> {
    const one = authorisation(call, more)
    await escrowStore.insertAuthorisations(core.sql, [one])
    await core.sql.query(
      `update balances set pending_attos = pending_attos + $1 where app_id = $2 and user_id = $3`,
      [one.bound, user.appId, user.userId],
    )
    await core.sql.query(
      `insert into sidecars (id, instance, started_at, seen_at, last_authorised_at) values ($1, $2, $3, $3, $3)
       on conflict (id) do update set last_authorised_at = greatest(sidecars.last_authorised_at, $3)`,
      [one.sidecarId, randomUUID(), one.authorisedAt],
    )
    await escrowStore.addSessions(core.sql, [
      {
        ...one,
        at: one.authorisedAt,
        instance: randomUUID(),
        calls: [{ sequence: one.sequence, seconds: one.signedMicros / 1_000_000n, nanos: 0 }],
        added: totals({ authorised: { count: 1, amount: one.bound } }),
      },
    ])
  }

  return { authorisation, authorise, event, ingest, book }
}

function holdsOf({ core, user, begin }: Base) {
  async function lend(amount: number, endsInMs: number, more: Partial<Lease> = {}): Promise<Lease> {
    const lease: Lease = {
      ...user,
      id: randomUUID(),
      sidecarId: 'sidecar-1',
      instance: randomUUID(),
      amount: usd(amount),
      used: usd(0),
      createdAt: new Date(begin),
      endsAt: new Date(begin + endsInMs),
      recalledAt: null,
      retailRatio: networkRatio,
      ...more,
    }
    await escrowStore.saveLeases(core.sql, { opened: [lease], changed: [], closed: [] })
    await core.sql.query(
      `update balances set lent_attos = lent_attos + $1 where app_id = $2 and user_id = $3`,
      [lease.amount - lease.used, user.appId, user.userId],
    )
    return lease
  }

  /** Returns the user's figures in dollars, to the micro. */
  async function account() {
    const { rows } = await core.sql.query<Record<string, string>>(
      `select round(balance_attos / 1e18, 6) as balance, round(lent_attos / 1e18, 6) as lent,
              round(pending_attos / 1e18, 6) as pending, round(consumed_attos / 1e18, 6) as consumed,
              round(overage_attos / 1e18, 6) as overage
       from balances where app_id = $1 and user_id = $2`,
      [user.appId, user.userId],
    )
    return Object.fromEntries(
      Object.entries(rows[0] ?? {}).map(([name, text]) => [name, Number(text)]),
    )
  }

  /** Returns each authorisation as "number state", and "ticketed" if it is. */
  async function authorisations(): Promise<string[]> {
    const { rows } = await core.sql.query<{ n: bigint; state: string; ticketed: boolean }>(
      `select sequence_number as n, state, ticketed from authorisations where app_id = $1 and user_id = $2
       order by sequence_number, id`,
      [user.appId, user.userId],
    )
    return rows.map(({ n, state, ticketed }) => `${n} ${state}${ticketed ? ' ticketed' : ''}`)
  }

  async function earlyTickets(): Promise<number> {
    const { rowCount } = await core.sql.query(
      `select 1 from early_tickets where app_id = $1 and user_id = $2`,
      [user.appId, user.userId],
    )
    return rowCount ?? 0
  }

  /** Returns the counts of a session. */
  async function session(id = 's1') {
    const { rows } = await core.sql.query<Record<string, bigint>>(
      `select authorised_count as authorised, ticketed_count as ticketed, lost_count as lost, charged_count as charged,
              released_count as released, late_count as late
       from authorised_sessions where app_id = $1 and user_id = $2 and session_id = $3`,
      [user.appId, user.userId, id],
    )
    return Object.fromEntries(Object.entries(rows[0] ?? {}).map(([name, n]) => [name, Number(n)]))
  }

  return { lend, account, authorisations, earlyTickets, session }
}
