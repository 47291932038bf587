import { LRUCache } from 'lru-cache'
import { type AppId, type UserId, authId, isClientId } from '../../shared/ids.ts'

/** Finds the users of tickets. */

/** The app and the user to charge for a ticket. */
export interface Subject {
  readonly appId: AppId
  readonly userId: UserId
}

/** A user as named by an event. */
export interface NamedUser {
  readonly clientId: string
  readonly externalUserId: string
}

/** Returns users by auth id. Provisions new users of known apps; omits users of unknown apps. */
export type ResolveSubjects = (users: readonly NamedUser[]) => Promise<ReadonlyMap<string, Subject>>

/**
 * As many as rating caches (`maxTimelines`): more users than the largest batch can name, so that
 * users who sign in turn stay cached.
 */
const maxSubjects = 100_000
// A subject never becomes another user. The TTL only evicts users who stopped signing.
const ttlMs = 10 * 60_000

/**
 * Caches known subjects. Looks up an unknown one each time, because its app may be created at any
 * moment.
 */
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

/** Sets the subject of each payer, by auth id; null for an unknown client id. */
export async function resolvePayers(
  payers: ReadonlyMap<string, Payer>,
  resolve: ResolveSubjects,
): Promise<void> {
  // Text that is not a valid client id needs no look-up.
  const users = [...payers.values()].filter(({ clientId }) => isClientId(clientId))
  if (users.length === 0) return
  const subjects = await resolve(
    users.map(({ clientId, externalUserId }) => ({ clientId, externalUserId })),
  )
  for (const [key, payer] of payers) payer.subject = subjects.get(key) ?? null
}
