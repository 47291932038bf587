import { lockApp } from './change.ts'
import type { Shared } from '../../shared/shared.ts'
import type { CredentialIssuer } from '../types.ts'
import type { Clients } from './clients.ts'
import { type Actor, auditSuccess } from '../../shared/audit.ts'
import { type AppOperatorCaller, type MemberCaller, toActor } from '../../rpc/callers.ts'
import type { AppId } from '../../shared/ids.ts'
import type { Db } from '../../lib/sql.ts'
import type { Context } from '../../rpc/serve.ts'

/** Options for the older secrets of the M2M client. */
export interface SecretRotation {
  readonly revokeOld: boolean
  readonly keepKeys: boolean
}

export type SecretRotationDeps = Shared & {
  readonly clients: Pick<Clients, 'rotateSecret'>
  readonly credentialIssuers: readonly CredentialIssuer[]
}

/** Rotation of an app's M2M client secret. */
export function createSecretRotation({
  clients,
  idempotency,
  grants,
  credentialIssuers,
  now,
}: SecretRotationDeps) {
  /**
   * Creates a secret of the M2M client. Older secrets expire after the overlap or, with
   * `revokeOld`, now, together with all credentials obtained with them. `keepKeys` keeps API keys
   * valid.
   */
  async function rotateSecret(
    caller: MemberCaller | AppOperatorCaller,
    { idempotencyKey, ...request }: SecretRotation & { idempotencyKey: string | undefined },
    context: Context,
  ) {
    const { revokeOld, keepKeys } = request
    const name = caller.kind === 'operator' ? 'operator' : caller.accountId
    return idempotency.once(
      {
        scope: `${caller.clientId}:${name}:secrets`,
        key: idempotencyKey,
        body: keepKeys ? { revokeOld, keepKeys } : { revokeOld },
        holdsSecret: true,
      },
      (db) => {
        const actor = toActor(caller, context)
        return replaceSecret(db, { appId: caller.appId, actor }, request)
      },
    )
  }

  async function replaceSecret(
    db: Db,
    { appId, actor }: { appId: AppId; actor: Actor },
    { revokeOld, keepKeys }: SecretRotation,
  ) {
    await lockApp(db, appId)
    const { endedIds, ...secret } = await clients.rotateSecret(db, appId, { revokeOld })
    const revokedKeys = await endSecrets(db, { appId, ids: endedIds, keepKeys })
    const details = { m2mClientId: secret.m2mClientId, revokeOld, keepKeys, revokedKeys }
    await auditSuccess(db, { appId, actor, action: 'client_secret_rotated', details, at: now() })
    return { ...secret, revokedKeys }
  }

  /** Ends credentials that descend from the secrets. Returns the number of API keys that ended. */
  async function endSecrets(
    db: Db,
    { appId, ids, keepKeys }: { appId: AppId; ids: readonly string[]; keepKeys: boolean },
  ): Promise<number> {
    if (ids.length === 0) return 0
    const at = now()
    await grants.end(
      db,
      ids.map((id) => ({ id, cause: 'secret_revoked', at, forever: true })),
    )
    let count = 0
    for (const { endOfGrants } of credentialIssuers)
      count += (await endOfGrants?.(db, { appId, grants: ids, at, keep: keepKeys })) ?? 0
    return count
  }

  return rotateSecret
}
