import { type AppId, type UserId, appId, userId } from '../../shared/ids.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Db, many, one, sql } from '../../lib/sql.ts'

/** Reads the ledger's charges in the order in which they became visible. */

/** A `pg_snapshot` as text: the set of transactions committed when it was taken. */
export type Snapshot = string

export interface ChargeKey {
  readonly xact: string
  readonly userId: string
  readonly seq: string
}

/** Network cost of a charge's tickets, and the platform's cut. */
export interface NetworkCharge {
  readonly cost: UsdAttos
  readonly platformFee: UsdAttos
}

export interface ChargeEntry {
  readonly appId: AppId
  readonly userId: UserId
  readonly externalUserId: string
  readonly chargeId: string
  /** Retail price charged to the user. */
  readonly cost: UsdAttos
  /** Null if some of its tickets cannot be found. */
  readonly network: NetworkCharge | null
  readonly overage: UsdAttos
  readonly balanceAfter: UsdAttos
  readonly ticketCount: number
  readonly createdAt: Date
  readonly key: ChargeKey
}

/** Returns the snapshot of all currently committed transactions. */
export const currentSnapshot = async (db: Db): Promise<Snapshot> =>
  (await one<{ snapshot: string }>(db, sql`select pg_current_snapshot()::text as snapshot`))
    .snapshot

export interface Between {
  /** Charges up to this snapshot were read already. */
  readonly from: Snapshot
  /** The snapshot up to which to read. */
  readonly to: Snapshot
  /** The last charge of the previous page. */
  readonly after: ChargeKey | null
  readonly apps: readonly AppId[]
  readonly userId: UserId | null
  readonly limit: number
}

/** Maximum tickets to search for those of a charge: the user's latest around the charge's time. */
const nearTickets = 20_000

const first: ChargeKey = { xact: '0', userId: '00000000-0000-0000-0000-000000000000', seq: '0' }

/**
 * Returns charges that are committed in `to` but were not in `from`, however long their
 * transactions took. Each charge is between exactly one pair of consecutive snapshots.
 */
export async function chargesBetween(
  db: Db,
  { from, to, after, apps, userId: user, limit }: Between,
): Promise<ChargeEntry[]> {
  const { xact, userId: last, seq } = after ?? first
  const rows = await many<{
    app_id: string
    user_id: string
    seq: bigint
    xact: bigint
    cause_id: string
    external_user_id: string | null
    amount_attos: string
    overage_attos: string
    balance_after_attos: string
    ticket_count: number
    created_at: Date
    network_attos: string | null
    platform_fee_attos: string | null
  }>(
    db,
    sql`
    select e.app_id, e.user_id, e.seq, e.xact, e.cause_id, u.external_user_id, e.amount_attos, e.overage_attos,
           e.balance_after_attos, e.ticket_count, e.created_at, t.network_attos, t.platform_fee_attos
    -- The page first: the tickets of the charges behind it are not looked for.
    from (
      select *
      from ledger_entries e
      where e.app_id = any(${apps}::uuid[]) and (${user}::uuid is null or e.user_id = ${user}) and e.kind = 'charge'
        and e.charged_app_id is null
        and e.xact >= pg_snapshot_xmin(${from}::pg_snapshot)::text::bigint
        and e.xact < pg_snapshot_xmax(${to}::pg_snapshot)::text::bigint and e.xact >= ${xact}::bigint
        and not pg_visible_in_snapshot(e.xact::text::xid8, ${from}::pg_snapshot)
        and pg_visible_in_snapshot(e.xact::text::xid8, ${to}::pg_snapshot)
        and (e.xact, e.user_id, e.seq) > (${xact}::bigint, ${last}::uuid, ${seq}::bigint)
      order by e.xact, e.user_id, e.seq
      limit ${limit}) e
    left join end_users u on u.app_id = e.app_id and u.id = e.user_id
    left join lateral (
      select sum(own.cost_attos) as network_attos, sum(coalesce(own.platform_fee_attos, 0)) as platform_fee_attos
      from (
        select cost_attos, platform_fee_attos
        from (
          select charge_id, cost_attos, platform_fee_attos
          from tickets
          where app_id = e.app_id and user_id = e.user_id
            and signed_at >= e.created_at - interval '1 day' and signed_at < e.created_at + interval '5 minutes'
          order by signed_at desc, event_id desc
          limit ${nearTickets}) near
        where charge_id = e.cause_id
        -- Those of a charge lie together: nothing older is read once they are all there.
        limit e.ticket_count) own
      having count(*) = e.ticket_count) t on true
    order by e.xact, e.user_id, e.seq`,
  )
  return rows.map((row) => ({
    appId: appId(row.app_id),
    userId: userId(row.user_id),
    externalUserId: row.external_user_id ?? 'unknown',
    chargeId: row.cause_id,
    cost: usdAttos(BigInt(row.overage_attos) - BigInt(row.amount_attos)),
    network:
      row.network_attos === null || row.platform_fee_attos === null
        ? null
        : {
            cost: usdAttos(BigInt(row.network_attos)),
            platformFee: usdAttos(BigInt(row.platform_fee_attos)),
          },
    overage: usdAttos(BigInt(row.overage_attos)),
    balanceAfter: usdAttos(BigInt(row.balance_after_attos)),
    ticketCount: row.ticket_count,
    createdAt: row.created_at,
    key: { xact: String(row.xact), userId: row.user_id, seq: String(row.seq) },
  }))
}
