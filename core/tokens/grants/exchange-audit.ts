import { DomainError } from '../../../proto/errors.ts'
import type { Log } from '../../lib/log.ts'
import type { Pool } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { type Actor, audit } from '../../platform/audit.ts'
import type { AppId } from '../../platform/ids.ts'

/** One request for a token, as the audit log names it. */
export interface ExchangeAttempt {
  /** Null while no app is known. Such an attempt has no entry. */
  readonly appId: AppId | null
  readonly action: string
  readonly actor: Actor
}

/** Audit entries of token exchanges, granted and refused. An entry that cannot be written fails no exchange. */
export function createExchangeAudit({ pool, log, now }: { pool: Pool; log: Log; now: Now }) {
  async function write(
    attempt: ExchangeAttempt,
    status: 'success' | 'refused',
    reason: string | null,
  ): Promise<void> {
    if (attempt.appId === null) return
    await audit(pool, {
      appId: attempt.appId,
      actor: attempt.actor.name,
      action: attempt.action,
      status,
      at: now(),
      correlationId: attempt.actor.context?.correlationId,
      details: reason === null ? {} : { reason },
    }).catch((error: unknown) =>
      log.warn({ err: error, action: attempt.action }, 'audit entry lost'),
    )
  }

  /** Does not wait for the entry, so that a refusal takes the same time for an app that exists as for one that does not. */
  function recordRefusal(attempt: ExchangeAttempt, error: unknown): void {
    void write(attempt, 'refused', error instanceof DomainError ? error.reason : 'INTERNAL')
  }

  /** Runs `work` and records how it ended. */
  async function record<T>(attempt: ExchangeAttempt, work: () => Promise<T>): Promise<T> {
    try {
      const response = await work()
      await write(attempt, 'success', null)
      return response
    } catch (error) {
      recordRefusal(attempt, error)
      throw error
    }
  }

  return { record, recordRefusal }
}

export type ExchangeAudit = ReturnType<typeof createExchangeAudit>
