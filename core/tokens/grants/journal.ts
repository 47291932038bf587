import { DomainError } from '../../../proto/errors.ts'
import { audit } from '../../platform/audit.ts'
import type { Actor } from '../../platform/audit.ts'
import type { AppId } from '../../platform/ids.ts'
import type { Log } from '../../lib/log.ts'
import type { Pool } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'

export interface Attempt {
  /** Nothing is written for an app that nobody has named or proved. */
  readonly appId: AppId | null
  readonly action: string
  readonly actor: Actor
}

/** Audit entries of exchanges, whichever way they end. An entry that cannot be written fails no exchange. */
export function createJournal({ pool, log, now }: { pool: Pool; log: Log; now: Now }) {
  async function write(
    attempt: Attempt,
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

  /** Nobody waits for it: a refusal takes as long for an app that is there as for one that is not. */
  function refused(attempt: Attempt, error: unknown): void {
    void write(attempt, 'refused', error instanceof DomainError ? error.reason : 'INTERNAL')
  }

  /** Runs `work` and writes how it ended. */
  async function both<T>(attempt: Attempt, work: () => Promise<T>): Promise<T> {
    try {
      const result = await work()
      await write(attempt, 'success', null)
      return result
    } catch (error) {
      refused(attempt, error)
      throw error
    }
  }

  return { both, refused }
}

export type Journal = ReturnType<typeof createJournal>
