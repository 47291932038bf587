import { type UsdAttos, microsDown } from '../../lib/money.ts'
import { type Db, afterCommit } from '../../lib/sql.ts'
import type { EmitCredits } from '../../metering/backend/emit.ts'
import { auditSuccess } from '../../shared/audit.ts'
import type { UserKey } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { toAppTime } from '../accounts/account.ts'
import { isNeededByHolds } from '../accounts/adjusting.ts'
import type { Ledger } from '../ledger/ledger.ts'

export interface TopUpsDeps extends Pick<Shared, 'invalidations' | 'now'> {
  readonly ledger: Ledger
  /** Queues credits for the metering backend. Absent without a backend. */
  readonly emitCredits?: EmitCredits | undefined
}

export interface TopUp {
  readonly user: UserKey & { readonly externalUserId: string }
  readonly amount: UsdAttos
  /** Our id of the payment. */
  readonly paymentId: string
}

export interface TakeBack {
  readonly user: UserKey
  /** The credit that the returned payment bought. */
  readonly creditId: string
  readonly amount: UsdAttos
  /** Our id of the return, which becomes the id of the correction. */
  readonly returnId: string
  readonly reason: string
}

const author = 'payment processor'

/** Credit that users have paid for (decision 66). Every function runs in the caller's transaction. */
export function createTopUps({ ledger, emitCredits, invalidations, now }: TopUpsDeps) {
  /** Adds paid credit, which no quota limits. Returns the credit's id. */
  async function credit(db: Db, { user, amount, paymentId }: TopUp): Promise<string> {
    const at = now()
    const [account] = await ledger.lock(db, [user], at)
    if (!account) throw new Error(`user ${user.userId} has no account`)
    const added = ledger.credit(
      account,
      { amount, source: 'manual', featureKey: null },
      toAppTime(account, at),
    )
    await ledger.save(db, [account], at)
    const amountMicros = microsDown(amount)
    await emitCredits?.(
      db,
      [{ ...user, id: added.id, amountMicros, source: 'manual', featureKey: null }],
      at,
    )
    await auditSuccess(db, {
      appId: user.appId,
      actor: { name: author },
      action: 'wallet_topped_up',
      details: {
        grantId: added.id,
        userId: user.userId,
        amountUsdMicros: String(amountMicros),
        paymentId,
      },
      at,
    })
    await announce(db, user)
    return added.id
  }

  /**
   * Takes back a refunded or disputed payment: first what is left of the credit that it bought; the
   * spent part becomes debt. Returns false, after recalling the user's leases, while calls hold
   * money of that credit.
   */
  async function takeBack(
    db: Db,
    { user, creditId, amount, returnId, reason }: TakeBack,
  ): Promise<boolean> {
    const at = now()
    const [account] = await ledger.lock(db, [user], at)
    if (!account) throw new Error(`user ${user.userId} has no account`)
    if (isNeededByHolds(account, { creditId, amount, at: toAppTime(account, at) })) {
      if (await ledger.recall(db, account, at)) {
        await ledger.save(db, [account], at)
        await afterCommit(db, () => invalidations.publish({ kind: 'lease', id: user.userId }))
      }
      return false
    }
    await ledger.adjust(db, {
      user,
      adjustment: {
        id: returnId,
        amount: negative(amount),
        reason,
        author,
        eventId: null,
        creditId,
        at,
      },
      feature: null,
    })
    await announce(db, user)
    return true
  }

  /** Undoes a return that failed: the money goes back to the credit that it came from. */
  async function giveBack(
    db: Db,
    { user, creditId, amount, returnId, reason }: TakeBack,
  ): Promise<void> {
    await ledger.adjust(db, {
      user,
      adjustment: { id: returnId, amount, reason, author, eventId: null, at: now() },
      feature: null,
      refund: async () => [{ creditId, featureKey: null, amount }],
    })
    await announce(db, user)
  }

  const announce = (db: Db, { userId: id }: UserKey): Promise<void> =>
    afterCommit(db, () => invalidations.publish({ kind: 'access', id }))

  return { credit, takeBack, giveBack }
}

export type TopUps = ReturnType<typeof createTopUps>

const negative = (amount: UsdAttos): UsdAttos => -amount as UsdAttos
