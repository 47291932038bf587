import type { Log } from '../../lib/log.ts'
import type { Db } from '../../lib/sql.ts'
import { type Actor, auditSuccess } from '../../shared/audit.ts'
import { emit } from '../../shared/events.ts'
import type { UserKey } from '../../shared/ids.ts'
import type { Author } from './change.ts'

/** Records changes of plan: in the log, in the audit log, and as events. */
export function createNotes(log: Log) {
  async function note(
    db: Db,
    { appId, userId }: UserKey,
    entry: {
      readonly by: Author
      readonly action: string
      readonly at: Date
      readonly details: Readonly<Record<string, string | null>>
    },
  ): Promise<void> {
    const { by, action, at, details } = entry
    log.info({ appId, userId, ...details }, action.replaceAll('_', ' '))
    const canceled = action === 'subscription_canceled'
    const type = canceled ? 'subscription.canceled' : 'subscription.changed'
    await emit(db, { appId, userId, type, data: details, at })
    await auditSuccess(db, {
      appId,
      actor: toActor(by),
      action,
      details: { userId, ...details },
      at,
    })
  }

  return { note }
}

const toActor = ({ name, correlationId }: Author): Actor =>
  correlationId === undefined ? { name } : { name, context: { correlationId } }
