import { Counter } from 'prom-client'
import type { Db } from '../../lib/sql.ts'
import { startAtZero } from '../../lib/metrics.ts'
import { audit, auditRepeated } from '../../shared/audit.ts'
import type { AccountId } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'

export type LoginMethod = 'password' | 'provider'
export type AuditDetails = Readonly<Record<string, string | number | boolean | null>>

/** An act by an account or on an account. */
export interface AccountAct {
  readonly account: AccountId
  /** Default is the account itself. */
  readonly actor?: string
  readonly action: string
  readonly details?: AuditDetails
  readonly correlationId?: string | undefined
}

/**
 * Audit entries and metrics of logins and account changes. Failures of a known account make at most
 * one entry a minute. Failures without an account only increment a metric, because strangers can
 * cause any number.
 */
export function createLoginRecords({ pool, log, metrics, now }: Shared) {
  const logins = new Counter({
    name: 'tollgate_core_logins_total',
    help: 'Logins of people by method and outcome; unknown: no account has the address.',
    labelNames: ['method', 'outcome'] as const,
    registers: [metrics],
  })
  startAtZero(logins, {
    method: ['password', 'provider'],
    outcome: ['success', 'refused', 'unknown'],
  })

  async function note(db: Db, act: AccountAct): Promise<void> {
    await audit(db, {
      appId: null,
      actor: act.actor ?? act.account,
      action: act.action,
      status: 'success',
      correlationId: act.correlationId,
      details: { accountId: act.account, ...act.details },
      at: now(),
    })
  }

  const loggedIn = async (db: Db, method: LoginMethod, act: Omit<AccountAct, 'action'>) => {
    logins.inc({ method, outcome: 'success' })
    await note(db, { ...act, action: 'account_logged_in', details: { method, ...act.details } })
  }

  /**
   * Does not wait for the entry, so that a failure takes the same time with and without an account.
   */
  function failed(
    method: LoginMethod,
    account: AccountId | null,
    correlationId: string | undefined,
  ): void {
    logins.inc({ method, outcome: account === null ? 'unknown' : 'refused' })
    if (account === null) return
    void auditRepeated(pool, {
      appId: null,
      actor: account,
      action: 'account_login_failed',
      status: 'refused',
      correlationId,
      details: { accountId: account, method },
      at: now(),
    }).catch((error: unknown) => log.warn({ err: error }, 'audit entry of a failed login lost'))
  }

  return { note, loggedIn, failed }
}

export type LoginRecords = ReturnType<typeof createLoginRecords>
