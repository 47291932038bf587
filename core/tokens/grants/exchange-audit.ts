import { Counter } from 'prom-client'
import { DomainError } from '../../../proto/errors.ts'
import type { Log } from '../../lib/log.ts'
import type { Metrics } from '../../lib/metrics.ts'
import type { Pool } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { type Actor, type AuditEntry, auditAll } from '../../platform/audit.ts'
import { createBatchWriter } from '../../platform/batch-writer.ts'
import type { AppId } from '../../platform/ids.ts'

/** One request for a token, as the audit log names it. */
export interface ExchangeAttempt {
  /** Null while no app is known. Such an attempt has no entry. */
  readonly appId: AppId | null
  readonly action: string
  readonly actor: Actor
  /** Nobody has authenticated: a refusal is counted and has no entry, because strangers decide how many there are. */
  readonly isAnonymous?: boolean
}

export interface ExchangeAuditDeps {
  readonly pool: Pool
  readonly log: Log
  readonly metrics: Metrics
  readonly now: Now
}

/** Audit entries of token exchanges, granted and refused. An entry that cannot be written fails no exchange. */
export function createExchangeAudit({ pool, log, metrics, now }: ExchangeAuditDeps) {
  const anonymousRefusals = new Counter({
    name: 'tollgate_tokens_anonymous_refusals_total',
    help: 'Token exchanges that were refused before anybody had authenticated',
    labelNames: ['action', 'reason'],
    registers: [metrics],
  })

  const writeInBatch = createBatchWriter<AuditEntry, null>(pool, async (db, entries) => {
    await auditAll(db, entries)
    return entries.map(() => null)
  })

  async function write(
    attempt: ExchangeAttempt,
    status: 'success' | 'refused',
    reason: string | null,
  ): Promise<void> {
    if (attempt.appId === null) return
    await writeInBatch({
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
    const reason = error instanceof DomainError ? error.reason : 'INTERNAL'
    if (attempt.isAnonymous === true) anonymousRefusals.inc({ action: attempt.action, reason })
    else void write(attempt, 'refused', reason)
  }

  /**
   * Runs `work` and records how it ended. Work that calls `decided` when nothing can be refused any more has its entry written
   * while the token is signed: then the entries of requests that were decided together share a statement.
   */
  async function record<T>(
    attempt: ExchangeAttempt,
    work: (decided: () => void) => Promise<T>,
  ): Promise<T> {
    let entry: Promise<void> | undefined
    const decided = (): void => {
      entry ??= write(attempt, 'success', null)
    }
    try {
      const response = await work(decided)
      decided()
      await entry
      return response
    } catch (error) {
      recordRefusal(attempt, error)
      throw error
    }
  }

  return { record, recordRefusal }
}

export type ExchangeAudit = ReturnType<typeof createExchangeAudit>
