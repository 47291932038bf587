import { LRUCache } from 'lru-cache'
import { authId } from '../../platform/ids.ts'
import type { ResolveSubjects, Subject } from '../types.ts'

const maxSubjects = 20_000
// A subject never becomes another user; the time only lets those go that are not seen any more.
const ttlMs = 10 * 60_000

/** Remembers whom subjects belong to. An unknown one is asked for each time: its app may be made at any moment. */
export function rememberSubjects(resolve: ResolveSubjects): ResolveSubjects {
  const known = new LRUCache<string, Subject>({ max: maxSubjects, ttl: ttlMs })

  return async (subjects) => {
    const found = new Map<string, Subject>()
    const asked: { clientId: string; externalUserId: string }[] = []
    for (const subject of subjects) {
      const key = authId(subject.clientId, subject.externalUserId)
      const remembered = known.get(key)
      if (remembered) found.set(key, remembered)
      else asked.push(subject)
    }
    if (asked.length === 0) return found
    for (const [key, subject] of await resolve(asked)) {
      known.set(key, subject)
      found.set(key, subject)
    }
    return found
  }
}
