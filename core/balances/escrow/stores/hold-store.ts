import { usdAttos } from '../../../lib/money.ts'
import { type Db, many, one, sql } from '../../../lib/sql.ts'
import { type AppId, type UserId, appId, userId } from '../../../shared/ids.ts'
import { appColumn, userColumn } from './key-columns.ts'

/** Reads held money, for operators and metrics. */

const attos = (text: string) => usdAttos(BigInt(text))

/**
 * Returns the held money of all users, summed over leases and authorisations, which are far fewer
 * than users.
 */
export async function heldMoney(db: Db, at: Date) {
  const row = await one<{ lent: string; orphaned: string; pending: string }>(
    db,
    sql`
    select (select coalesce(sum(amount_attos - used_attos), 0) from leases) as lent,
           (select coalesce(sum(amount_attos - used_attos), 0) from leases where ends_at <= ${at}) as orphaned,
           (select coalesce(sum(bound_attos), 0) from authorisations where state = 'pending' and not ticketed)
           + (select coalesce(sum(bound_attos), 0) from authorisations where state = 'pending' and ticketed) as pending`,
  )
  return {
    lent: attos(row.lent),
    orphaned: attos(row.orphaned),
    pending: attos(row.pending),
  }
}

/**
 * All sidecars at `$1`. `seconds` is how far a sidecar's latest call is past its stream clock, or
 * past its oldest call without a ticket if that is later. It grows only while calls are allowed and
 * their events do not come.
 */
const sidecarsNow = `
    select s.id, s.seen_at, s.stopped_at, s.last_authorised_at, c.booked_through,
           case when a.authorised_at is null then 0 else greatest(0, extract(
             epoch from least(s.last_authorised_at, $1::timestamptz) - greatest(c.booked_through, a.authorised_at)))
           end::float8 as seconds
    from sidecars s
    left join sidecar_clocks c on c.sidecar_id = s.id
    left join lateral (
      select authorised_at
      from authorisations
      where sidecar_id = s.id and state = 'pending' and not ticketed
      order by authorised_at
      limit 1) a on true`

/** Returns the largest `seconds` of all sidecars, for the gauge that pages; 0 without a sidecar. */
export async function secondsBehind(db: Db, at: Date): Promise<number> {
  const row = await one<{ seconds: number }>(db, {
    text: `select coalesce(max(seconds), 0) as seconds from (${sidecarsNow}) s`,
    values: [at],
  })
  return row.seconds
}

/** Returns all sidecars with how far the events of each follow its calls, the furthest behind first. */
export const listSidecars = (db: Db, at: Date) =>
  many<{
    id: string
    seenAt: Date
    stoppedAt: Date | null
    /** At most 10 s after the latest call (`noteReservation`), and not after `at`. */
    lastAuthorisedAt: Date | null
    bookedThrough: Date | null
    seconds: number
  }>(db, {
    text: `
    select id, seen_at as "seenAt", stopped_at as "stoppedAt",
           case when last_authorised_at > $1::timestamptz then $1::timestamptz else last_authorised_at
           end as "lastAuthorisedAt", booked_through as "bookedThrough", seconds
    from (${sidecarsNow}) s
    order by seconds desc, id
    limit 10000`,
    values: [at],
  })

export interface HolderFilter {
  /** Null for all apps. */
  readonly appId: AppId | null
  /** Null for all users. */
  readonly userId: UserId | null
  readonly after: UserId | null
  readonly limit: number
}

/**
 * Returns users with a lease or a pending authorisation, in id order. Returns one more than `limit`
 * if there are more.
 */
export async function findHolders(db: Db, { appId: app, ...filter }: HolderFilter) {
  const rows = await many<{
    app_id: string
    user_id: string
    client_id: string
    external_user_id: string
    balance_attos: string
    lent_attos: string
    pending_attos: string
    pending_count: bigint
  }>(
    db,
    sql`
    select h.app_id, h.user_id, c.client_id, u.external_user_id, b.balance_attos, b.lent_attos, b.pending_attos,
           (select coalesce(sum(a.calls), 0)::bigint
            from authorisations a
            where a.app_id = h.app_id and a.user_id = h.user_id and a.state = 'pending') as pending_count
    from (
      select app_id, user_id from leases
      union
      select app_id, user_id from authorisations where state = 'pending') h
    join balances b on b.app_id = h.app_id and b.user_id = h.user_id
    join end_users u on u.app_id = h.app_id and u.id = h.user_id
    join clients c on c.app_id = h.app_id and c.kind = 'public'
    where (${app}::uuid is null or h.app_id = ${app}) and (${filter.userId}::uuid is null or h.user_id = ${filter.userId})
      and (${filter.after}::uuid is null or h.user_id > ${filter.after})
    order by h.user_id
    limit ${filter.limit + 1}`,
  )
  return rows.map((row) => ({
    appId: appId(row.app_id),
    userId: userId(row.user_id),
    clientId: row.client_id,
    externalUserId: row.external_user_id,
    balance: attos(row.balance_attos),
    lent: attos(row.lent_attos),
    pending: attos(row.pending_attos),
    pendingCount: row.pending_count,
  }))
}

export type Holder = Awaited<ReturnType<typeof findHolders>>[number]

/** Returns the oldest pending authorisations of each user, up to `limit`. */
export async function findHeldCalls(db: Db, users: readonly Holder[], limit: number) {
  const rows = await many<{
    user_id: string
    session_id: string
    sequence_number: bigint
    session_type: string
    sidecar_id: string
    bound_attos: string
    authorised_at: Date
    proven: boolean
    ticketed: boolean
    calls: number
  }>(
    db,
    sql`
    select w.user_id, a.session_id, a.sequence_number, a.session_type, a.sidecar_id, a.bound_attos, a.authorised_at,
           a.proven, a.ticketed, a.calls
    from unnest(${appColumn(users)}::uuid[], ${userColumn(users)}::uuid[]) as w (app_id, user_id)
    cross join lateral (
      select *
      from authorisations
      where app_id = w.app_id and user_id = w.user_id and state = 'pending'
      order by authorised_at, id
      limit ${limit}) a
    order by a.authorised_at, a.id`,
  )
  return rows.map((row) => ({
    userId: userId(row.user_id),
    sessionId: row.session_id,
    sequence: row.sequence_number,
    sessionType: row.session_type,
    sidecarId: row.sidecar_id,
    bound: attos(row.bound_attos),
    authorisedAt: row.authorised_at,
    isProven: row.proven,
    isTicketed: row.ticketed,
    calls: row.calls,
  }))
}
