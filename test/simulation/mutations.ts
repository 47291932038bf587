import type { UserKey } from '../../core/shared/ids.ts'
import { usdAttos } from '../../core/lib/money.ts'
import { addSeconds } from '../../core/lib/time.ts'
import { openCalls } from '../../core/balances/escrow/reports/runs.ts'
import type { AccountStore } from '../../core/balances/accounts/accounts.ts'
import { networkCost, ownerCost } from '../../core/balances/exposure/exposure.ts'
import type { ExposureStore } from '../../core/balances/exposure/exposure.ts'
import type { Payer } from '../../core/balances/exposure/store.ts'
import type { EscrowStore, StoredAuthorisation } from '../../core/balances/escrow/port.ts'
import { type DatabaseClock, clockBy } from '../../core/shared/database-clock.ts'
import type { EscrowCore } from '../../sidecar/core/escrow.ts'
import type { Clocks } from '../../sidecar/wallets/open-leases.ts'
import type { Escrow } from '../../sidecar/wallets/escrow.ts'
import type { EscrowTables } from '../core/balances/escrow/memory-sidecars.ts'

type SidecarClocks = Pick<Clocks, 'mono' | 'wall'>

interface ExposureTables {
  readonly tables: EscrowTables
  readonly payers: ReadonlyMap<string, Payer>
}

/**
 * A defect that is injected at a seam of the code under test, to check that the simulation finds
 * it.
 */
export interface Mutation {
  readonly store?: (store: EscrowStore, tables: EscrowTables) => Partial<EscrowStore>
  readonly accounts?: (store: AccountStore) => Partial<AccountStore>
  readonly exposures?: (store: ExposureStore, tables: ExposureTables) => Partial<ExposureStore>
  /** Replaces RPCs of core for one process of a sidecar. */
  readonly client?: (core: EscrowCore) => Partial<EscrowCore>
  readonly bounds?: (escrow: Escrow) => Partial<Escrow['bounds']>
  /** Returns the clock of a core on a machine with the wall clock `wall`. */
  readonly coreClock?: (wall: () => number) => DatabaseClock
  /** Returns the clocks by which a sidecar's leases end. */
  readonly clocks?: (clocks: SidecarClocks) => SidecarClocks
}

export const mutations: Readonly<Record<string, Mutation>> = {
  'releases by the wall clock': {
    store: (store, { authorisations }) => {
      const old = (row: StoredAuthorisation, at: Date, lagSeconds: number): boolean =>
        row.state === 'pending' && !row.isTicketed && addSeconds(row.authorisedAt, lagSeconds) <= at
      const rowsOf = (userId: string) => authorisations.get(userId) ?? []
      return {
        findDueAuthorisations: async (_db, users, { at, lagSeconds }) =>
          users.flatMap(({ userId }) => rowsOf(userId).filter((row) => old(row, at, lagSeconds))),
        findDueUsers: async (db, due) => {
          const users = await store.findDueUsers(db, due)
          const late = [...authorisations.values()]
            .flat()
            .filter((row) => old(row, due.at, due.lagSeconds))
          return distinct([...users, ...late])
        },
      }
    },
  },
  'releases an orphan at once': {
    store: (store, { leases }) => ({
      findDueUsers: async (db, due) => {
        const ended = [...leases.values()].flat().filter(({ endsAt }) => endsAt <= due.at)
        return distinct([...(await store.findDueUsers(db, due)), ...ended])
      },
      findReleasable: async (_db, orphans) => new Set(orphans.map(({ id }) => id)),
      saveLeases: (db, changes) => {
        for (const lease of [...changes.opened, ...changes.changed])
          lease.endsAt = addSeconds(lease.endsAt, -10)
        return store.saveLeases(db, changes)
      },
    }),
  },
  'settles by session and number alone': {
    store: (store, { authorisations }) => ({
      matchTickets: (db, tickets, step) => {
        const signedMicros = tickets.session.map((position, index) => {
          const session = tickets.sessions[position]
          const number = BigInt(tickets.sequence[index] ?? -1)
          const same = (authorisations.get(session?.userId ?? '') ?? [])
            .filter((row) => row.sessionId === session?.sessionId)
            .flatMap(openCalls)
            .find(({ sequence }) => sequence === number)
          return same ? Number(same.signedMicros) : (tickets.signedMicros[index] ?? 0)
        })
        return store.matchTickets(db, { ...tickets, signedMicros }, step)
      },
    }),
  },
  'moves the stream clock by reports': {
    store: (store, { clocks }) => ({
      saveSidecar: async (db, process, state) => {
        await store.saveSidecar(db, process, state)
        if (state.lastAuthorisedAt) clocks.set(process.id, state.lastAuthorisedAt)
      },
    }),
  },
  'ends a run by the time of its first call': {
    store: (store, { authorisations, clocks }) => ({
      findDueAuthorisations: async (db, users, due) => {
        const isDue = ({ run, state, sidecarId, authorisedAt }: StoredAuthorisation): boolean => {
          const clock = clocks.get(sidecarId)
          return (
            run !== undefined &&
            state === 'pending' &&
            clock !== undefined &&
            addSeconds(authorisedAt, due.lagSeconds) <= clock
          )
        }
        const found = await store.findDueAuthorisations(db, users, due)
        const early = users.flatMap(({ userId }) => authorisations.get(userId) ?? []).filter(isDue)
        return [...new Set([...found, ...early])]
      },
      findDueUsers: async (db, due) =>
        distinct([...(await store.findDueUsers(db, due)), ...[...authorisations.values()].flat()]),
    }),
  },
  'forgets what is pending for the owner': {
    exposures: (_, { tables, payers }) => ({
      countHeld: async () =>
        [...tables.leases.values()].flat().reduce((sum, lease) => {
          const rest = networkCost(lease.amount - lease.used, lease.retailRatio)
          return sum + ownerCost(rest, payers.get(lease.appId)?.cut ?? 0n)
        }, 0n),
    }),
  },
  'counts what one app of the owner holds only': {
    exposures: (_, { tables, payers }) => ({
      countHeld: async () => {
        const [first] = payers.values()
        const isFirst = (row: { appId: string }): boolean => row.appId === first?.appId
        const cost = (network: bigint): bigint => ownerCost(network, first?.cut ?? 0n)
        const leases = [...tables.leases.values()].flat().filter(isFirst)
        const rows = [...tables.authorisations.values()].flat().filter(isFirst)
        return (
          leases.reduce(
            (sum, lease) => sum + cost(networkCost(lease.amount - lease.used, lease.retailRatio)),
            0n,
          ) +
          rows.reduce(
            (sum, { state, network, bound }) =>
              state === 'pending' ? sum + cost(network ?? bound) : sum,
            0n,
          )
        )
      },
    }),
  },
  'ignores a lower ceiling of the owner': {
    accounts: (store) => {
      const highest = new Map<string, bigint>()
      return {
        // Core reads only accounts of owners without a lock.
        readAccounts: async (db, users) =>
          (await store.readAccounts(db, users)).map((account) => {
            const ceiling = highest.get(account.userId) ?? 0n
            if (account.ceiling > ceiling) highest.set(account.userId, account.ceiling)
            return account.ceiling < ceiling ? { ...account, ceiling: usdAttos(ceiling) } : account
          }),
      }
    },
  },
  'counts settled calls of the owner, too': {
    exposures: (store) => {
      let most = 0n
      return {
        countHeld: async (db, owner, at) => {
          const held = await store.countHeld(db, owner, at)
          if (held > most) most = held
          return most
        },
      }
    },
  },
  'adds a renewal to what was lent': {
    client: ({ lend }) => {
      const sums = new Map<string, bigint>()
      return {
        lend: async (request) => {
          const response = await lend(request)
          for (const { lease } of response.answers) {
            if (!lease) continue
            const sum = (sums.get(lease.id) ?? 0n) + BigInt(lease.amountUsdAttos)
            sums.set(lease.id, sum)
            lease.amountUsdAttos = String(sum)
          }
          return response
        },
      }
    },
  },
  'applies a report twice': {
    client: ({ report }) => {
      let sent = 0n
      // Uses separate numbers, so that core takes the second report as the next one.
      return {
        report: async (request) => {
          if (request.number === 0n) return report(request)
          const first = await report({ ...request, number: sent + 1n })
          const second = await report({ ...request, number: sent + 2n })
          sent = second.through
          return second.through === first.through ? second : { ...second, through: request.number }
        },
      }
    },
  },
  'forgets calls when it returns their lease': {
    client: ({ report }) => ({
      report: (request) =>
        report({
          ...request,
          users: request.users.map((user) =>
            user.returned.length === 0
              ? user
              : {
                  ...user,
                  sessions: [],
                  returned: user.returned.map((lease) => ({ ...lease, usedUsdAttos: '0' })),
                },
          ),
        }),
    }),
  },
  'does not round a live call up': {
    bounds: ({ bounds, rate }) => ({
      boundOf: (owner, session) => {
        const bound = bounds.boundOf(owner, session)
        if (typeof bound !== 'number' || session.type !== 'live' || session.sequence === 0)
          return bound
        const second = (Number(session.price) / Number(session.units)) * (rate.nanosPerWei ?? 0)
        return Math.max(1, Math.floor(bound - second))
      },
    }),
  },
  'does not count a replay': {
    bounds: ({ bounds }) => {
      const calls = new Set<string>()
      return {
        boundOf: (owner, session) => {
          const key = `${session.id} ${session.sequence}`
          const bound = calls.has(key) ? 1 : bounds.boundOf(owner, session)
          if (typeof bound === 'number') calls.add(key)
          return bound
        },
      }
    },
  },
  'takes the time from the clocks of cores': {
    coreClock: (wall) => clockBy(() => new Date(wall())),
  },
  'spends after the end of a lease': {
    clocks: ({ mono, wall }) => withWall(() => mono() / 20, wall()),
  },
  'spends the leases of a machine that was suspended': {
    clocks: ({ mono, wall }) => withWall(mono, wall()),
  },
}

/** A wall clock that stops with the monotonic clock. */
function withWall(mono: () => number, wall: number): SidecarClocks {
  const ahead = wall - mono()
  return { mono, wall: () => mono() + ahead }
}

const distinct = (users: readonly UserKey[]): UserKey[] => [
  ...new Map(users.map((user) => [user.userId, user])).values(),
]
