import type { AppId } from './ids.ts'
import { uuidV7 } from '../lib/crypto.ts'
import { type Db, sql } from '../lib/sql.ts'

/** Who acts, and in which request. */
export interface Actor {
  readonly name: string
  readonly context?: { readonly correlationId: string }
}

/** A fact worth keeping: who did what to which app, and how it ended. Never a secret in `details`. */
export interface AuditEntry {
  readonly appId: AppId | null
  readonly actor: string
  readonly action: string
  readonly status: 'success' | 'refused'
  readonly correlationId?: string | undefined
  readonly details?: Readonly<Record<string, string | number | boolean | null>>
  readonly at: Date
}

/** Writes the entry in the same transaction as the deed. */
export async function audit(db: Db, entry: AuditEntry): Promise<void> {
  await db.query(sql`
    insert into audit_log (app_id, id, actor, action, status, correlation_id, details, created_at)
    values (${entry.appId}, ${uuidV7(entry.at.getTime())}, ${entry.actor}, ${entry.action}, ${entry.status},
            ${entry.correlationId ?? null}, ${JSON.stringify(entry.details ?? {})}, ${entry.at})`)
}
