import { DomainError } from '../../proto/errors.ts'
import { audit } from '../shared/audit.ts'
import { type MemberCaller, idempotencyScope } from '../rpc/callers.ts'
import { type Cursor, page } from '../shared/cursor.ts'
import { keyGrant } from '../shared/lineage/grants.ts'
import { type AppId, isUuid } from '../shared/ids.ts'
import { fingerprint } from '../lib/crypto.ts'
import { type Db, tx } from '../lib/sql.ts'
import type { Shared } from '../shared/shared.ts'
import type { Context } from '../rpc/serve.ts'
import type { Users } from '../identity/users/users.ts'
import { addKeys, emitRevoked } from './events.ts'
import type { Keys } from './keys.ts'
import { cleanLabel, newKey } from './secret.ts'
import * as store from './store.ts'

const activeKeysMax = 100
const refLength = 32

type Deps = Shared & {
  readonly keys: Pick<Keys, 'verifySigning'>
  readonly users: Pick<Users, 'resubscribe'>
}

export interface NewAppKey {
  readonly label: string | null
  readonly subscriptionId: string | null
  readonly idempotencyKey: string | undefined
}

/** Keys of apps, which act for the app's owner, and validation of app keys and user keys. */
export function createAppKeys({ pool, secrets, idempotency, grants, keys, users, now }: Deps) {
  /** Throws NOT_FOUND for another app's subscription, CONFLICT when the app has too many keys. */
  async function create(caller: MemberCaller, request: NewAppKey, context: Context) {
    const label = request.label === null ? null : cleanLabel(request.label)
    const { subscriptionId } = request
    return idempotency.once(
      {
        scope: idempotencyScope(caller, 'app-keys'),
        key: request.idempotencyKey,
        body: { label, subscriptionId },
        holdsSecret: true,
      },
      async (db) => {
        await store.lockAppKeys(db, caller.appId)
        await requireSubscription(db, caller.appId, subscriptionId)
        if ((await store.countAppKeys(db, caller.appId)) >= activeKeysMax) {
          throw new DomainError(
            'CONFLICT',
            `an app may have ${activeKeysMax} active keys of its own; revoke one first`,
          )
        }
        const at = now()
        const { secret, ...key } = newKey()
        const row = { ...key, ...secrets.store(secret), appId: caller.appId, userId: null }
        // The key has no lineage: it belongs to the app and outlives the session of the member who
        // made it.
        await addKeys(db, [{ ...row, label, subscriptionId, grants: [], at }])
        await note(db, { caller, context, action: 'api_key_created' }, key.id)
        return {
          keyId: key.id,
          apiKey: secret,
          createdAt: at.toISOString(),
          label: label ?? undefined,
        }
      },
    )
  }

  async function requireSubscription(db: Db, app: AppId, id: string | null): Promise<void> {
    if (id === null) return
    if (!isUuid(id) || !(await store.hasSubscription(db, app, id)))
      throw new DomainError('NOT_FOUND', 'the app has no such subscription')
  }

  async function list(
    caller: MemberCaller,
    { after, limit }: { after: Cursor | null; limit: number },
  ) {
    return page(await store.listAppKeys(pool, { appId: caller.appId, after, limit }), limit)
  }

  /**
   * Revokes a key of the app and returns the time of its first revocation. Throws NOT_FOUND for any
   * other key.
   */
  async function revoke(caller: MemberCaller, id: string, context: Context): Promise<Date> {
    return tx(pool, async (db) => {
      const at = now()
      const instant = isUuid(id)
        ? await store.revokeKey(db, { appId: caller.appId, userId: null, id, at })
        : null
      if (!instant) throw new DomainError('NOT_FOUND', 'the app has no such key')
      await grants.end(db, [{ id: keyGrant(id), cause: 'key_revoked', at }])
      if (instant.getTime() === at.getTime())
        await emitRevoked(db, { appId: caller.appId, userId: null, keyId: id, at })
      await note(db, { caller, context, action: 'api_key_revoked' }, id)
      return instant
    })
  }

  /**
   * Returns the user, plan and capabilities of an app key or user key. Throws TOKEN_INVALID for an
   * invalid key, without the cause. The gate uses the same `verifySigning`, so that both give the
   * same result.
   */
  async function validate(credential: string) {
    const owner = await keys.verifySigning(credential)
    if (!owner) throw new DomainError('TOKEN_INVALID', 'the API key is not valid')
    const subscription = await findSubscription(owner)
    return {
      clientId: owner.clientId,
      userId: owner.userId,
      externalUserId: owner.externalUserId,
      planId: subscription?.plan_id,
      // Plans name no bundles, so every capability is allowed.
      capabilities: ['*'],
      subscriptionRef: subscription ? subscriptionRef(subscription.id) : undefined,
    }
  }

  async function findSubscription(owner: store.KeyOwner) {
    const subscription = await store.findSubscription(pool, owner, now())
    if (subscription) return subscription
    await tx(pool, (db) => users.resubscribe(db, [owner]))
    return store.findSubscription(pool, owner, now())
  }

  async function note(
    db: Db,
    { caller, context, action }: { caller: MemberCaller; context: Context; action: string },
    keyId: string,
  ): Promise<void> {
    await audit(db, {
      appId: caller.appId,
      actor: caller.accountId,
      action,
      status: 'success',
      correlationId: context.correlationId,
      details: { keyId, level: 'app' },
      at: now(),
    })
  }

  return { create, list, revoke, validate }
}

export type AppKeys = ReturnType<typeof createAppKeys>

/**
 * An opaque, stable name of a subscription. It stays the same when keys are rotated. The random
 * bits of the id keep it secret.
 */
const subscriptionRef = (id: string): string =>
  `subref_${fingerprint(`subscription:${id}`).slice(0, refLength)}`
