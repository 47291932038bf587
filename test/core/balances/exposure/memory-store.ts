import {
  type ExposureStore,
  networkCost,
  ownerCost,
} from '../../../../core/balances/exposure/exposure.ts'
import { creditLine } from '../../../../core/balances/accounts/credit-line.ts'
import { spendableAt } from '../../../../core/balances/accounts/credits.ts'
import type { OwnerLeaseStore } from '../../../../core/balances/escrow/owner-recalls.ts'
import type { Lease } from '../../../../core/balances/escrow/port.ts'
import type { OwnerHolds, Payer } from '../../../../core/balances/exposure/store.ts'
import type { AppId, UserKey } from '../../../../core/shared/ids.ts'
import type { StoredAccount } from '../accounts/memory-store.ts'
import type { MemoryDatabase } from '../escrow/memory-database.ts'
import type { EscrowTables } from '../escrow/memory-sidecars.ts'

/**
 * What the apps of owners hold, in memory, for the model checker. Counts the rows of the escrow's
 * memory store.
 */
export function createMemoryExposureStore(
  { set }: MemoryDatabase,
  tables: EscrowTables,
  accounts: ReadonlyMap<string, StoredAccount>,
) {
  const payers = new Map<AppId, Payer>()
  const holds = new Map<string, OwnerHolds>()

  const countHeld: ExposureStore['countHeld'] = async (_db, owner) => {
    const cuts = new Map(
      [...payers.values()]
        .filter((payer) => payer.owner.userId === owner.userId)
        .map(({ appId, cut }) => [appId, cut]),
    )
    let held = 0n
    for (const lease of [...tables.leases.values()].flat()) {
      const cut = cuts.get(lease.appId)
      const rest = networkCost(lease.amount - lease.used, lease.retailRatio)
      if (cut !== undefined) held += ownerCost(rest, cut)
    }
    for (const { appId, state, bound, network } of [...tables.authorisations.values()].flat()) {
      const cut = cuts.get(appId)
      if (cut !== undefined && state === 'pending') held += ownerCost(network ?? bound, cut)
    }
    return held
  }

  const store: ExposureStore = {
    findPayers: async (_db, apps) => apps.flatMap((app) => payers.get(app) ?? []),
    lockHolds: async (_db, owners) =>
      owners.map((owner) => holds.get(owner.userId) ?? { owner, held: 0n, countedAt: null }),
    readHolds: async (_db, owners) => owners.flatMap((owner) => holds.get(owner.userId) ?? []),
    findExceeded: async (_db, { at, until, limit }) =>
      [...holds.values()]
        .filter(({ owner, held }) => held > moneyOf(owner, { at, until }))
        .flatMap(({ owner }) => (lentApps([owner], at).length > 0 ? [owner] : []))
        .slice(0, limit),
    countHeld,
    saveHolds: async (_db, changed) => {
      for (const of of changed) set(holds, of.owner.userId, of)
    },
  }

  /** Credit that ends by `until` does not count, and neither does the next period. */
  function moneyOf({ userId }: UserKey, { at, until }: { at: Date; until: Date }): bigint {
    const account = accounts.get(userId)
    if (!account) return 0n
    const lasting = account.credits.filter(({ expiresAt }) => !expiresAt || expiresAt > until)
    return spendableAt(lasting, at) + creditLine(account)
  }

  const liveLeases = (app: AppId, at: Date): Lease[] =>
    [...tables.leases.values()]
      .flat()
      .filter(({ appId, recalledAt, endsAt }) => appId === app && !recalledAt && endsAt > at)

  const lentApps = (owners: readonly UserKey[], at: Date): AppId[] =>
    [...payers.values()].flatMap(({ appId, owner }) =>
      owners.some(({ userId }) => userId === owner.userId) && liveLeases(appId, at).length > 0
        ? [appId]
        : [],
    )

  /** An app's id serves as its client id. */
  const ownerLeases: OwnerLeaseStore = {
    findLentApps: async (_db, owners, at) =>
      lentApps(owners, at).map((appId) => ({ appId, clientId: appId })),
    findLentUsers: async (_db, { appId, after, limit }, at) =>
      [...new Set(liveLeases(appId, at).map(({ userId }) => userId))]
        .filter((userId) => after === null || userId > after)
        .toSorted()
        .slice(0, limit)
        .map((userId) => ({ appId, userId })),
  }
  return { store, ownerLeases, payers }
}
