import type { RequestCollections } from '../../balances/accounts/collecting.ts'
import type { Ledger } from '../../balances/ledger/ledger.ts'
import type { Db } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import type { UserKey } from '../../shared/ids.ts'
import { insertRequests } from './collection-store.ts'

/** Stores requests, at most one of its kind per user. */
export const requestCollections: RequestCollections = async (db, due, at) => {
  await insertRequests(db, due, at)
}

const lateSeconds = 3_600

/**
 * Returns a function that requests the last collection of a user who is deactivated, in the caller's
 * transaction. It is due when late tickets have arrived.
 */
export const createCollectFinal =
  (ledger: Pick<Ledger, 'readWithin' | 'uninvoiced' | 'toAppTime'>) =>
  async (db: Db, { appId, userId }: UserKey, at: Date): Promise<void> => {
    const account = await ledger.readWithin(db, { appId, userId }, at)
    if (ledger.uninvoiced(account) <= 0n) return
    const dueAt = addSeconds(ledger.toAppTime(account, at), lateSeconds)
    await insertRequests(db, [{ appId, userId, reason: 'final', withUsage: true, dueAt }], at)
  }
