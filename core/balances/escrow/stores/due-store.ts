import { plainArray, textArray } from '../../../lib/copy-sql.ts'
import { many, sql } from '../../../lib/sql.ts'
import { appId, userId } from '../../../shared/ids.ts'
import { clockRange, idleSince } from '../due.ts'
import type { EscrowStore } from '../port.ts'

/** Reads what the release must end, over all users. The functions are documented in `port.ts`. */

/**
 * An early ticket without a report for this long lowers an orphan. A sidecar reports a call within
 * 10 s; the rest covers answers in transit.
 */
export const earlySeconds = 15

export const findDueUsers: EscrowStore['findDueUsers'] = async (db, due) => {
  const { at, lagSeconds, limit } = due
  const clocks = clockRange(due)
  const idle = idleSince(due)
  const rows = await many<{ app_id: string; user_id: string }>(
    db,
    sql`
    with due as materialized (
      select s.id, greatest(
        c.booked_through - make_interval(secs => ${lagSeconds}),
        case when s.last_authorised_at <= ${idle} then s.last_authorised_at end) as through
      from sidecars s
      left join sidecar_clocks c
        on c.sidecar_id = s.id and c.booked_through between ${clocks.from} and ${clocks.to}
    ), stream as materialized (
      select (
        select max(booked_through)
        from sidecar_clocks
        where booked_through between ${clocks.from} and ${clocks.to}) as through, exists (
        select 1
        from sidecars s
        cross join lateral (
          select 1
          from authorisations
          where sidecar_id = s.id and state = 'pending' and not ticketed
            and authorised_at <= ${at}::timestamptz - make_interval(secs => ${lagSeconds})
          limit 1) a) as waits
    ), orphans as materialized (
      select app_id, user_id, sidecar_id, ends_at, ends_at + make_interval(secs => ${lagSeconds}) as due_at
      from leases
      where ends_at <= ${at}
    )
    select app_id, user_id
    from (
      select a.app_id, a.user_id
      from due
      cross join lateral (
        select app_id, user_id
        from authorisations
        where sidecar_id = due.id and state = 'pending' and not ticketed and authorised_at <= due.through
          and coalesce(last_at, authorised_at) <= due.through
        order by authorised_at
        limit ${limit}) a
      union
      select o.app_id, o.user_id
      from orphans o
      cross join stream
      where exists (
          select 1
          from early_tickets e
          where e.app_id = o.app_id and e.user_id = o.user_id
            and e.booked_at < ${at}::timestamptz - make_interval(secs => ${earlySeconds}))
        or o.due_at <= ${at}
        and (not stream.waits or stream.through >= o.due_at or o.ends_at <= ${idle})
        and not exists (
          select 1
          from authorisations a
          where a.sidecar_id = o.sidecar_id and a.state = 'pending' and not a.ticketed and a.authorised_at <= o.ends_at)) users
    order by user_id
    limit ${limit}`,
  )
  return rows.map((row) => ({ appId: appId(row.app_id), userId: userId(row.user_id) }))
}

export const findReleasable: EscrowStore['findReleasable'] = async (db, leases, due) => {
  const { at, lagSeconds } = due
  const clocks = clockRange(due)
  const rows = await many<{ id: string }>(
    db,
    sql`
    with stream as materialized (
      select (
        select max(booked_through)
        from sidecar_clocks
        where booked_through between ${clocks.from} and ${clocks.to}) as through, exists (
        select 1
        from sidecars s
        cross join lateral (
          select 1
          from authorisations
          where sidecar_id = s.id and state = 'pending' and not ticketed
            and authorised_at <= ${at}::timestamptz - make_interval(secs => ${lagSeconds})
          limit 1) a) as waits
    )
    select l.id
    from unnest(
      ${plainArray(leases.map(({ id }) => id))}::uuid[], ${textArray(leases.map(({ sidecarId }) => sidecarId))}::text[],
      ${plainArray(leases.map(({ endsAt }) => endsAt.toISOString()))}::timestamptz[]) as l (id, sidecar_id, ends_at)
    cross join stream
    where l.ends_at + make_interval(secs => ${lagSeconds}) <= ${at}
      and (not stream.waits or stream.through >= l.ends_at + make_interval(secs => ${lagSeconds})
           or l.ends_at <= ${idleSince(due)})
      and not exists (
        select 1
        from authorisations a
        where a.sidecar_id = l.sidecar_id and a.state = 'pending' and not a.ticketed and a.authorised_at <= l.ends_at)`,
  )
  return new Set(rows.map(({ id }) => id))
}
