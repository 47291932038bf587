import { hash } from 'node:crypto'
import type { AppId } from './ids.ts'
import { uuidV7 } from '../lib/crypto.ts'
import { type Db, many, prepared, sql } from '../lib/sql.ts'

/** Who acts, and in which request. */
export interface Actor {
  readonly name: string
  readonly context?: { readonly correlationId: string }
}

/**
 * An action: who did what to which app, and with which result. `details` must not hold a secret.
 */
export interface AuditEntry {
  readonly appId: AppId | null
  readonly actor: string
  readonly action: string
  readonly status: 'success' | 'refused'
  readonly correlationId?: string | undefined
  readonly details?: Readonly<Record<string, string | number | boolean | null>>
  readonly at: Date
}

/** Writes the entry. `db` is the action's transaction, if it has one. */
export const audit = (db: Db, entry: AuditEntry): Promise<void> => auditAll(db, [entry])

/** Like `audit`, for a successful action. */
export const auditSuccess = (
  db: Db,
  { actor, ...entry }: Omit<AuditEntry, 'actor' | 'status' | 'correlationId'> & { actor: Actor },
): Promise<void> =>
  audit(db, {
    ...entry,
    actor: actor.name,
    status: 'success',
    correlationId: actor.context?.correlationId,
  })

/** Writes the entries in one statement. */
export async function auditAll(db: Db, entries: readonly AuditEntry[]): Promise<void> {
  if (entries.length === 0) return
  const column = <T>(value: (entry: AuditEntry) => T): T[] => entries.map(value)
  await db.query(
    prepared('audit')`
    insert into audit_log (app_id, id, actor, action, status, correlation_id, details, created_at)
    select * from unnest(
      ${column((entry) => entry.appId)}::uuid[], ${column((entry) => uuidV7(entry.at.getTime()))}::uuid[],
      ${column((entry) => entry.actor)}::text[], ${column((entry) => entry.action)}::text[],
      ${column((entry) => entry.status)}::text[], ${column((entry) => entry.correlationId ?? null)}::text[],
      ${column((entry) => JSON.stringify(entry.details ?? {}))}::jsonb[],
      ${column((entry) => entry.at.toISOString())}::timestamptz[])`,
  )
}

const minuteMs = 60_000

/**
 * Like `audit`, for actions that strangers can repeat without limit. Writes one entry per minute,
 * actor, action, outcome and `kind`, and counts repetitions in `details.count`. Other details are
 * those of the first occurrence.
 */
export async function auditRepeated(db: Db, entry: AuditEntry, kind = ''): Promise<void> {
  const minute = Math.floor(entry.at.getTime() / minuteMs)
  const parts = [entry.appId ?? '', entry.actor, entry.action, entry.status, kind, minute]
  const digest = hash('sha256', parts.join(' '))
  await db.query(sql`
    insert into audit_log (app_id, id, actor, action, status, correlation_id, details, created_at)
    values (${entry.appId}, ${digest.slice(0, 32)}::uuid, ${entry.actor}, ${entry.action}, ${entry.status},
            ${entry.correlationId ?? null}, ${JSON.stringify({ ...entry.details, count: 1 })}, ${entry.at})
    on conflict (id) do update
    set details = jsonb_set(audit_log.details, '{count}', to_jsonb((audit_log.details ->> 'count')::int + 1))`)
}

export interface OldEntry {
  readonly id: string
  readonly appId: string | null
  readonly actor: string
  readonly action: string
  readonly status: string
  readonly correlationId: string | null
  readonly details: object
  readonly createdAt: Date
}

/** Deletes and returns at most `limit` entries created before an instant, oldest first. */
export const deleteOldEntries = (db: Db, before: Date, limit: number): Promise<OldEntry[]> =>
  many<OldEntry>(
    db,
    sql`
    delete from audit_log
    where id in (
      select id from audit_log where created_at < ${before} order by created_at, id limit ${limit} for update skip locked)
    returning id, app_id as "appId", actor, action, status, correlation_id as "correlationId", details,
              created_at as "createdAt"`,
  )
