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

export type SignerInfo = ReturnType<typeof toInfo>

/** The caller that makes secrets of signers. */
export interface SignerOperator {
  readonly actor: Actor
  /** Scope of the caller's idempotency keys. */
  readonly idempotencyScope: string
  readonly idempotencyKey: string | undefined
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
export function createSigners({ pool, idempotency, invalidations, now }: Shared) {
  /** Throws CONFLICT when the name is taken. Only this response contains the secrets. */
  async function create(
    request: AppsOfSigner & { readonly name: string; readonly mayPushEvents: boolean },
    operator: SignerOperator,
  ) {
    if (!nameForm.test(request.name))
      throw invalid('name must be lower-case letters, digits and hyphens, at most 63')
    const signer = { ...request, id: uuidV7() }
    return makeSecrets({ action: 'signer.create', request }, operator, async (db) => {
      if (!(await store.insertSigner(db, signer, now())))
        throw new DomainError('CONFLICT', `the signer ${request.name} already exists`)
      await bindApps(db, signer.id, request)
      const credentials = await issue(db, signer.id, request.mayPushEvents)
      return { signer: await find(db, request.name), credentials }
    })
  }

  /** The old secrets stay valid for the overlap. Only this response contains the new ones. */
  async function rotate(
    request: { readonly name: string; readonly overlapSeconds: number },
    operator: SignerOperator,
  ) {
    const { name, overlapSeconds } = request
    if (!Number.isInteger(overlapSeconds) || overlapSeconds < 0 || overlapSeconds > overlapMax)
      throw invalid(`overlap_seconds must be from 0 to ${overlapMax}`)
    return makeSecrets({ action: 'signer.rotate', request }, operator, async (db) => {
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
    return find(pool, name)
  }

  async function remove(name: string, actor: Actor): Promise<void> {
    await change({ action: 'signer.remove', name, actor }, async (db) => {
      if (!(await store.deleteSigner(db, name))) throw noSuchSigner(name)
    })
  }

  /** Like `change`. A repetition with the same key gets the first response, secrets included. */
  async function makeSecrets<T>(
    { action, request }: { readonly action: string; readonly request: { readonly name: string } },
    { actor, idempotencyScope: scope, idempotencyKey: key }: SignerOperator,
    work: (db: Db) => Promise<T>,
  ): Promise<T> {
    const { name } = request
    const response = await idempotency.once(
      { scope, key, body: { action, ...request }, holdsSecret: true },
      (db) => audited(db, { action, name, actor }, work),
    )
    await invalidations.publish({ kind: 'signer', id: name })
    return response
  }

  /** Runs `work` in a transaction with its audit row, then notifies every sidecar. */
  async function change<T>(signerChange: SignerChange, work: (db: Db) => Promise<T>): Promise<T> {
    const result = await tx(pool, (db) => audited(db, signerChange, work))
    await invalidations.publish({ kind: 'signer', id: signerChange.name })
    return result
  }

  async function audited<T>(
    db: Db,
    { action, name, actor }: SignerChange,
    work: (db: Db) => Promise<T>,
  ): Promise<T> {
    // An entry about an app's own signer is in the audit log of that app.
    const appId = (await store.lockSigner(db, name))?.app_id ?? null
    const value = await work(db)
    await auditSuccess(db, { appId, actor, action, details: { signer: name }, at: now() })
    return value
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

  const list = async (db: Db = pool): Promise<SignerInfo[]> =>
    (await store.listSigners(db, now())).map(toInfo)

  async function find(db: Db, name: string): Promise<SignerInfo> {
    const signer = (await list(db)).find((one) => one.name === name)
    if (!signer) throw noSuchSigner(name)
    return signer
  }

  return {
    create,
    rotate,
    setApps,
    remove,
    list: () => list(),
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

const toInfo = (row: store.SignerRow) => ({
  name: row.name,
  allApps: row.all_apps,
  clientIds: row.client_ids,
  mayPushEvents: row.may_push_events,
  createdAt: row.created_at.toISOString(),
  secrets: row.secrets,
})

const invalid = (message: string): DomainError => new DomainError('REQUEST_INVALID', message)
const noSuchSigner = (name: string): DomainError =>
  new DomainError('NOT_FOUND', `there is no signer ${name.slice(0, 64)}`)
