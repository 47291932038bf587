import { LRUCache } from 'lru-cache'
import { type AppId, type UserId, authId, isClientId } from '../../platform/ids.ts'

/** Finds the users that tickets belong to. */

/** The app and the user that a ticket is charged to. */
export interface Subject {
  readonly appId: AppId
  readonly userId: UserId
}

/** How an event names its user. */
export interface NamedUser {
  readonly clientId: string
  readonly externalUserId: string
}

/** Users by auth id. Users of known apps are provisioned when new; those of an unknown app are absent. */
export type ResolveSubjects = (users: readonly NamedUser[]) => Promise<ReadonlyMap<string, Subject>>

/** As many as rating keeps (`maxTimelines`): more than the largest batch can name, so that users who come in turn are found. */
const maxSubjects = 100_000
// A subject never becomes another user. The time only evicts users who have stopped signing.
const ttlMs = 10 * 60_000

/** Caches known subjects. An unknown one is looked up each time, because its app may be created at any moment. */
export function cacheSubjects(resolve: ResolveSubjects): ResolveSubjects {
  const cache = new LRUCache<string, Subject>({ max: maxSubjects, ttl: ttlMs })

  return async (users) => {
    const subjects = new Map<string, Subject>()
    const misses: NamedUser[] = []
    for (const user of users) {
      const key = authId(user.clientId, user.externalUserId)
      const cached = cache.get(key)
      if (cached) subjects.set(key, cached)
      else misses.push(user)
    }
    if (misses.length === 0) return subjects
    for (const [key, subject] of await resolve(misses)) {
      cache.set(key, subject)
      subjects.set(key, subject)
    }
    return subjects
  }
}

interface Payer extends NamedUser {
  subject: Subject | null
}

/** Sets the subject of each payer, by auth id; null for a client id that names no app. */
export async function resolvePayers(
  payers: ReadonlyMap<string, Payer>,
  resolve: ResolveSubjects,
): Promise<void> {
  // Text that does not have the form of a client id names no app: it needs no look-up.
  const users = [...payers.values()].filter(({ clientId }) => isClientId(clientId))
  if (users.length === 0) return
  const subjects = await resolve(
    users.map(({ clientId, externalUserId }) => ({ clientId, externalUserId })),
  )
  for (const [key, payer] of payers) payer.subject = subjects.get(key) ?? null
}
