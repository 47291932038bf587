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
        ? 'is no address that can be used'
        : reason === 'taken'
          ? 'belongs to an older account, too'
          : 'belongs to another account, too'
    log.warn(
      { accountId, email: stored },
      `nobody can log in to this account: its e-mail address ${why}; give it another one with: ./tollgate account change --id ${accountId} --new-email EMAIL`,
    )
  }
}
