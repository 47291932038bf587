import { type Db, many, maybeOne, prepared } from '../lib/sql.ts'
import type { AppId } from './ids.ts'

/** Returns the platform app, whose users are owners of apps; null before core's first start. */
export async function findPlatformApp(db: Db): Promise<AppId | null> {
  const row = await maybeOne<{ app_id: AppId }>(
    db,
    prepared('event-platform-app')`select app_id from platform_app`,
  )
  return row?.app_id ?? null
}

/** Returns a test for the event types that active endpoints receive, by app. */
export async function findTypeFilters(
  db: Db,
  apps: readonly AppId[],
): Promise<ReadonlyMap<AppId, (type: string) => boolean>> {
  const rows = await many<{ app_id: AppId; event_types: string[] }>(
    db,
    prepared('event-filters')`
    select app_id, event_types
    from webhook_endpoints
    where app_id = any(${apps}::uuid[]) and status = 'active'`,
  )
  return new Map(
    [...Map.groupBy(rows, (row) => row.app_id)].map(([app, endpoints]) => [
      app,
      (type) =>
        endpoints.some(({ event_types: types }) => types.length === 0 || types.includes(type)),
    ]),
  )
}
