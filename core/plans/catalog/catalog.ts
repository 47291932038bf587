import { createHash } from 'node:crypto'
import { DomainError } from '../../../proto/errors.ts'
import { auditSuccess } from '../../shared/audit.ts'
import type { MemberCaller } from '../../rpc/callers.ts'
import { type AppId, isUuid } from '../../shared/ids.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { Context } from '../../rpc/serve.ts'
import { bounded, contains, readNames } from './discovery.ts'
import * as store from './store.ts'
import type { Capability, Manifest, Profile } from './profile.ts'

const profilesMax = 100

/** New values of a profile; absent members stay unchanged. */
export type ProfileChange = Partial<Pick<Profile, 'name' | 'policy' | 'capabilities'>>

/**
 * Manages an app's excluded capabilities and named discovery policies. Both exist for older
 * integrators.
 */
export function createCatalog({ pool, now }: { pool: Pool; now: Now }) {
  const manifest = async (app: AppId): Promise<Manifest> =>
    toManifest((await store.findExcluded(pool, app)) ?? [])

  /** Replaces the exclusions. `excluded` must be sorted as `parseCapabilities` returns it. */
  async function putManifest(
    caller: MemberCaller,
    excluded: readonly Capability[],
    context: Context,
  ): Promise<Manifest> {
    const next = toManifest(excluded)
    await tx(pool, async (db) => {
      await store.lockCatalog(db, caller.appId)
      await requireUnpriced(db, caller.appId, excluded)
      await store.putExcluded(db, caller.appId, { excluded, at: now() })
      await note(
        db,
        { caller, context, action: 'manifest_updated' },
        { manifestVersion: next.version },
      )
    })
    return next
  }

  const listProfiles = (app: AppId): Promise<Profile[]> => store.listProfiles(pool, app)

  async function getProfile(app: AppId, id: string): Promise<Profile> {
    const profile = isUuid(id) ? await store.findProfile(pool, app, id) : null
    if (!profile) throw noSuchProfile()
    return profile
  }

  async function createProfile(
    caller: MemberCaller,
    values: Required<ProfileChange>,
    context: Context,
  ): Promise<Profile> {
    return tx(pool, async (db) => {
      await store.lockCatalog(db, caller.appId)
      const { length } = await store.listProfiles(db, caller.appId)
      if (length >= profilesMax)
        throw new DomainError('CONFLICT', `an app may have ${profilesMax} discovery profiles`)
      const at = now()
      const profile = await store.insertProfile(db, caller.appId, {
        ...values,
        id: uuidV7(at.getTime()),
        createdAt: at,
        updatedAt: at,
      })
      if (!profile) throw nameConflict(values.name)
      await note(
        db,
        { caller, context, action: 'discovery_profile_created' },
        { profileId: profile.id, name: profile.name },
      )
      return profile
    })
  }

  async function updateProfile(
    caller: MemberCaller,
    { id, ...change }: ProfileChange & { id: string },
    context: Context,
  ): Promise<Profile> {
    return tx(pool, async (db) => {
      await store.lockCatalog(db, caller.appId)
      const before = isUuid(id) ? await store.lockProfile(db, caller.appId, id) : null
      if (!before) throw noSuchProfile()
      const next = { ...before, ...change, updatedAt: now() }
      if (await store.isNameInUse(db, caller.appId, { name: next.name, but: id }))
        throw nameConflict(next.name)
      await note(
        db,
        { caller, context, action: 'discovery_profile_updated' },
        { profileId: id, name: next.name },
      )
      return store.updateProfile(db, caller.appId, next)
    })
  }

  async function deleteProfile(caller: MemberCaller, id: string, context: Context): Promise<void> {
    await tx(pool, async (db) => {
      if (!isUuid(id) || !(await store.deleteProfile(db, caller.appId, id))) throw noSuchProfile()
      await note(db, { caller, context, action: 'discovery_profile_deleted' }, { profileId: id })
    })
  }

  async function note(
    db: Db,
    { caller, context, action }: { caller: MemberCaller; context: Context; action: string },
    details: Readonly<Record<string, string>>,
  ): Promise<void> {
    await auditSuccess(db, {
      appId: caller.appId,
      actor: { name: caller.accountId, context },
      action,
      details,
      at: now(),
    })
  }

  return {
    manifest,
    putManifest,
    listProfiles,
    getProfile,
    createProfile,
    updateProfile,
    deleteProfile,
  }
}

export type Catalog = ReturnType<typeof createCatalog>

/** Throws CONFLICT, with the `conflicts`, when a plan names a capability to be excluded. */
async function requireUnpriced(db: Db, app: AppId, excluded: readonly Capability[]): Promise<void> {
  const conflicts = (await store.findPriced(db, app)).filter((priced) =>
    excluded.some((each) => contains(each, priced)),
  )
  if (conflicts.length === 0) return
  const plans = [...new Set(conflicts.map(({ plan }) => plan))]
  throw new DomainError(
    'CONFLICT',
    `plans name ${readNames(conflicts)}: change them first (${plans.slice(0, 5).join(', ')})`,
    { members: { conflicts: bounded(conflicts) } },
  )
}

const noSuchProfile = (): DomainError =>
  new DomainError('NOT_FOUND', 'the app has no such discovery profile')
const nameConflict = (name: string): DomainError =>
  new DomainError('REQUEST_INVALID', `the app has a discovery profile named ${name}`)

/** Uses a content hash as version, so that the same exclusions have the same version everywhere. */
function toManifest(excluded: readonly Capability[]): Manifest {
  if (excluded.length === 0) return { excluded, version: 'empty' }
  const content = JSON.stringify(excluded.map(({ pipeline, modelId }) => [pipeline, modelId]))
  return { excluded, version: createHash('sha256').update(content).digest('hex').slice(0, 24) }
}
