import { DomainError } from '../../proto/errors.ts'
import { audit } from '../platform/audit.ts'
import type { MemberCaller } from '../rpc/callers.ts'
import { type Cursor, page } from '../platform/cursor.ts'
import type { Idempotency } from '../platform/idempotency.ts'
import { isUuid, newKeyId } from '../platform/ids.ts'
import type { Invalidations } from '../platform/invalidations.ts'
import { newSecret, pepperedHash } from '../lib/crypto.ts'
import { type Db, type Pool, tx } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import type { Secrets } from '../platform/secrets.ts'
import type { Context } from '../rpc/serve.ts'
import * as store from './app-store.ts'
import { cleanLabel, keyPrefix, parseKey } from './service.ts'

const activeKeysMax = 100
const shownDigits = 6
const refLength = 32

export interface AppKeysDeps {
  readonly pool: Pool
  readonly secrets: Secrets
  readonly idempotency: Idempotency
  readonly invalidations: Invalidations
  /** Keys the opaque names of subscriptions, so that they stay the same while peppers come and go. */
  readonly sealingKey: Buffer
  readonly now: Now
}

export interface NewAppKey {
  readonly label: string | null
  readonly subscriptionId: string | null
  readonly idempotencyKey: string | undefined
}

/** App-level keys: they belong to no user, so they are exchanged for nothing; and what any key is worth. */
export function createAppKeys({
  pool,
  secrets,
  idempotency,
  invalidations,
  sealingKey,
  now,
}: AppKeysDeps) {
  /** NOT_FOUND for a subscription that is not the app's. */
  async function create(caller: MemberCaller, request: NewAppKey, context: Context) {
    const label = request.label === null ? null : cleanLabel(request.label)
    const { subscriptionId } = request
    return idempotency.once(
      {
        scope: `${caller.clientId}:${caller.accountId}:app-keys`,
        key: request.idempotencyKey,
        body: { label, subscriptionId },
      },
      async (db) => {
        await store.lockAppKeys(db, caller.appId)
        if (
          subscriptionId !== null &&
          !(
            isUuid(subscriptionId) &&
            (await store.hasSubscription(db, caller.appId, subscriptionId))
          )
        ) {
          throw new DomainError('NOT_FOUND', 'the app has no such subscription')
        }
        if ((await store.countActive(db, caller.appId)) >= activeKeysMax) {
          throw new DomainError(
            'CONFLICT',
            `an app may have ${activeKeysMax} active keys of its own; revoke one first`,
          )
        }
        const at = now()
        const secret = newSecret(keyPrefix)
        const key = { id: newKeyId(), prefix: secret.slice(0, keyPrefix.length + shownDigits) }
        await store.insertKey(db, {
          ...key,
          appId: caller.appId,
          ...secrets.store(secret),
          label,
          subscriptionId,
          at,
        })
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

  async function list(
    caller: MemberCaller,
    { after, limit }: { after: Cursor | null; limit: number },
  ) {
    return page(await store.listKeys(pool, { appId: caller.appId, after, limit }), limit)
  }

  /** Ends a key at once; twice keeps the first instant. NOT_FOUND for a key that is not the app's own. */
  async function revoke(caller: MemberCaller, id: string, context: Context): Promise<Date> {
    const revokedAt = await tx(pool, async (db) => {
      const instant = isUuid(id)
        ? await store.revokeKey(db, { appId: caller.appId, id, at: now() })
        : null
      if (!instant) throw new DomainError('NOT_FOUND', 'the app has no such key')
      await note(db, { caller, context, action: 'api_key_revoked' }, id)
      return instant
    })
    await invalidations.publish({ kind: 'key', id })
    return revokedAt
  }

  /** What a key of either kind is worth. TOKEN_INVALID for one that does not work, whatever the cause. */
  async function validate(presented: string) {
    const parsed = parseKey(presented)
    const found = parsed && (await store.findValid(pool, secrets.candidates(parsed.secret), now()))
    if (!parsed || !found || (parsed.clientId !== null && parsed.clientId !== found.client_id)) {
      throw new DomainError('TOKEN_INVALID', 'the API key is not valid')
    }
    return {
      clientId: found.client_id,
      userId: found.user_id ?? undefined,
      externalUserId: found.external_user_id ?? undefined,
      planId: found.plan_id ?? undefined,
      // Plans name no bundles, so every capability is open.
      capabilities: ['*'],
      subscriptionRef:
        found.subscription_id === null ? undefined : subscriptionRef(found.subscription_id),
    }
  }

  const subscriptionRef = (id: string): string =>
    `subref_${pepperedHash(`subscription:${id}`, sealingKey).toString('base64url').slice(0, refLength)}`

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
