import { type Account, newAccount } from '../../../../core/balances/accounts/account.ts'
import type { Credit } from '../../../../core/balances/accounts/credits.ts'
import type { AccountStore } from '../../../../core/balances/accounts/accounts.ts'
import { type BillingCycle, periodAt } from '../../../../core/lib/time.ts'
import type { UserId } from '../../../../core/shared/ids.ts'
import type { MemoryDatabase } from '../escrow/memory-database.ts'

/** A user's balance row and open credits. Replaced, never modified. */
export type StoredAccount = Omit<Account, 'entries' | 'periods'>

/** What a user's subscription includes in each period. */
export interface MemoryTerms {
  readonly userId: UserId
  readonly anchorAt: Date
  readonly cycle: BillingCycle
  readonly planId: string
  readonly planVersion: number
  readonly includedAttos: bigint
  /** From the period that begins here on, the plan includes another amount. */
  readonly next?: { readonly at: Date; readonly includedAttos: bigint }
}

/** In-memory accounts of the ledger, for the model checker. */
export function createMemoryAccountStore({ set }: MemoryDatabase) {
  const accounts = new Map<string, StoredAccount>()
  /** Terms of users' subscriptions. Must be set before an account is opened. */
  const terms = new Map<string, MemoryTerms>()

  const read = (users: readonly { readonly userId: string }[]): Account[] =>
    users
      .flatMap(({ userId }) => accounts.get(userId) ?? [])
      .toSorted((a, b) => (a.userId < b.userId ? -1 : 1))
      .map((account) => ({
        ...account,
        credits: account.credits.map(copyOf),
        entries: [],
        periods: [],
      }))

  const insertBalances: AccountStore['insertBalances'] = async (_db, users) => {
    const inserted = users.filter(({ userId }) => !accounts.has(userId))
    for (const { appId, userId, start, end } of inserted)
      set(accounts, userId, {
        ...newAccount({ appId, userId }),
        periodStart: start,
        periodEnd: end,
        periodCountsFrom: start,
      })
    return new Set(inserted.map(({ userId }) => userId))
  }

  const saveAccounts: AccountStore['saveAccounts'] = async (_db, changed) => {
    for (const { entries, periods, ...account } of changed) {
      const { userId, credits, lent, pending, balance, overage } = account
      if (lent < 0n || pending < 0n || balance < 0n || overage < 0n)
        throw new Error(`${userId}: a balance, its overage, or what is held of it, is negative`)
      const open = credits.filter(({ expiredAt }) => expiredAt === null)
      set(accounts, userId, { ...account, credits: open.map(copyOf) })
      entries.length = 0
      periods.length = 0
    }
  }

  const usersToExpire: AccountStore['usersToExpire'] = async (_db, at, { limit }) =>
    [...accounts.values()]
      .filter(({ credits }) =>
        credits.some(({ expiresAt }) => expiresAt !== null && expiresAt <= at),
      )
      .slice(0, limit)

  const store: AccountStore = {
    currentTerms: async (_db, users, at) =>
      users
        .flatMap(({ userId }) => terms.get(userId) ?? [])
        .map(({ anchorAt, cycle, next, ...term }) => {
          const period = periodAt(anchorAt, cycle, at)
          const isNext = next !== undefined && period.start >= next.at
          const includedAttos = isNext ? next.includedAttos : term.includedAttos
          return { ...term, includedAttos, withheldAttos: 0n, priceAttos: 0n, period }
        }),
    freePeriods: async () => new Map(),
    insertBalances,
    lockAccounts: async (_db, users) => read(users),
    readAccounts: async (_db, users) => read(users),
    saveAccounts,
    usersToExpire,
    lockDue: async (_db, at, { limit }) =>
      [...accounts.values()].filter(({ periodEnd }) => periodEnd <= at).slice(0, limit),
    // An adjustment's own row is only for people; its effect is in the account.
    insertAdjustment: async () => {},
    rebuildBalance: async () => {
      throw new Error('a balance in memory is not rebuilt')
    },
  }
  return { store, accounts, terms }
}

const copyOf = (credit: Credit): Credit => ({ ...credit, state: 'stored' })
