import { createHmac, randomBytes } from 'node:crypto'
import { DomainError } from '../../../proto/errors.ts'
import { type Actor, auditSuccess } from '../../shared/audit.ts'
import type { Shared } from '../../shared/shared.ts'
import { newSecret, uuidV7 } from '../../lib/crypto.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import * as store from './store.ts'

export interface AppsOfSigner {
  readonly allApps: boolean
  readonly clientIds: readonly string[]
}

interface SignerChange {
  readonly action: string
  readonly name: string
  readonly actor: Actor
}

const nameForm = /^[a-z0-9][a-z0-9-]{0,62}$/

/** Maximum overlap of older secrets with a new one, in seconds. */
export const overlapMax = 2_592_000

/**
 * Signers with their secrets and apps (docs/decisions/53.md). Every change reaches sidecars
 * immediately.
 */
export function createSigners({ pool, invalidations, now }: Shared) {
  async function create(
    request: AppsOfSigner & { readonly name: string; readonly mayPushEvents: boolean },
    actor: Actor,
  ) {
    if (!nameForm.test(request.name))
      throw invalid('name must be lower-case letters, digits and hyphens, at most 63')
    const signer = { ...request, id: uuidV7() }
    const credentials = await change(
      { action: 'signer.create', name: request.name, actor },
      async (db) => {
        if (!(await store.insertSigner(db, signer, now())))
          throw new DomainError('CONFLICT', `the signer ${request.name} already exists`)
        await bindApps(db, signer.id, request)
        return issue(db, signer.id, request.mayPushEvents)
      },
    )
    return { signer: await find(request.name), credentials }
  }

  async function rotate(name: string, overlapSeconds: number, actor: Actor) {
    if (!Number.isInteger(overlapSeconds) || overlapSeconds < 0 || overlapSeconds > overlapMax)
      throw invalid(`overlap_seconds must be from 0 to ${overlapMax}`)
    return change({ action: 'signer.rotate', name, actor }, async (db) => {
      const { id, may_push_events } = await lock(db, name)
      await store.endSecrets(db, id, addSeconds(now(), overlapSeconds))
      return issue(db, id, may_push_events)
    })
  }

  async function setApps(name: string, apps: AppsOfSigner, actor: Actor) {
    await change({ action: 'signer.apps', name, actor }, async (db) => {
      const { id, app_id } = await lock(db, name)
      if (app_id !== null)
        throw new DomainError(
          'CONFLICT',
          `the signer ${name} is the app's own and signs for no other`,
        )
      await bindApps(db, id, apps)
    })
    return find(name)
  }

  async function remove(name: string, actor: Actor): Promise<void> {
    await change({ action: 'signer.remove', name, actor }, async (db) => {
      if (!(await store.deleteSigner(db, name))) throw noSuchSigner(name)
    })
  }

  /** Runs `work` in a transaction with its audit row, then notifies every sidecar. */
  async function change<T>(
    { action, name, actor }: SignerChange,
    work: (db: Db) => Promise<T>,
  ): Promise<T> {
    const result = await tx(pool, async (db) => {
      // An entry about an app's own signer is in the audit log of that app.
      const appId = (await store.lockSigner(db, name))?.app_id ?? null
      const value = await work(db)
      await auditSuccess(db, { appId, actor, action, details: { signer: name }, at: now() })
      return value
    })
    await invalidations.publish({ kind: 'signer', id: name })
    return result
  }

  async function bindApps(db: Db, id: string, { allApps, clientIds }: AppsOfSigner): Promise<void> {
    const ids = [...new Set(clientIds)]
    if (allApps === ids.length > 0) throw invalid('name either apps or all apps')
    if ((await store.replaceApps(db, { id, allApps }, ids)) !== ids.length)
      throw new DomainError('NOT_FOUND', 'one of the apps does not exist')
  }

  async function issue(db: Db, signerId: string, mayPushEvents: boolean) {
    const add = async (purpose: store.Purpose): Promise<string> => {
      const { text, ...secret } = createSignerSecret(purpose)
      await store.insertSecret(db, { signerId, secret, at: now() })
      return text
    }
    const secret = await add('decisions')
    return { secret, eventsSecret: mayPushEvents ? await add('events') : undefined }
  }

  async function lock(db: Db, name: string) {
    const signer = await store.lockSigner(db, name)
    if (!signer) throw noSuchSigner(name)
    return signer
  }

  const list = (): Promise<store.SignerRow[]> => store.listSigners(pool, now())

  async function find(name: string): Promise<store.SignerRow> {
    const signer = (await list()).find((one) => one.name === name)
    if (!signer) throw noSuchSigner(name)
    return signer
  }

  return {
    create,
    rotate,
    setApps,
    remove,
    list,
    listSecrets: () => store.listSecrets(pool, now()),
  }
}

export type Signers = ReturnType<typeof createSigners>

/**
 * Creates `svc_sg_`, twelve characters that identify the secret, and 256 random bits with a
 * checksum.
 */
export function createSignerSecret(
  purpose: store.Purpose,
): store.NewSecret & { readonly text: string } {
  const id = randomBytes(6).toString('hex')
  const text = newSecret(`svc_sg_${id}_`)
  const key = randomBytes(32)
  return { id, purpose, key, hash: createHmac('sha256', key).update(text).digest(), text }
}

const invalid = (message: string): DomainError => new DomainError('REQUEST_INVALID', message)
const noSuchSigner = (name: string): DomainError =>
  new DomainError('NOT_FOUND', `there is no signer ${name.slice(0, 64)}`)
