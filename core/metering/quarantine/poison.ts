import { DomainError, reasons } from '../../../proto/errors.ts'
import { isUnavailable } from '../../lib/sql.ts'

/**
 * Returns true if the events themselves are rejected: data (22), constraints (21, 23), limits (54),
 * a raised exception (P0), or a fault in our own code while processing them. A missing table, a
 * full disk or a lost privilege is not an event's fault.
 */
export function isPoison(error: unknown): boolean {
  if (isUnavailable(error) || (error instanceof DomainError && reasons[error.reason].http >= 500))
    return false
  const state = sqlState(error)
  return (
    state === '' ||
    /^(21|22|23|54|P0)[0-9A-Z]{3}$/.test(state) ||
    (!/^[0-9A-Z]{5}$/.test(state) && !/^E[A-Z]/.test(state))
  )
}

const sqlState = (error: unknown): string =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : ''

export const describeError = (error: unknown): string =>
  `${sqlState(error)} ${error instanceof Error ? error.message : 'unknown'}`.trim().slice(0, 400)
