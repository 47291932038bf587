import { DomainError } from '../../../proto/errors.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { type Db, isUniqueViolation, tx } from '../../lib/sql.ts'
import { type Actor, auditSuccess } from '../../shared/audit.ts'
import type { EndCause } from '../../shared/lineage/grants.ts'
import { type AppId, isUuid } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { lockApp } from '../apps/store.ts'
import { overlap } from './rules.ts'
import * as store from './store.ts'

const issuersMax = 10

/** The app, and the actor who changes its trust. */
export interface IssuerEditor {
  readonly appId: AppId
  readonly actor: Actor
}

/**
 * Id of a trust at its current rules. Credentials and cache entries based on the trust's tokens
 * descend from it, and end when the trust ends or changes.
 */
export const trustGrant = ({
  id,
  generation,
}: Pick<store.TrustedIssuer, 'id' | 'generation'>): string => `issuer:${id}:${generation}`

/**
 * Issuers trusted by apps. No token can match more than one trust. Each change has an entry in the
 * audit log.
 */
export function createIssuers({ pool, grants, now }: Shared) {
  const list = (app: AppId): Promise<store.TrustedIssuer[]> => store.listIssuers(pool, app)

  /**
   * Throws CONFLICT when a token could match another trust, too, and when the app has too many
   * issuers.
   */
  async function add(editor: IssuerEditor, rules: store.TrustRules): Promise<store.TrustedIssuer> {
    return tx(pool, async (db) => {
      await lock(db, editor.appId, rules)
      const issuers = await store.listIssuers(db, editor.appId)
      if (issuers.length >= issuersMax)
        throw new DomainError(
          'CONFLICT',
          `an app may trust ${issuersMax} issuers; remove one first`,
        )
      const at = now()
      const id = uuidV7(at.getTime())
      const times = { createdAt: at, updatedAt: at }
      const issuer = { ...rules, ...times, appId: editor.appId, id, generation: 1 }
      await put(db, issuer)
      await note(db, editor, { action: 'trusted_issuer_added', issuer })
      return issuer
    })
  }

  /**
   * Replaces all rules and ends everything admitted under the old rules. Throws NOT_FOUND for an
   * unknown trust, and CONFLICT as `add` does.
   */
  async function replace(
    editor: IssuerEditor,
    id: string,
    rules: store.TrustRules,
  ): Promise<store.TrustedIssuer> {
    return tx(pool, async (db) => {
      await lock(db, editor.appId, rules)
      const before = await get(db, editor.appId, id)
      const generation = before.generation + 1
      const issuer = { ...before, ...rules, generation, updatedAt: now() }
      await put(db, issuer)
      await end(db, before, 'issuer_changed')
      await note(db, editor, { action: 'trusted_issuer_changed', issuer })
      return issuer
    })
  }

  /** Ends the trust and everything admitted by it. Throws NOT_FOUND for an unknown trust. */
  async function remove(editor: IssuerEditor, id: string): Promise<Date> {
    return tx(pool, async (db) => {
      await lockApp(db, editor.appId)
      const issuer = await get(db, editor.appId, id)
      await store.deleteIssuer(db, editor.appId, id)
      const at = await end(db, issuer, 'issuer_removed')
      await note(db, editor, { action: 'trusted_issuer_removed', issuer })
      return at
    })
  }

  async function lock(db: Db, app: AppId, { issuer }: store.TrustRules): Promise<void> {
    if (!(await lockApp(db, app))) throw new DomainError('NOT_FOUND', 'no such app')
    await store.lockIssuer(db, issuer)
  }

  async function get(db: Db, app: AppId, id: string): Promise<store.TrustedIssuer> {
    const issuer = isUuid(id) ? await store.findIssuer(db, app, id) : null
    if (!issuer) throw new DomainError('NOT_FOUND', 'the app trusts no such issuer')
    return issuer
  }

  async function put(db: Db, issuer: store.TrustedIssuer): Promise<void> {
    const others = await store.listByIssuer(db, issuer.issuer, null)
    const rival = others.find((other) => other.id !== issuer.id && overlap(other, issuer))
    if (rival) throw ambiguous(rival.appId === issuer.appId)
    await store.putIssuer(db, issuer)
    await store.replaceMatches(db, issuer).catch((error: unknown) => {
      throw isUniqueViolation(error) ? ambiguous(false) : error
    })
  }

  async function end(db: Db, issuer: store.TrustedIssuer, cause: EndCause): Promise<Date> {
    const at = now()
    await grants.end(db, [{ id: trustGrant(issuer), cause, at }])
    return at
  }

  async function note(
    db: Db,
    { appId, actor }: IssuerEditor,
    { action, issuer }: { action: string; issuer: store.TrustedIssuer },
  ): Promise<void> {
    await auditSuccess(db, {
      appId,
      actor,
      action,
      at: now(),
      details: {
        trustedIssuerId: issuer.id,
        issuer: issuer.issuer,
        audiences: issuer.audiences.join(' '),
        clientClaim: issuer.clientClaim,
        clientValues: issuer.clientValues.join(' '),
        userClaim: issuer.userClaim,
        userPrefix: issuer.userPrefix,
        jwksUri: issuer.jwksUri,
      },
    })
  }

  return { list, add, replace, remove }
}

export type Issuers = ReturnType<typeof createIssuers>

const ambiguous = (isOwn: boolean): DomainError =>
  new DomainError(
    'CONFLICT',
    isOwn
      ? 'a token of this issuer could also match an issuer that this app already trusts; use other audiences, or the same clientClaim with other clientValues'
      : 'another app trusts this issuer, and a token could match both; use the same clientClaim as that app with other clientValues, because audiences cannot separate two apps',
  )
