import { DomainError } from '../../../proto/errors.ts'
import { type Actor, auditSuccess } from '../../shared/audit.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import type { AppId } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { createSignerSecret, overlapMax } from './service.ts'
import * as store from './store.ts'

/** The caller that manages the secrets of an app. */
export interface SecretOwner {
  readonly appId: AppId
  readonly clientId: string
  readonly actor: Actor
  /** Scope of the caller's idempotency keys. */
  readonly idempotencyScope: string
}

export interface OwnSecretRequest {
  readonly purpose: store.Purpose
  /** Seconds until older secrets of the purpose end; null keeps them. */
  readonly overlapSeconds: number | null
  readonly idempotencyKey: string | undefined
}

const secretsMax = 5
const idForm = /^[0-9a-f]{12}$/

/**
 * Secrets of the app's own signer, for the app's owners and for operators. That signer is bound to
 * this app only and is created with the first secret (docs/decisions/53.md). Every change reaches
 * sidecars immediately.
 */
export function createOwnSecrets({ pool, idempotency, invalidations, now }: Shared) {
  const list = (app: AppId): Promise<store.OwnSecretRow[]> => store.listOwnSecrets(pool, app, now())

  /**
   * Creates a secret. Only this response contains its text. Throws CONFLICT when the app has too
   * many secrets of the purpose.
   */
  async function create(owner: SecretOwner, request: OwnSecretRequest) {
    const { purpose, overlapSeconds, idempotencyKey } = request
    checkOverlap(overlapSeconds)
    const answer = await idempotency.once(
      {
        scope: owner.idempotencyScope,
        key: idempotencyKey,
        body: { purpose, overlapSeconds },
        holdsSecret: true,
      },
      async (db) => {
        const at = now()
        const endsAt = overlapSeconds === null ? null : addSeconds(at, overlapSeconds)
        const secret = await add(db, owner, { purpose, at, endsAt })
        await note(db, { owner, action: 'signer_secret_created' }, secret)
        return {
          details: { id: secret.id, purpose, createdAt: at.toISOString(), expiresAt: undefined },
          secret: secret.text,
          oldSecretsExpireAt: endsAt?.toISOString(),
        }
      },
    )
    await invalidations.publish({ kind: 'signer', id: owner.clientId })
    return answer
  }

  async function add(
    db: Db,
    { appId, clientId }: SecretOwner,
    { purpose, at, endsAt }: { purpose: store.Purpose; at: Date; endsAt: Date | null },
  ) {
    const own = { id: uuidV7(at.getTime()), at }
    const signer = await store.lockOwnSigner(db, { appId, clientId }, own)
    if (!signer) throw new DomainError('NOT_FOUND', 'no such app for this credential')
    await store.endSignerSecrets(db, { signerId: signer.id, purpose }, { at, endsAt })
    const valid = await store.listOwnSecrets(db, appId, at)
    if (valid.filter((one) => one.purpose === purpose).length >= secretsMax)
      throw new DomainError(
        'CONFLICT',
        `an app may have ${secretsMax} secrets for ${purpose}; revoke an old one`,
      )
    const secret = createSignerSecret(purpose)
    await store.insertSecret(db, { signerId: signer.id, secret, at })
    return secret
  }

  /** Ends a secret immediately. Throws NOT_FOUND unless it belongs to the app. */
  async function revoke(owner: SecretOwner, id: string): Promise<void> {
    await tx(pool, async (db) => {
      const purpose = idForm.test(id) ? await store.deleteOwnSecret(db, owner.appId, id) : null
      if (!purpose) throw new DomainError('NOT_FOUND', 'the app has no such signer secret')
      await note(db, { owner, action: 'signer_secret_revoked' }, { id, purpose })
    })
    await invalidations.publish({ kind: 'signer', id: owner.clientId })
  }

  async function note(
    db: Db,
    { owner: { appId, actor }, action }: { owner: SecretOwner; action: string },
    { id, purpose }: { readonly id: string; readonly purpose: store.Purpose },
  ): Promise<void> {
    await auditSuccess(db, {
      appId,
      actor,
      action,
      details: { secretId: id, purpose },
      at: now(),
    })
  }

  return { list, create, revoke }
}

export type OwnSecrets = ReturnType<typeof createOwnSecrets>

function checkOverlap(seconds: number | null): void {
  if (seconds !== null && (seconds < 0 || seconds > overlapMax))
    throw new DomainError('REQUEST_INVALID', `overlapSeconds must be from 0 to ${overlapMax}`)
}
