import { DomainError } from '../../../proto/errors.ts'
import type { Ledger } from '../../balances/ledger/ledger.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { tx } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import { type Actor, auditSuccess } from '../../shared/audit.ts'
import type { AppId } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { centsDown, formatCents } from '../payments/amounts.ts'
import { type FoundPayer, type Payers, isUnplaceable } from '../payments/payers.ts'
import { minimumCharge } from '../wallet/ceilings.ts'
import * as store from './collection-store.ts'

export interface CollectNowDeps extends Pick<Shared, 'pool' | 'now'> {
  readonly ledger: Pick<Ledger, 'lock' | 'save' | 'uninvoiced' | 'toAppTime'>
  readonly payers: Pick<Payers, 'place'>
  /** Starts the work on due collections without waiting for the next round. */
  readonly wake: () => void
}

export interface CollectNow {
  readonly outcome: 'queued' | 'skipped' | 'rate_limited'
  /** Issued invoices that are charged again. */
  readonly invoiceIds: readonly string[]
  /** Why nothing was queued, in words. */
  readonly reason?: string
}

const coolDownSeconds = 60

/** Collects from a payer when somebody asks for it. */
export function createCollectNow({ pool, ledger, payers, wake, now }: CollectNowDeps) {
  /**
   * Requests a collection of what the payer owes, and retries its unpaid invoices. All cores share
   * the cool-down, which only a queued request starts. Throws PROCESSOR_NOT_CONNECTED if nothing can
   * be charged.
   */
  async function collect(app: AppId, payer: FoundPayer, actor: Actor): Promise<CollectNow> {
    await requirePlace(payer)
    const answer = await tx(pool, async (db): Promise<CollectNow> => {
      const { user } = payer
      const at = now()
      const [account] = await ledger.lock(db, [user], at)
      if (!account) throw new Error(`user ${user.userId} has no account`)
      await ledger.save(db, [account], at)
      if (await store.isRequestedSince(db, user, addSeconds(at, -coolDownSeconds)))
        return { outcome: 'rate_limited', invoiceIds: [], reason: tooSoon }
      const own = ledger.toAppTime(account, at)
      const invoiceIds = await store.reopen(db, user, own)
      const owed = ledger.uninvoiced(account)
      if (invoiceIds.length === 0 && owed < minimumCharge)
        return { outcome: 'skipped', invoiceIds, reason: tooLittle(owed) }
      const request = { ...user, reason: 'request', withUsage: true, dueAt: own } as const
      await store.insertRequests(db, [request], at)
      const details = { userId: user.userId, payerAppId: user.appId }
      await auditSuccess(db, { appId: app, actor, action: 'collection_requested', details, at })
      return { outcome: 'queued', invoiceIds }
    })
    if (answer.outcome === 'queued') wake()
    return answer
  }

  async function requirePlace(payer: FoundPayer): Promise<void> {
    try {
      await payers.place(payer)
    } catch (error) {
      if (!isUnplaceable(error)) throw error
      throw new DomainError('PROCESSOR_NOT_CONNECTED', `nothing can be charged: ${error.message}`, {
        cause: error,
        members: { outcome: 'unavailable' },
      })
    }
  }

  return { collect }
}

const tooSoon = `a collection was requested less than ${coolDownSeconds} seconds ago`

function tooLittle(owed: UsdAttos): string {
  const [due, least] = [owed > 0n ? owed : usdAttos(0n), minimumCharge].map((amount) =>
    formatCents(centsDown(amount)),
  )
  return `${due} USD are on no invoice, and less than ${least} USD is not charged; no invoice waits for another charge`
}

export type CollectNowService = ReturnType<typeof createCollectNow>
