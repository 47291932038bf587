import { randomUUID } from 'node:crypto'
import { type Db, type Pool, afterCommit } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import type { Invalidations } from '../invalidations.ts'
import * as store from './store.ts'
import { deleteInBatches } from '../upkeep.ts'

/** Why credentials ended, as the audit log names it. */
export type EndCause =
  | 'token_revoked'
  | 'refresh_token_revoked'
  | 'refresh_token_reused'
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

/** The end of a grant: of everything that descends from it. */
export interface GrantEnd {
  readonly id: string
  readonly cause: EndCause
  readonly at: Date
  /** Set for a grant that goes on: only what was issued before this instant ends. */
  readonly endsBefore?: Date
  /** True when keys can descend from it, which have no end of their own: then its end is never forgotten. */
  readonly forever?: boolean
}

export interface GrantsDeps {
  readonly pool: Pool
  readonly invalidations: Pick<Invalidations, 'publish'>
  readonly now: Now
}

/** No credential but a key lives longer than this, whatever the settings are: a login that is refreshed for a year. */
const longestLifeSeconds = 366 * 86_400
const descentMax = 8

/**
 * The ends of grants. A grant is a thing that can end and that credentials descend from: a login, a key, a secret, a
 * session, a JWT, an account, a client, a scope of a client (docs/identity.md, "What a credential descends from").
 */
export function createGrants({ pool, invalidations, now }: GrantsDeps) {
  /** The name of this process, by which it knows its own notifications. */
  const sender = randomUUID()

  /**
   * Ends grants in the transaction `db`, and publishes that after its commit: to this core's sidecars, through Redis, and
   * through the database to other cores, which also works when Redis is away. A grant that ended before stays ended; an
   * instant only moves on.
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

  /** Which of `ids` have ended for a credential that was issued at `issuedAt`; and the last instant of their ends. */
  const findEnds = (db: Db, ids: readonly string[], issuedAt: Date): Promise<store.Ends> =>
    store.findEnds(db, ids, issuedAt)

  /** Upkeep: forgets ends whose descendants are all dead. */
  async function deleteExpired(): Promise<void> {
    const at = now()
    await deleteInBatches((limit) => store.deleteExpiredEnds(pool, at, limit))
  }

  return { end, findEnds, deleteExpired, sender }
}

export type Grants = ReturnType<typeof createGrants>

/** A key among grants is marked, because calls with what descends from a key count against the key's limits. */
export const keyGrant = (keyId: string): string => `key:${keyId}`

/** The logins of an account up to the moment at which all of them end. The next ones have another number. */
export const loginsGrant = (accountId: string, generation: number): string =>
  `${accountId}:${generation}`

/** A scope of a client, from which everything that has this scope descends. */
export const scopeGrant = (clientId: string, scope: string): string => `${clientId}:${scope}`

/** What a credential descends from that is got with others: all that they descend from. Throws when that is too much. */
export function joinGrants(...lists: readonly (readonly string[])[]): readonly string[] {
  const grants = [...new Set(lists.flat())]
  // The longest way is key, its token, a device, its token, each with another secret of the backend.
  if (grants.length > descentMax) throw new Error('a credential descends from too many others')
  return grants
}

const keyPrefix = /^key:/

// Sidecars of earlier releases know a key by its bare id, under a kind of its own.
export const toInvalidation = ({ id, endsBefore }: Pick<GrantEnd, 'id' | 'endsBefore'>) => ({
  kind: keyPrefix.test(id) ? ('key' as const) : ('token' as const),
  id: id.replace(keyPrefix, ''),
  ...(endsBefore && { endsBefore: endsBefore.getTime() }),
})
