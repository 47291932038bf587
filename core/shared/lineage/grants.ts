import { randomUUID } from 'node:crypto'
import { type Db, type Pool, afterCommit } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import type { Invalidations } from '../invalidations.ts'
import * as store from './store.ts'
import { deleteInBatches } from '../upkeep.ts'

/** Reason why credentials ended, as written to the audit log. */
export type EndCause =
  | 'token_revoked'
  | 'refresh_token_revoked'
  | 'refresh_token_reused'
  | 'login_revoked'
  | 'code_reused'
  | 'password_reset'
  | 'logged_out_everywhere'
  | 'secret_revoked'
  | 'key_revoked'
  | 'session_revoked'
  | 'scope_taken'
  | 'user_deactivated'
  | 'member_removed'
  | 'app_deleted'
  | 'issuer_changed'
  | 'issuer_removed'
  | 'client_deleted'

/** The end of a grant, which ends everything that descends from it. */
export interface GrantEnd {
  readonly id: string
  readonly cause: EndCause
  readonly at: Date
  /** Set for a grant that continues: only credentials issued before this instant end. */
  readonly endsBefore?: Date
  /** True if keys can descend from the grant. They do not expire, so the end is kept forever. */
  readonly forever?: boolean
}

export interface GrantsDeps {
  readonly pool: Pool
  readonly invalidations: Pick<Invalidations, 'publish'>
  readonly now: Now
}

/**
 * Maximum lifetime of a credential other than a key, for any settings: a login that is refreshed
 * for a year.
 */
const longestLifeSeconds = 366 * 86_400
const descentMax = 8

/**
 * The ends of grants. A grant is something that can end and from which credentials descend: a
 * login, a key, a secret, a session, a JWT, an account, a client, a scope of a client
 * (docs/revocation.md, "What a credential descends from").
 */
export function createGrants({ pool, invalidations, now }: GrantsDeps) {
  /** Id of this process, used to ignore its own notifications. */
  const sender = randomUUID()

  /**
   * Ends grants in the transaction `db`. After the commit, publishes the ends to this core's
   * sidecars, through Redis, and through the database to other cores, which also works while Redis
   * is unavailable. An ended grant stays ended; `endsBefore` only moves forward.
   */
  async function end(db: Db, ends: readonly GrantEnd[]): Promise<void> {
    if (ends.length === 0) return
    await store.insertEnds(
      db,
      ends.map(({ at, forever, ...grant }) => ({
        ...grant,
        at,
        expiresAt: forever === true ? null : addSeconds(at, longestLifeSeconds),
      })),
    )
    const messages = ends.map((grant) => JSON.stringify({ from: sender, ...toInvalidation(grant) }))
    await store.notifyEnds(db, messages)
    await afterCommit(db, async () => {
      await Promise.all(ends.map((grant) => invalidations.publish(toInvalidation(grant))))
    })
  }

  /**
   * Which of `ids` have ended for a credential issued at `issuedAt`, and the last instant of their
   * ends.
   */
  const findEnds = (db: Db, ids: readonly string[], issuedAt: Date): Promise<store.Ends> =>
    store.findEnds(db, ids, issuedAt)

  /** Upkeep: deletes expired ends. */
  async function deleteExpired(): Promise<void> {
    const at = now()
    await deleteInBatches((limit) => store.deleteExpiredEnds(pool, at, limit))
  }

  return { end, findEnds, deleteExpired, sender }
}

export type Grants = ReturnType<typeof createGrants>

/**
 * The grant of a key. The prefix marks keys, because calls with a key's descendants count against
 * the key's limits.
 */
export const keyGrant = (keyId: string): string => `key:${keyId}`

/**
 * The grant of an account's logins up to the moment when they all end. Later logins have another
 * number.
 */
export const loginsGrant = (accountId: string, generation: number): string =>
  `${accountId}:${generation}`

/** The grant of a client's scope, from which everything with this scope descends. */
export const scopeGrant = (clientId: string, scope: string): string => `${clientId}:${scope}`

/** Merges the grants from which several credentials descend. Throws if there are too many. */
export function joinGrants(...lists: readonly (readonly string[])[]): readonly string[] {
  const grants = [...new Set(lists.flat())]
  // The longest chain is key, its token, a device, its token, each with another secret of the
  // backend.
  if (grants.length > descentMax) throw new Error('a credential descends from too many others')
  return grants
}

const keyPrefix = /^key:/

// Sidecars of earlier releases expect the bare id of a key, with the kind `key`.
export const toInvalidation = ({ id, endsBefore }: Pick<GrantEnd, 'id' | 'endsBefore'>) => ({
  kind: keyPrefix.test(id) ? ('key' as const) : ('token' as const),
  id: id.replace(keyPrefix, ''),
  ...(endsBefore && { endsBefore: endsBefore.getTime() }),
})
