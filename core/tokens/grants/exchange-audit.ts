import { Counter } from 'prom-client'
import { DomainError } from '../../../proto/errors.ts'
import type { PublicClient } from '../../identity/apps/clients.ts'
import type { Context } from '../../rpc/serve.ts'
import { type Actor, type AuditEntry, auditAll } from '../../shared/audit.ts'
import { createBatchWriter } from '../../shared/batch-writer.ts'
import type { AppId } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'

/** A token request, with the fields of its audit entry. */
export interface ExchangeAttempt {
  /** Null if the app is unknown. Such an attempt has no audit entry. */
  readonly appId: AppId | null
  readonly action: string
  readonly actor: Actor
  /**
   * Whether no client has authenticated. Refusals are then counted in a metric and not audited,
   * because strangers can cause any number.
   */
  readonly isAnonymous?: boolean
}

/**
 * Audit entries of granted and refused token exchanges. A failed write of an entry does not fail
 * the exchange.
 */
export function createExchangeAudit({ pool, log, metrics, now }: Shared) {
  const anonymousRefusals = new Counter({
    name: 'tollgate_tokens_anonymous_refusals_total',
    help: 'Token exchanges that were refused before authentication',
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

  /**
   * Does not wait for the entry, so that a refusal takes the same time for existing and missing
   * apps.
   */
  function recordRefusal(attempt: ExchangeAttempt, error: unknown): void {
    const reason = error instanceof DomainError ? error.reason : 'INTERNAL'
    if (attempt.isAnonymous === true) anonymousRefusals.inc({ action: attempt.action, reason })
    else void write(attempt, 'refused', reason)
  }

  /**
   * Runs `work` and records its outcome. If `work` calls `decided` once it can no longer be
   * refused, the entry is written while the token is signed, and concurrent entries share a
   * statement.
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

  /**
   * Authenticates the caller of a token exchange. Until then the attempt is the named client's,
   * anonymously. A refusal is recorded for it.
   */
  async function begin<Caller>(
    client: Pick<PublicClient, 'appId' | 'clientId'> | null,
    context: Context,
    authenticate: () => Promise<Caller>,
  ): Promise<{ anonymous: ExchangeAttempt; caller: Caller }> {
    const anonymous: ExchangeAttempt = {
      appId: client && client.appId,
      action: 'app_oidc_token_exchange',
      actor: { name: client?.clientId ?? 'unknown', context },
      isAnonymous: true,
    }
    try {
      return { anonymous, caller: await authenticate() }
    } catch (error) {
      recordRefusal(anonymous, error)
      throw error
    }
  }

  return { begin, record, recordRefusal }
}

export type ExchangeAudit = ReturnType<typeof createExchangeAudit>
