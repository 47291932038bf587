import { normalizeEmail } from '../../lib/text/email.ts'
import type { Log } from '../../lib/log.ts'
import type { Pool } from '../../lib/sql.ts'
import * as store from './store.ts'

/**
 * Restores addresses that the migration to normal form (docs/decisions/41.md) removed from their
 * accounts, because SQL could not normalise them or an older account had the same address. Only
 * addresses that need IDNA can be restored here. The others are logged at every start, with the
 * command that fixes them, until an operator has run it.
 */
export async function restoreSetAside(pool: Pool, log: Log): Promise<void> {
  for (const { accountId, email: stored, reason } of await store.listSetAside(pool)) {
    const email = normalizeEmail(stored)
    if (email !== null && (await store.restoreAddress(pool, accountId, email))) continue
    const why =
      email === null
        ? 'is not a usable address'
        : reason === 'taken'
          ? 'also belongs to an older account'
          : 'also belongs to another account'
    log.warn(
      { accountId, email: stored },
      `this account cannot log in: its e-mail address ${why}; set another one with: ./tollgate account change --id ${accountId} --new-email EMAIL`,
    )
  }
}
