import { DomainError } from '../../proto/errors.ts'
import type { AppId, UserId } from '../platform/ids.ts'
import { microsDown, microsUp } from '../lib/money.ts'
import type { Pool } from '../lib/sql.ts'
import { type Now, parseInstant } from '../lib/time.ts'
import { periodAt } from '../plans/period.ts'
import * as store from './history-store.ts'
import { currentTerms } from './store.ts'

/** Balances of the past. Read from the ledger, by the time its entries were booked: what was known then, not what came later. */
export function createHistory({ pool, now }: { pool: Pool; now: Now }) {
  /**
   * The balance of a user as it stood at `asOf` (ISO 8601). REQUEST_INVALID for an instant that is none or to come;
   * NOT_FOUND for one before the user was there.
   */
  async function balance(
    user: { appId: AppId; userId: UserId; externalUserId: string },
    asOf: string,
  ) {
    const at = parseInstant(asOf)
    if (!at)
      throw new DomainError(
        'REQUEST_INVALID',
        'asOf must be an ISO 8601 instant with a zone, such as 2026-01-31T12:00:00Z',
      )
    if (at > now()) throw new DomainError('REQUEST_INVALID', 'asOf must not be in the future')
    const of = { appId: user.appId, userId: user.userId, at }
    const since = await store.userSince(pool, of)
    if (!since || since > at)
      throw new DomainError('NOT_FOUND', 'the user was not there yet at that time')
    const [terms] = await currentTerms(pool, [of])
    const period = terms ? periodAt(terms.anchorAt, terms.cycle, at) : { start: since, end: at }
    const { balance: left, consumed, granted, unpriced } = await store.balanceAt(pool, of, period)
    const micros = microsDown(left)
    return {
      externalUserId: user.externalUserId,
      balanceUsdMicros: micros.toString(),
      remainingUsdMicros: micros.toString(),
      consumedUsdMicros: microsUp(consumed).toString(),
      lifetimeGrantedUsdMicros: microsDown(granted).toString(),
      hasAccess: micros > 0n,
      unpricedTickets: unpriced.toString(),
      asOf: at.toISOString(),
    }
  }

  return { balance }
}

export type History = ReturnType<typeof createHistory>
