import type { Cursor } from '../cursor.ts'
import type { AppId } from '../ids.ts'
import { type Db, many, sql } from '../../lib/sql.ts'

export interface AuditRow {
  id: string
  actor: string
  action: string
  status: string
  correlation_id: string | null
  details: object
  created_at: Date
}

/** Entries at or after `since` and before `until`, in pages that begin after a cursor. */
export interface AuditPage {
  readonly since: Date | null
  readonly until: Date | null
  readonly after: Cursor | null
  readonly limit: number
}

export interface AppAuditPage extends AuditPage {
  readonly app: AppId
  readonly action: string | null
  readonly actor: string | null
}

/** An app's entries, newest first. Returns one row more than `limit` if there are more. */
export const listNewest = (
  db: Db,
  { app, action, actor, ...page }: AppAuditPage,
): Promise<AuditRow[]> =>
  many<AuditRow>(
    db,
    sql`
    select id, actor, action, status, correlation_id, details, created_at
    from audit_log
    where app_id = ${app} and (${action}::text is null or action = ${action})
      and (${actor}::text is null or actor = ${actor})
      and (${page.since}::timestamptz is null or created_at >= ${page.since})
      and (${page.until}::timestamptz is null or created_at < ${page.until})
      and (${page.after?.id ?? null}::uuid is null
           or (created_at, id) < (${page.after?.createdAt ?? null}::timestamptz, ${page.after?.id ?? null}::uuid))
    order by created_at desc, id desc
    limit ${page.limit + 1}`,
  )

/** Like `listNewest`, oldest first. */
export const listOldest = (
  db: Db,
  { app, action, actor, ...page }: AppAuditPage,
): Promise<AuditRow[]> =>
  many<AuditRow>(
    db,
    sql`
    select id, actor, action, status, correlation_id, details, created_at
    from audit_log
    where app_id = ${app} and (${action}::text is null or action = ${action})
      and (${actor}::text is null or actor = ${actor})
      and (${page.since}::timestamptz is null or created_at >= ${page.since})
      and (${page.until}::timestamptz is null or created_at < ${page.until})
      and (${page.after?.id ?? null}::uuid is null
           or (created_at, id) > (${page.after?.createdAt ?? null}::timestamptz, ${page.after?.id ?? null}::uuid))
    order by created_at, id
    limit ${page.limit + 1}`,
  )

export interface ExportedRow extends AuditRow {
  client_id: string | null
}

/**
 * Entries of all apps and entries without an app, oldest first. Returns one row more than `limit`
 * if there are more.
 */
export const listAll = (db: Db, page: AuditPage): Promise<ExportedRow[]> =>
  many<ExportedRow>(
    db,
    sql`
    select a.id, a.actor, a.action, a.status, a.correlation_id, a.details, a.created_at, c.client_id
    from audit_log a
    left join clients c on c.app_id = a.app_id and c.kind = 'public'
    where (${page.since}::timestamptz is null or a.created_at >= ${page.since})
      and (${page.until}::timestamptz is null or a.created_at < ${page.until})
      and (a.created_at, a.id) > (coalesce(${page.after?.createdAt ?? null}::timestamptz, '-infinity'),
                                  coalesce(${page.after?.id ?? null}::uuid, '00000000-0000-0000-0000-000000000000'))
    order by a.created_at, a.id
    limit ${page.limit + 1}`,
  )

/** Like `listAll`, for one app: its own entries, and operators' entries that name it. */
export const listOfClient = (db: Db, clientId: string, page: AuditPage): Promise<ExportedRow[]> =>
  many<ExportedRow>(
    db,
    sql`
    select a.id, a.actor, a.action, a.status, a.correlation_id, a.details, a.created_at,
           ${clientId}::text as client_id
    from audit_log a
    where (a.app_id = (select app_id from clients where client_id = ${clientId} and kind = 'public')
           or (a.app_id is null and a.details ->> 'clientId' = ${clientId}))
      and (${page.since}::timestamptz is null or a.created_at >= ${page.since})
      and (${page.until}::timestamptz is null or a.created_at < ${page.until})
      and (a.created_at, a.id) > (coalesce(${page.after?.createdAt ?? null}::timestamptz, '-infinity'),
                                  coalesce(${page.after?.id ?? null}::uuid, '00000000-0000-0000-0000-000000000000'))
    order by a.created_at, a.id
    limit ${page.limit + 1}`,
  )
