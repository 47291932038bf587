import { type Db, many, sql } from '../../lib/sql.ts'
import { inAppGroups } from '../../shared/database/app-groups.ts'
import { type UserId, type UserKey, appId, userId } from '../../shared/ids.ts'
import type { PaymentProcessor } from '../processor/port.ts'

/** Reads which users can be charged, for many users at once. */

/** Returns the users with a card that can be charged at `at`, in their app's current account. */
export async function findChargeable(
  db: Db,
  users: readonly UserKey[],
  { kind, at }: { readonly kind: PaymentProcessor['kind']; readonly at: Date },
): Promise<ReadonlySet<UserId>> {
  const rows = await inAppGroups(db, users, (group, app) =>
    many<{ user_id: string }>(
      db,
      sql`
      select c.user_id
      from unnest(${group.map((user) => user.appId)}::uuid[], ${group.map((user) => user.userId)}::uuid[])
        as w (app_id, user_id)
      join apps a on a.id = w.app_id
      left join platform_app o on o.app_id = w.app_id
      left join processor_accounts p
        on p.app_id = w.app_id and p.processor = ${kind} and p.ended_at is null and p.charges_enabled and p.details_submitted
          and p.plane = case when a.is_test then 'test' else 'live' end
      join processor_customers c
        on c.app_id = coalesce(${app}, w.app_id) and c.user_id = w.user_id and c.processor = ${kind}
          and c.plane = case when a.is_test then 'test' else 'live' end
          and c.account_id = case when o.app_id is null then p.account else '' end
      where c.card_id is not null
        and (c.card_expires_year, c.card_expires_month) >= (${at.getUTCFullYear()}, ${at.getUTCMonth() + 1})`,
    ),
  )
  return new Set(rows.map((row) => userId(row.user_id)))
}

/**
 * Returns up to `limit` users after `after` whose debt may still grow although a card of theirs
 * expired in one of the last three months.
 */
export async function findExpired(
  db: Db,
  at: Date,
  { after, limit }: { readonly after: UserKey | null; readonly limit: number },
): Promise<UserKey[]> {
  const months = [1, 2, 3].map(
    (back) => new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth() - back)),
  )
  const rows = await many<{ app_id: string; user_id: string }>(
    db,
    sql`
    select distinct b.app_id, b.user_id
    from unnest(${months.map((month) => month.getUTCFullYear())}::smallint[],
                ${months.map((month) => month.getUTCMonth() + 1)}::smallint[]) as m (year, month)
    join processor_customers c on c.card_expires_year = m.year and c.card_expires_month = m.month
    join balances b on b.app_id = c.app_id and b.user_id = c.user_id and b.ceiling_attos > 0
    where ${after?.appId ?? null}::uuid is null
      or (b.app_id, b.user_id) > (${after?.appId ?? null}::uuid, ${after?.userId ?? null}::uuid)
    order by b.app_id, b.user_id
    limit ${limit}`,
  )
  return rows.map((row) => ({ appId: appId(row.app_id), userId: userId(row.user_id) }))
}
