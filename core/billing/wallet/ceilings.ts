import type { Account } from '../../balances/accounts/account.ts'
import type { Ceiling, Collecting } from '../../balances/accounts/credit-line.ts'
import type { FindCeilings } from '../../balances/accounts/periods.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Db, tx } from '../../lib/sql.ts'
import type { AppId, UserId, UserKey } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { minimumCents } from '../invoices/invoice.ts'
import { centsToAttos } from '../payments/amounts.ts'
import * as store from './overage-store.ts'

/**
 * Ceilings of users' debt (decision 61): 0 unless the plan is paid and a chargeable card is known. A
 * user whose app's owner pays has no ceiling of its own: the owner's account bounds it.
 */

const dollar = 10n ** 18n
/** No account reaches it: a trillion dollars. */
export const ownerCeiling = usdAttos(10n ** 12n * dollar)
const noCeiling: Ceiling = { amount: usdAttos(0n), lacksCard: false }
/** The ceiling without a setting, and the lowest one that an owner can set. */
export const leastCeiling = usdAttos(2n * dollar)
export const minimumCharge = centsToAttos(minimumCents)

/**
 * Returns the lowest ceiling for plans with this charge threshold: a lower one would block a user
 * before the threshold is reached, so the debt would never be collected.
 */
export function minimumCeiling(threshold: UsdAttos): UsdAttos {
  if (threshold === 0n) return leastCeiling
  const least = usdAttos(threshold + minimumCharge)
  return least > leastCeiling ? least : leastCeiling
}

const leadMax = 5n * dollar

/**
 * Returns when debt is collected: at the plan's threshold; without one, at a distance below the
 * ceiling, so that the invoice is paid before calls are refused (decision 62).
 */
export function collectingAt(ceiling: UsdAttos, threshold: UsdAttos | null): Collecting {
  const lead = ceiling / 2n < leadMax ? ceiling / 2n : leadMax
  const [by, step] =
    threshold === null || threshold > ceiling
      ? (['ceiling', ceiling - lead] as const)
      : (['threshold', threshold] as const)
  return { by, step: step > minimumCharge ? usdAttos(step) : minimumCharge }
}

export interface CeilingLedger {
  lock(db: Db, users: readonly UserKey[], at: Date): Promise<Account[]>
  save(db: Db, accounts: readonly Account[], at: Date): Promise<void>
  setCeiling(
    db: Db,
    account: Account,
    to: { readonly ceiling: Ceiling; readonly at: Date },
  ): Promise<boolean>
}

/** Returns the users who have a card that can be charged. Throws if that is unknown. */
export type FindCards = (db: Db, users: readonly UserKey[]) => Promise<ReadonlySet<UserId>>

export interface CeilingsDeps extends Pick<Shared, 'pool' | 'now' | 'invalidations'> {
  readonly ledger: CeilingLedger
  readonly findCards: FindCards
}

const pageSize = 200

/** Computes the ceilings of users who enter a period. */
export const createFindCeilings =
  (findCards: FindCards): FindCeilings =>
  async (db, users) => {
    const terms = await store.findTerms(db, users)
    const paying = terms.filter(({ isOwnerPaid }) => !isOwnerPaid)
    const cards = paying.length > 0 ? await findCards(db, paying) : new Set<UserId>()
    return new Map(
      terms.map((term): [UserId, Ceiling] => {
        if (term.isOwnerPaid) return [term.userId, { amount: ownerCeiling, lacksCard: false }]
        const amount = term.ceiling ?? minimumCeiling(term.threshold)
        const collecting = collectingAt(amount, term.chargeThreshold)
        return [
          term.userId,
          cards.has(term.userId)
            ? { amount, lacksCard: false, collecting }
            : { ...noCeiling, lacksCard: true, collecting },
        ]
      }),
    )
  }

/** Keeps ceilings current when a card or a setting changes. */
export function createCeilings({ pool, ledger, findCards, invalidations, now }: CeilingsDeps) {
  const findCeilings = createFindCeilings(findCards)

  /** Computes the ceilings of users again, and recalls the leases of those with a smaller credit line. */
  async function refresh(users: readonly UserKey[]): Promise<void> {
    const recalled = await tx(pool, (db) => refreshWithin(db, users))
    for (const id of recalled) await invalidations.publish({ kind: 'lease', id })
  }

  async function refreshWithin(db: Db, users: readonly UserKey[]): Promise<UserId[]> {
    const at = now()
    const locked = await ledger.lock(db, users, at)
    const byUser = await findCeilings(db, await store.findUserPlans(db, locked))
    const recalled: UserId[] = []
    for (const account of locked) {
      const ceiling = byUser.get(account.userId) ?? noCeiling
      if (await ledger.setCeiling(db, account, { ceiling, at })) recalled.push(account.userId)
    }
    if (locked.length > 0) await ledger.save(db, locked, at)
    return recalled
  }

  /** Like `refresh`, for all users of an app, some at a time. */
  async function refreshApp(app: AppId): Promise<void> {
    for (let after: UserId | null = null; ;) {
      const page: store.PlanOfUser[] = await store.plansAfter(pool, app, { after, limit: pageSize })
      if (page.length > 0) await refresh(page)
      after = page.at(-1)?.userId ?? null
      if (page.length < pageSize) return
    }
  }

  return { refresh, refreshApp }
}

export type Ceilings = ReturnType<typeof createCeilings>
