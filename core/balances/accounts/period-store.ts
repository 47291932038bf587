import { uuids } from '../../lib/copy-sql.ts'
import { type Db, many, prepared } from '../../lib/sql.ts'
import type { UserPeriods } from '../../metering/rating/port.ts'
import { inAppGroups } from '../../shared/database/app-groups.ts'
import { userId, type UserKey } from '../../shared/ids.ts'

/** Reads `periods` for rating: which version of a plan applied when. */

interface PeriodRow {
  user_id: string
  start_ms: number
  end_ms: number
  terms_id: bigint
}

/** Returns the latest `limit` periods of each user, in order; all periods if `limit` is null. */
export async function readPeriods(
  db: Db,
  users: readonly UserKey[],
  limit: number | null,
): Promise<UserPeriods[]> {
  const rows = await inAppGroups(db, users, (group, app) =>
    many<PeriodRow>(
      db,
      prepared('periods')`
    select w.user_id, (extract(epoch from p.starts_at) * 1000)::float8 as start_ms,
           (extract(epoch from p.ends_at) * 1000)::float8 as end_ms, v.id as terms_id
    from unnest(${uuids(group.map((user) => user.appId))}::uuid[], ${uuids(group.map((user) => user.userId))}::uuid[])
      as w (app_id, user_id)
    cross join lateral (
      select starts_at, ends_at, plan_id, plan_version
      from periods
      where app_id = w.app_id and user_id = w.user_id and (${app}::uuid is null or app_id = ${app})
      order by starts_at desc
      limit ${limit === null ? null : limit + 1}) p
    join plan_versions v on v.app_id = w.app_id and v.plan_id = p.plan_id and v.version = p.plan_version
    order by w.user_id, p.starts_at`,
    ),
  )
  return [...Map.groupBy(rows, (row) => row.user_id)].map(([user, all]) => {
    const isWhole = limit === null || all.length <= limit
    const latest = isWhole ? all : all.slice(1)
    return {
      userId: userId(user),
      isWhole,
      periods: latest.map((row) => ({
        startMs: row.start_ms,
        endMs: row.end_ms,
        termsId: row.terms_id,
      })),
    }
  })
}
