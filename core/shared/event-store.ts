import { type Db, many, prepared } from '../lib/sql.ts'
import type { AppId } from './ids.ts'

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
