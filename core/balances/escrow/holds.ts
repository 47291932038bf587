import { DomainError } from '../../../proto/errors.ts'
import type { Users } from '../../identity/users/users.ts'
import type { Db, Pool } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { type AppId, type UserId, isUuid, userId } from '../../shared/ids.ts'
import { findHeldCalls, findHolders, listSidecars } from './stores/hold-store.ts'
import { findLeases } from './stores/lease-store.ts'

export interface HoldsDeps {
  readonly pool: Pool
  readonly now: Now
  readonly users: Pick<Users, 'get'>
  readonly findApp: (db: Db, clientId: string) => Promise<AppId | null>
  /** When a call without a ticket is freed. */
  readonly times: { readonly eventLagSeconds: number; readonly holdMaxSeconds: number }
}

export interface HoldsRequest {
  /** Empty for all apps. */
  readonly clientId: string
  /** Empty for all users of the app. */
  readonly externalUserId: string
  /** Number of users; 0 means 100. */
  readonly limit: number
  /** From the previous page, or empty. */
  readonly cursor: string
}

const pageUsers = 100
const pageMax = 1_000
const callsOfUser = 100
/** As in the alert TollgateEventsMissing. */
const stalledSeconds = 60

/** Lists held money, for operators and members of apps. */
export function createHolds({ pool, now, users, findApp, times }: HoldsDeps) {
  /**
   * Lists leases and pending authorisations by user, in user id order. Throws NOT_FOUND for an
   * unknown app or user, REQUEST_INVALID for a bad limit or cursor, or for a user without an app.
   */
  async function list(request: HoldsRequest) {
    return read(await filterOf(request))
  }

  /** Returns what is held of one user, and when it is freed; `holder` is null if nothing is held. Throws NOT_FOUND for an unknown user. */
  async function findOfUser(app: AppId, externalUserId: string) {
    const { id } = await users.get(app, externalUserId)
    const { users: holders } = await read({ appId: app, userId: id, after: null, limit: 1 })
    return { holder: holders[0] ?? null, ...times }
  }

  async function read(filter: Parameters<typeof findHolders>[1]) {
    const holders = await findHolders(pool, filter)
    const page = holders.slice(0, filter.limit)
    const [leases, calls] = await Promise.all([
      findLeases(pool, page),
      findHeldCalls(pool, page, callsOfUser),
    ])
    const leasesByUser = Map.groupBy(leases, ({ userId: user }) => user)
    const callsByUser = Map.groupBy(calls, ({ userId: user }) => user)
    return {
      users: page.map((holder) => ({
        ...holder,
        leases: leasesByUser.get(holder.userId) ?? [],
        calls: callsByUser.get(holder.userId) ?? [],
      })),
      nextCursor: holders.length > filter.limit ? page.at(-1)?.userId : undefined,
    }
  }

  async function filterOf({ clientId, externalUserId, limit, cursor }: HoldsRequest) {
    if (limit < 0 || limit > pageMax)
      throw new DomainError('REQUEST_INVALID', `limit must be from 1 to ${pageMax}`)
    if (cursor !== '' && !isUuid(cursor))
      throw new DomainError('REQUEST_INVALID', 'cursor is not one that this list returned')
    if (clientId === '' && externalUserId !== '')
      throw new DomainError('REQUEST_INVALID', 'externalUserId needs clientId')
    const app = clientId === '' ? null : await appOf(clientId)
    return {
      appId: app,
      userId: app === null || externalUserId === '' ? null : await userOf(app, externalUserId),
      after: cursor === '' ? null : userId(cursor),
      limit: limit === 0 ? pageUsers : limit,
    }
  }

  async function appOf(clientId: string): Promise<AppId> {
    const app = await findApp(pool, clientId)
    if (app === null) throw new DomainError('NOT_FOUND', 'no app has this client id')
    return app
  }

  const userOf = async (app: AppId, externalUserId: string): Promise<UserId> =>
    (await users.get(app, externalUserId)).id

  /** Lists sidecars, and how far the events of each follow its calls. */
  const sidecars = async () =>
    (await listSidecars(pool, now())).map((sidecar) => ({
      ...sidecar,
      isStalled: sidecar.seconds > stalledSeconds,
    }))

  return { list, findOfUser, sidecars }
}

export type Holds = ReturnType<typeof createHolds>
