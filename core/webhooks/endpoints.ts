import { DomainError } from '../../proto/errors.ts'
import { uuidV7 } from '../lib/crypto.ts'
import type { Outbound } from '../lib/outbound/outbound.ts'
import { type Db, tx } from '../lib/sql.ts'
import { addSeconds } from '../lib/time.ts'
import { type Actor, auditSuccess } from '../shared/audit.ts'
import { type AppId, isUuid } from '../shared/ids.ts'
import type { Sealing } from '../shared/sealing/sealing.ts'
import type { Shared } from '../shared/shared.ts'
import * as store from './endpoint-store.ts'
import * as input from './input.ts'
import {
  type Signing,
  type StoredSecret,
  endSecrets,
  insertSecret,
  listSecrets,
  placeOfSecret,
} from './secret-store.ts'
import { createSecret } from './signatures.ts'

export type EndpointsDeps = Pick<Shared, 'pool' | 'now' | 'idempotency' | 'sealing'> & {
  readonly outbound: Pick<Outbound, 'requireTarget'>
  /** Called after an endpoint may have become due. */
  readonly onDue: () => void
}

/** The app, and the actor who changes its endpoints. */
export interface EndpointEditor {
  readonly appId: AppId
  readonly actor: Actor
  /** Scope of the caller's idempotency keys. */
  readonly idempotencyScope: string
}

export interface NewEndpoint {
  readonly url: string
  readonly description: string
  readonly eventTypes: readonly string[]
  readonly signing: string
  readonly idempotencyKey: string | undefined
}

/** Changes. Absent fields stay unchanged. */
export interface EndpointChange {
  readonly url?: string | undefined
  readonly description?: string | undefined
  readonly eventTypes?: readonly string[] | undefined
  readonly status?: string | undefined
}

export interface SecretRotation {
  readonly signing: string
  readonly overlapSeconds: number | undefined
  readonly idempotencyKey: string | undefined
}

/** An endpoint with its valid secrets, newest first. */
export interface EndpointView {
  readonly endpoint: store.Endpoint
  readonly secrets: readonly StoredSecret[]
}

const endpointsMax = 20
const secretsMax = 5

/** Webhook endpoints of apps and their secrets. Each change has an entry in the audit log. */
export function createEndpoints(deps: EndpointsDeps) {
  const { pool, now, idempotency, sealing, outbound, onDue } = deps

  async function list(app: AppId): Promise<EndpointView[]> {
    const [endpoints, secrets] = await Promise.all([
      store.listEndpoints(pool, app),
      listSecrets(pool, { appId: app }, now()),
    ])
    const byEndpoint = Map.groupBy(secrets, ({ endpointId }) => endpointId)
    return endpoints.map((endpoint) => ({ endpoint, secrets: byEndpoint.get(endpoint.id) ?? [] }))
  }

  /** Throws NOT_FOUND when the app has no such endpoint. */
  async function get(app: AppId, id: string): Promise<store.Endpoint> {
    const endpoint = isUuid(id) ? await store.findEndpoint(pool, { appId: app, id }) : null
    if (!endpoint) throw noSuchEndpoint()
    return endpoint
  }

  const view = async (db: Db, endpoint: store.Endpoint): Promise<EndpointView> => ({
    endpoint,
    secrets: await listSecrets(db, endpoint, now()),
  })

  /** Creates an endpoint and its secret. Throws CONFLICT when the app has too many endpoints. */
  async function create(
    editor: EndpointEditor,
    { idempotencyKey: key, ...request }: NewEndpoint,
  ): Promise<EndpointView & { secret: string | null }> {
    const settings = {
      url: input.parseUrl(request.url, outbound),
      description: input.parseDescription(request.description),
      eventTypes: input.parseEventTypes(request.eventTypes),
    }
    const signing = input.parseSigning(request.signing, 'hmac')
    const scope = `${editor.idempotencyScope}:webhook-endpoints`
    const body = { ...settings, signing }
    const { endpointId, secret } = await idempotency.once(
      { scope, key, body, holdsSecret: true },
      async (db) => {
        await store.lockEndpoints(db, editor.appId)
        if ((await store.countEndpoints(db, editor.appId)) >= endpointsMax)
          throw new DomainError(
            'CONFLICT',
            `an app may have ${endpointsMax} webhook endpoints; delete one first`,
          )
        const endpoint = newEndpoint(editor.appId, settings, now())
        await store.insertEndpoint(db, endpoint)
        const text = await addSecret(db, endpoint, { signing, sealing, at: now() })
        await note(db, editor, { action: 'webhook_endpoint_created', endpoint })
        return { endpointId: endpoint.id, secret: text }
      },
    )
    return { ...(await view(pool, await get(editor.appId, endpointId))), secret }
  }

  /** Changes an endpoint. Activation forgets its failures; deliveries that wait are due at once. */
  async function update(
    editor: EndpointEditor,
    id: string,
    change: EndpointChange,
  ): Promise<EndpointView> {
    const { url, description, eventTypes, status } = change
    const settings = {
      ...(url === undefined ? {} : { url: input.parseUrl(url, outbound) }),
      ...(description === undefined ? {} : { description: input.parseDescription(description) }),
      ...(eventTypes === undefined ? {} : { eventTypes: input.parseEventTypes(eventTypes) }),
    }
    const next = status === undefined ? undefined : input.parseStatus(status)
    const result = await tx(pool, async (db) => {
      const before = await lock(db, editor.appId, id)
      const at = now()
      const endpoint = { ...before, ...settings, ...statusChange(before, next), updatedAt: at }
      await store.updateEndpoint(db, endpoint)
      if (next === 'active') await store.restartEndpoint(db, endpoint, at)
      await note(db, editor, { action: 'webhook_endpoint_changed', endpoint })
      return view(db, next === 'active' ? { ...endpoint, failingSince: null } : endpoint)
    })
    onDue()
    return result
  }

  /** Deletes an endpoint with its deliveries. Throws NOT_FOUND for an unknown endpoint. */
  async function remove(editor: EndpointEditor, id: string): Promise<void> {
    await tx(pool, async (db) => {
      const endpoint = await lock(db, editor.appId, id)
      await store.deleteEndpoint(db, endpoint)
      await note(db, editor, { action: 'webhook_endpoint_deleted', endpoint })
    })
  }

  /**
   * Creates another secret. Earlier secrets also sign until the overlap ends. Throws CONFLICT when
   * too many secrets are valid.
   */
  async function rotate(
    editor: EndpointEditor,
    id: string,
    { idempotencyKey: key, ...request }: SecretRotation,
  ): Promise<EndpointView & { secret: string | null }> {
    const overlap = input.parseOverlap(request.overlapSeconds)
    const scope = `${editor.idempotencyScope}:webhook-secrets:${id}`
    const body = { signing: request.signing, overlap }
    const { secret } = await idempotency.once(
      { scope, key, body, holdsSecret: true },
      async (db) => {
        const endpoint = await lock(db, editor.appId, id)
        const at = now()
        const [newest] = await listSecrets(db, endpoint, at)
        const signing = input.parseSigning(request.signing, newest?.signing ?? 'hmac')
        await endSecrets(db, endpoint, { at, endsAt: addSeconds(at, overlap) })
        if ((await listSecrets(db, endpoint, at)).length >= secretsMax)
          throw new DomainError(
            'CONFLICT',
            `an endpoint may have ${secretsMax} valid secrets; wait, or use overlapSeconds 0`,
          )
        const text = await addSecret(db, endpoint, { signing, sealing, at })
        await note(db, editor, { action: 'webhook_secret_rotated', endpoint })
        return { secret: text }
      },
    )
    return { ...(await view(pool, await get(editor.appId, id))), secret }
  }

  async function note(
    db: Db,
    { appId, actor }: EndpointEditor,
    { action, endpoint }: { action: string; endpoint: store.Endpoint },
  ): Promise<void> {
    const { id, url, status } = endpoint
    // A path or query may hold a credential of the receiver.
    const details = { endpointId: id, host: new URL(url).host, status }
    await auditSuccess(db, { appId, actor, action, details, at: now() })
  }

  return {
    list,
    get,
    view: (endpoint: store.Endpoint) => view(pool, endpoint),
    create,
    update,
    remove,
    rotate,
  }
}

export type Endpoints = ReturnType<typeof createEndpoints>

export const noSuchEndpoint = (): DomainError =>
  new DomainError('NOT_FOUND', 'the app has no such webhook endpoint')

/** Stores a new secret. Returns its text; null if it is never shown. */
async function addSecret(
  db: Db,
  endpoint: store.EndpointKey,
  { signing, sealing, at }: { signing: Signing; sealing: Sealing; at: Date },
): Promise<string | null> {
  const id = uuidV7(at.getTime())
  const { bytes, text, publicKey } = createSecret(signing)
  const sealed = sealing.seal(bytes, placeOfSecret(id))
  await insertSecret(db, endpoint, { id, signing, sealed, publicKey, createdAt: at })
  return text
}

async function lock(db: Db, app: AppId, id: string): Promise<store.Endpoint> {
  const endpoint = isUuid(id) ? await store.lockEndpoint(db, { appId: app, id }) : null
  if (!endpoint) throw noSuchEndpoint()
  return endpoint
}

function newEndpoint(appId: AppId, settings: store.EndpointSettings, at: Date): store.Endpoint {
  const times = { createdAt: at, updatedAt: at, failingSince: null }
  const id = uuidV7(at.getTime())
  return { appId, id, ...settings, ...times, status: 'active', disabledReason: null }
}

function statusChange(
  before: store.Endpoint,
  status: store.EndpointStatus | undefined,
): Pick<store.Endpoint, 'status' | 'disabledReason'> {
  const { status: current, disabledReason } = before
  if (status === undefined || status === current) return { status: current, disabledReason }
  return { status, disabledReason: status === 'active' ? null : 'requested' }
}
