import { DomainError } from '../../proto/errors.ts'
import { Scope } from '../../proto/scopes.ts'
import { auditAll } from '../shared/audit.ts'
import type { UserCaller } from '../rpc/callers.ts'
import type { Owners } from '../identity/users/owners.ts'
import { appId } from '../shared/ids.ts'
import { createBatchLoader } from '../lib/concurrency.ts'
import type { Shared } from '../shared/shared.ts'
import { builderKeyPrefix, parseKey } from './secret.ts'
import * as store from './store.ts'

export type KeyVerificationDeps = Shared & { readonly owners: Owners }

/** Finds keys by their secrets, and decides which may sign. */
export function createKeyVerification({ pool, owners, secrets, now }: KeyVerificationDeps) {
  const findActiveKey = createBatchLoader(async (candidates: readonly (readonly Buffer[])[]) => {
    const rows = await store.findActiveKeys(pool, candidates.flat(), now())
    const keys = new Map(rows.map(({ hash, key }) => [hash.toString('latin1'), key]))
    return (hashes) =>
      hashes.map((hash) => keys.get(hash.toString('latin1'))).find((key) => key !== undefined) ??
      null
  })

  const noteRefusedUse = createBatchLoader(async (candidates: readonly (readonly Buffer[])[]) => {
    const at = now()
    const keys = await store.noteRefusedUses(pool, candidates.flat(), at)
    await auditAll(
      pool,
      keys.map((key) => ({
        appId: appId(key.app_id),
        actor: key.id,
        action: 'api_key_refused',
        status: 'refused' as const,
        at,
        details: { keyId: key.id, userId: key.user_id },
      })),
    )
    return () => undefined
  })

  /**
   * Finds a key in any form that `parseKey` reads. Returns null for an invalid key. Callers must
   * check app and scopes before `ownerOf`, so that a refused request creates no user.
   */
  async function find(credential: string): Promise<store.StoredKey | null> {
    const parsed = parseKey(credential)
    const candidates = parsed ? secrets.candidates(parsed.secret) : []
    const stored = parsed && (await findActiveKey(candidates))
    if (parsed && !stored) await noteRefusedUse(candidates)
    if (!stored || (parsed.clientId !== null && parsed.clientId !== stored.clientId)) return null
    return parsed.user === null || parsed.user === userPartOf(stored) ? stored : null
  }

  /** Returns the user of a builder API key. Throws TOKEN_INVALID for any other credential. */
  async function builderUser(credential: string): Promise<UserCaller> {
    const key = credential.startsWith(builderKeyPrefix) ? await find(credential) : null
    const owner = key && (await ownerOf(key))
    if (!owner) throw new DomainError('TOKEN_INVALID', 'the API key is not valid')
    const { appId: app, clientId, userId, externalUserId, publicScopes: scopes } = owner
    return { kind: 'user', appId: app, clientId, userId, externalUserId, scopes }
  }

  /**
   * Adds the user that the key acts for. An app-level key acts for the app's owner (decision 38),
   * who becomes an end user on first use. Returns null if the app has no owner or has ended that
   * user.
   */
  async function ownerOf({ user, ...key }: store.StoredKey): Promise<store.KeyOwner | null> {
    const actsFor = user ?? (await owners.find(key))
    return actsFor && { ...actsFor, ...key }
  }

  /**
   * Returns a key that may sign, with the user that it acts for. Returns null for an invalid key,
   * or when the app no longer grants sign:job.
   */
  async function verifySigning(credential: string): Promise<store.KeyOwner | null> {
    const key = await find(credential)
    return key?.publicScopes.includes(Scope.signJob) ? ownerOf(key) : null
  }

  /** Whether the credential has the form of a key. Does not check its validity. */
  const isKey = (credential: string): boolean => parseKey(credential) !== null

  return { find, ownerOf, builderUser, verifySigning, isKey }
}

const userPartOf = ({ user }: store.StoredKey): string | null =>
  user && Buffer.from(user.externalUserId).toString('base64url')
