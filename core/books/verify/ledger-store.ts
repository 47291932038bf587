import { type Db, many, sql } from '../../lib/sql.ts'
import type { AppId } from '../../shared/ids.ts'
import { type ComparedRow, type RangeQuery, toDifferent } from './ticket-store.ts'
import type { DifferentRow } from '../types.ts'

/** Compares the ledger with its tickets, its credits and itself. */

/**
 * Finds charges that differ from the sum of the tickets that name them, including archived ones.
 */
export async function chargeDifferences(
  db: Db,
  { appId, after, upTo, limit }: RangeQuery,
): Promise<DifferentRow[]> {
  const rows = await many<ComparedRow>(
    db,
    sql`
    with named as (
      select user_id, charge_id, coalesce(retail_attos, cost_attos) as cost_attos,
             cost_attos + coalesce(platform_fee_attos, 0) as owner_attos
      from tickets
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo} and charge_id is not null
      union all
      select user_id, charge_id, cost_attos, owner_attos
      from archived_charges
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}
    ), expected as (
      select user_id, charge_id, sum(cost_attos) as cost, sum(owner_attos) as owner
      from named
      group by user_id, charge_id
    ), stored as (
      select user_id, cause_id as charge_id, sum(overage_attos - amount_attos) as cost, count(*) as entries,
             sum(owner_attos) as owner
      from ledger_entries
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo} and kind = 'charge' and charged_app_id is null
      group by user_id, cause_id
    )
    select user_id, u.external_user_id, jsonb_build_object('charge_id', charge_id::text) as key,
           case when s.cost is not null then jsonb_build_object(
             'cost_attos', s.cost::text, 'entries', s.entries::text, 'owner_attos', s.owner::text) end as stored,
           case when e.cost is not null then jsonb_build_object(
             'cost_attos', e.cost::text, 'entries', '1',
             'owner_attos', case when s.owner is not null then e.owner end::text) end as expected
    from expected e
    full join stored s using (user_id, charge_id)
    left join end_users u on u.app_id = ${appId} and u.id = user_id
    where (e.cost, 1, coalesce(s.owner, 0)) is distinct from
          (s.cost, s.entries, case when s.owner is null then 0 else e.owner end)
    order by user_id, charge_id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}

/** Finds owner charges that differ from the shares in the users' charges of the app. */
export async function ownerChargeDifferences(
  db: Db,
  app: AppId,
  limit: number,
): Promise<DifferentRow[]> {
  const rows = await many<ComparedRow>(
    db,
    sql`
    with expected as (
      select owner_user_id as user_id, cause_id as charge_id, sum(owner_attos) as cost, sum(ticket_count) as tickets
      from ledger_entries
      where app_id = ${app} and owner_user_id is not null
      group by owner_user_id, cause_id
    ), stored as (
      select user_id, cause_id as charge_id, sum(overage_attos - amount_attos) as cost, sum(ticket_count) as tickets
      from ledger_entries
      where charged_app_id = ${app}
      group by user_id, cause_id
    )
    select user_id, u.external_user_id, jsonb_build_object('charge_id', charge_id::text) as key,
           case when s.cost is not null then jsonb_build_object('cost_attos', s.cost::text, 'tickets', s.tickets::text) end as stored,
           case when e.cost is not null then jsonb_build_object('cost_attos', e.cost::text, 'tickets', e.tickets::text) end as expected
    from expected e
    full join stored s using (user_id, charge_id)
    left join end_users u on u.app_id = (select app_id from platform_app) and u.id = user_id
    where (e.cost, e.tickets) is distinct from (s.cost, s.tickets)
    order by user_id, charge_id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}

/** Finds entries with a number or balance that does not follow from the previous entry. */
export async function entryDifferences(
  db: Db,
  { appId, after, upTo, limit }: RangeQuery,
): Promise<DifferentRow[]> {
  const rows = await many<ComparedRow>(
    db,
    sql`
    select e.user_id, u.external_user_id, jsonb_build_object('seq', e.seq::text) as key,
           jsonb_build_object('seq', e.seq::text, 'balance_after_attos', e.balance_after_attos::text) as stored,
           jsonb_build_object('seq', e.next_seq::text, 'balance_after_attos', e.follows::text) as expected
    from (
      select user_id, seq, balance_after_attos, lag(seq, 1, 0::bigint) over entries + 1 as next_seq,
             lag(balance_after_attos, 1, 0::numeric) over entries + amount_attos as follows
      from ledger_entries
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}
      window entries as (partition by user_id order by seq)) e
    left join end_users u on u.app_id = ${appId} and u.id = e.user_id
    where e.seq <> e.next_seq or e.balance_after_attos <> e.follows
    order by e.user_id, e.seq
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}

/**
 * Finds balances that differ from the fold of their entries, or from the sums of leases and holds.
 * Does not check the consumption of the period, which no entry records.
 */
export async function balanceDifferences(
  db: Db,
  { appId, after, upTo, limit }: RangeQuery,
): Promise<DifferentRow[]> {
  const rows = await many<ComparedRow>(
    db,
    sql`
    with topups as (
      select user_id, sum(amount_attos) as topup
      from grants
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo} and kind = 'grant'
      group by user_id
    ), folded as (
      select user_id, max(seq) as seq, sum(amount_attos) as balance,
             coalesce(sum(amount_attos) filter (where kind = 'grant'), 0) as granted,
             coalesce(sum(amount_attos - overage_attos) filter (where kind = 'adjustment'), 0) as adjusted,
             coalesce(sum(overage_attos - amount_attos) filter (where kind = 'charge'), 0) as consumed,
             sum(overage_attos) as overage, sum(collected_attos) as collected,
             coalesce(-sum(amount_attos) filter (where kind = 'expire'), 0) as expired
      from ledger_entries
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}
      group by user_id
    ), lent as (
      select user_id, sum(amount_attos - used_attos) as lent
      from leases
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}
      group by user_id
    ), pending as (
      select user_id, sum(bound_attos) as pending
      from authorisations
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo} and state = 'pending'
      group by user_id
    ), expected as (
      select u.id as user_id, coalesce(f.seq, 0) as seq, coalesce(f.balance, 0) as balance, coalesce(f.granted, 0) as granted,
             coalesce(t.topup, 0) as topup, coalesce(f.adjusted, 0) as adjusted, coalesce(f.consumed, 0) as consumed,
             coalesce(f.overage, 0) as overage, coalesce(f.collected, 0) as collected, coalesce(f.expired, 0) as expired,
             coalesce(l.lent, 0) as lent, coalesce(p.pending, 0) as pending
      from end_users u
      left join folded f on f.user_id = u.id
      left join topups t on t.user_id = u.id
      left join lent l on l.user_id = u.id
      left join pending p on p.user_id = u.id
      where u.app_id = ${appId} and u.id > ${after} and u.id <= ${upTo}
    )
    select e.user_id, u.external_user_id, '{}'::jsonb as key,
           case when b.seq is not null then jsonb_build_object(
             'seq', b.seq::text, 'balance_attos', b.balance_attos::text, 'granted_attos', b.granted_attos::text,
             'topup_attos', b.topup_attos::text, 'adjusted_attos', b.adjusted_attos::text,
             'consumed_attos', b.consumed_attos::text, 'overage_attos', b.overage_attos::text,
             'collected_attos', b.collected_attos::text,
             'expired_attos', b.expired_attos::text, 'lent_attos', b.lent_attos::text,
             'pending_attos', b.pending_attos::text) end as stored,
           jsonb_build_object(
             'seq', e.seq::text, 'balance_attos', e.balance::text, 'granted_attos', e.granted::text,
             'topup_attos', e.topup::text, 'adjusted_attos', e.adjusted::text, 'consumed_attos', e.consumed::text,
             'overage_attos', e.overage::text, 'collected_attos', e.collected::text,
             'expired_attos', e.expired::text, 'lent_attos', e.lent::text,
             'pending_attos', e.pending::text) as expected
    from expected e
    left join balances b on b.app_id = ${appId} and b.user_id = e.user_id
    left join end_users u on u.app_id = ${appId} and u.id = e.user_id
    where (e.seq, e.balance, e.granted, e.topup, e.adjusted, e.consumed, e.overage, e.collected, e.expired, e.lent, e.pending)
          is distinct from
          (b.seq, b.balance_attos, b.granted_attos, b.topup_attos, b.adjusted_attos, b.consumed_attos, b.overage_attos,
           b.collected_attos, b.expired_attos, b.lent_attos, b.pending_attos)
    order by e.user_id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}

/**
 * Finds credits and adjustments with a missing or different entry, and credits that do not add up:
 * the remaining amounts together must equal the balance, and an expired credit must have nothing
 * left.
 */
export async function creditDifferences(
  db: Db,
  { appId, after, upTo, limit }: RangeQuery,
): Promise<DifferentRow[]> {
  const rows = await many<ComparedRow>(
    db,
    sql`
    with given as (
      select user_id, id, amount_attos
      from grants
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo} and kind <> 'adjustment'
      union all
      select user_id, id, amount_attos
      from adjustments
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}
    ), entered as (
      select user_id, cause_id as id, sum(amount_attos - overage_attos) as amount_attos
      from ledger_entries
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo} and kind in ('grant', 'adjustment')
      group by user_id, cause_id
    ), left_over as (
      select user_id, sum(remaining_attos) as remaining, coalesce(sum(remaining_attos) filter (where expired_at is not null), 0) as dead
      from grants
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}
      group by user_id
    ), different as (
      select user_id, jsonb_build_object('cause_id', id::text) as key,
             case when b.id is not null then jsonb_build_object('booked_attos', b.amount_attos::text) end as stored,
             case when g.id is not null then jsonb_build_object('booked_attos', g.amount_attos::text) end as expected
      from given g
      full join entered b using (user_id, id)
      where g.amount_attos is distinct from b.amount_attos
      union all
      select b.user_id, '{}', jsonb_build_object('remaining_attos', coalesce(l.remaining, 0)::text, 'remaining_of_expired_attos', coalesce(l.dead, 0)::text),
             jsonb_build_object('remaining_attos', b.balance_attos::text, 'remaining_of_expired_attos', '0')
      from balances b
      left join left_over l on l.user_id = b.user_id
      where b.app_id = ${appId} and b.user_id > ${after} and b.user_id <= ${upTo}
        and (coalesce(l.remaining, 0) <> b.balance_attos or coalesce(l.dead, 0) <> 0)
    )
    select f.user_id, u.external_user_id, f.key, f.stored, f.expected
    from different f
    left join end_users u on u.app_id = ${appId} and u.id = f.user_id
    order by f.user_id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}

/**
 * Finds sessions with unaccounted calls: each call must be held, or counted in the session's
 * totals. This detects a deleted hold, because the totals do not change with it, independently of
 * the balance.
 */
export async function heldCallDifferences(
  db: Db,
  { appId, after, upTo, limit }: RangeQuery,
): Promise<DifferentRow[]> {
  const rows = await many<ComparedRow>(
    db,
    sql`
    with held as (
      select user_id, session_id,
             -- A charged call whose ticket waits for a price is in both totals.
             coalesce(sum(calls) filter (where state = 'pending' and not ticketed), 0)
             - count(*) filter (where state = 'charged' and ticketed) as calls
      from authorisations
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo} and sidecar_id <> ''
      group by user_id, session_id
    ), totals as (
      select user_id, session_id,
             authorised_count - ticketed_count - lost_count - charged_count - released_count - unaccounted_count as calls
      from authorised_sessions
      where app_id = ${appId} and user_id > ${after} and user_id <= ${upTo}
    )
    select user_id, u.external_user_id, jsonb_build_object('session_id', session_id) as key,
           jsonb_build_object('held_calls', coalesce(h.calls, 0)::text) as stored,
           jsonb_build_object('held_calls', coalesce(t.calls, 0)::text) as expected
    from totals t
    full join held h using (user_id, session_id)
    left join end_users u on u.app_id = ${appId} and u.id = user_id
    where coalesce(h.calls, 0) <> coalesce(t.calls, 0)
    order by user_id, session_id
    limit ${limit}`,
  )
  return rows.map(toDifferent)
}
