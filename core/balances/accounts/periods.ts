import { uuidV7 } from '../../lib/crypto.ts'
import { usdAttos } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import { later } from '../../shared/clocks/clocks.ts'
import type { UserId, UserKey } from '../../shared/ids.ts'
import type { Resubscribe } from '../../plans/subscriptions/ports.ts'
import { type Account, addCredit, enterPeriod, toAppTime } from './account.ts'
import { type Ceiling, noCeiling } from './credit-line.ts'
import { lastSigning } from './credits.ts'
import { limitDebt } from './paying.ts'
import { type FreePeriod, type Terms, calendarDaysMax, withheldFrom } from './terms.ts'
import type * as termsStore from './terms-store.ts'

/**
 * Finds the ceilings of users who enter a period of a plan that is not free. Omits ceilings of 0.
 */
export type FindCeilings = (
  db: Db,
  users: readonly (UserKey & { readonly planId: string })[],
) => Promise<ReadonlyMap<UserId, Ceiling>>

export interface PeriodsDeps {
  readonly store: Pick<typeof termsStore, 'currentTerms' | 'freePeriods'>
  /** Restores missing subscriptions. Without it, a missing subscription is an error. */
  readonly resubscribe?: Resubscribe | undefined
  /** Without it, only free plans change a ceiling. */
  readonly findCeilings?: FindCeilings | undefined
}

/** Reads the terms of users' periods, and enters locked accounts into them. */
export function createPeriods({ store, resubscribe, findCeilings }: PeriodsDeps) {
  async function readTerms(
    db: Db,
    users: readonly (UserKey & { readonly aheadMs: number })[],
    at: Date,
  ): Promise<(user: UserKey) => Terms> {
    const byUser = new Map<UserId, Terms>()
    async function readOf(
      some: readonly (UserKey & { readonly aheadMs: number })[],
    ): Promise<void> {
      for (const [aheadMs, same] of Map.groupBy(some, (user) => user.aheadMs))
        for (const term of await store.currentTerms(db, same, later(at, aheadMs)))
          byUser.set(term.userId, term)
    }
    await readOf(users)
    // A user without a subscription must not stop the batch for all others.
    const lost = users.filter(({ userId }) => !byUser.has(userId))
    if (resubscribe && lost.length > 0) await resubscribe(db, lost).then(() => readOf(lost))
    return ({ userId }) => {
      const term = byUser.get(userId)
      if (!term) throw new Error(`user ${userId} has no subscription`)
      return term
    }
  }

  /** Moves accounts whose period is over into the running period and adds its included usage. */
  async function enterRunning(db: Db, locked: readonly Account[], at: Date): Promise<void> {
    const due = locked.filter((account) => account.periodEnd <= toAppTime(account, at))
    if (due.length === 0) return
    const termsOf = await withhold(db, due, await readTerms(db, due, at))
    for (const account of due) enter(account, termsOf(account), toAppTime(account, at))
    await setCeilings(db, due, termsOf)
  }

  /**
   * Sets the ceilings of accounts that have entered a period: 0 in a free plan. Returns the
   * accounts with a smaller credit line.
   */
  async function setCeilings(
    db: Db,
    entered: readonly Account[],
    termsOf: (account: Account) => Terms,
  ): Promise<Account[]> {
    const paid = entered.filter((account) => !termsOf(account).isFree)
    const planned = paid.map((account) => {
      const { appId, userId } = account
      return { appId, userId, planId: termsOf(account).planId }
    })
    const ceilings = findCeilings && paid.length > 0 ? await findCeilings(db, planned) : null
    return entered.filter((account) => {
      if (!termsOf(account).isFree && !ceilings) return false
      return limitDebt(account, ceilings?.get(account.userId) ?? noCeiling)
    })
  }

  /**
   * Returns what the next period includes, for locked accounts whose period ends before a call that
   * is signed by `until` (real time) has to be paid. Omits uncertain accounts.
   */
  async function nextIncluded(
    db: Db,
    locked: readonly Account[],
    until: Date,
  ): Promise<ReadonlyMap<UserId, bigint>> {
    const last = lastSigning(until)
    const ending = locked.filter((account) => account.periodEnd <= toAppTime(account, last))
    if (ending.length === 0) return new Map()
    const termsOf = await readTerms(db, ending, last)
    return new Map(
      ending.flatMap((account) => {
        const { period, freeCycle, includedAttos } = termsOf(account)
        // A subscription of a free plan that begins may include less (`withhold`).
        const isNext = period.start.getTime() === account.periodEnd.getTime() && !freeCycle
        return isNext ? [[account.userId, includedAttos] as const] : []
      }),
    )
  }

  /**
   * Adds to the terms what free plans gave before. Sends no query if no subscription of a free plan
   * begins.
   */
  async function withhold(
    db: Db,
    locked: readonly Account[],
    termsOf: (user: UserKey) => Terms,
  ): Promise<(account: Account) => Terms> {
    const starting = locked.filter((account) => termsOf(account).freeCycle)
    if (starting.length === 0) return termsOf
    const starts = starting.map((account) => termsOf(account).period.start.getTime())
    const since = new Date(Math.min(...starts) - calendarDaysMax * 86_400_000)
    const saved = await store.freePeriods(db, starting, since)
    return (account) => {
      const terms = termsOf(account)
      const periods = [...(saved.get(account.userId) ?? []), ...enteredFree(account)]
      return { ...terms, withheldAttos: withheldFrom(terms, periods) }
    }
  }

  return { readTerms, enterRunning, setCeilings, nextIncluded, withhold }
}

/** Unsaved periods of free plans. */
const enteredFree = ({ periods }: Account): FreePeriod[] =>
  periods
    .filter(({ terms }) => terms.isFree)
    .map(({ start, terms: { planId, includedAttos, withheldAttos } }) => ({
      planId,
      start,
      givenAttos: includedAttos - withheldAttos,
    }))

/** Enters a period and adds its included usage. */
export function enter(
  account: Account,
  { period, countsFrom, ...terms }: Terms & { readonly countsFrom?: Date },
  at: Date,
): void {
  enterPeriod(account, {
    ...period,
    ...(countsFrom && { countsFrom }),
    enteredAt: at,
    terms,
  })
  const included = terms.includedAttos - terms.withheldAttos
  creditIncluded(account, { included, effectiveAt: account.periodCountsFrom }, at)
}

/** Adds included usage of the running period. */
export function creditIncluded(
  account: Account,
  { included, effectiveAt }: { readonly included: bigint; readonly effectiveAt: Date },
  at: Date,
): void {
  if (included === 0n) return
  addCredit(
    account,
    {
      id: uuidV7(at.getTime()),
      kind: 'included',
      source: 'plan_adjustment',
      featureKey: null,
      amount: usdAttos(included),
      remaining: usdAttos(included),
      priority: 0,
      effectiveAt,
      expiresAt: account.periodEnd,
      expiredAt: null,
      createdAt: at,
      state: 'new',
    },
    at,
  )
}
