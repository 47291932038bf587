import { DomainError } from '../../../proto/errors.ts'
import type { MemberCaller } from '../../rpc/callers.ts'
import type { Context } from '../../rpc/serve.ts'
import { type AuditEntry, audit } from '../../shared/audit.ts'
import type { AppId } from '../../shared/ids.ts'
import type { Db } from '../../lib/sql.ts'
import * as store from './store.ts'

/** Locks the app until the transaction ends. Throws NOT_FOUND if it is missing. */
export async function lockApp(db: Db, app: AppId): Promise<store.AppRow> {
  const row = await store.lockApp(db, app)
  if (!row) throw noSuchApp()
  return row
}

export const noSuchApp = (): DomainError =>
  new DomainError('NOT_FOUND', 'no such app for this credential')

export interface MemberChange extends Pick<AuditEntry, 'action' | 'details' | 'at'> {
  readonly caller: MemberCaller
  readonly context: Context
}

/** Writes the audit entry of a member's change. */
export const auditChange = (
  db: Db,
  { caller, context: { correlationId }, ...entry }: MemberChange,
): Promise<void> =>
  audit(db, {
    ...entry,
    appId: caller.appId,
    actor: caller.accountId,
    status: 'success',
    correlationId,
  })
