import { isDeepStrictEqual } from 'node:util'
import { DomainError } from '../../../proto/errors.ts'
import { isSecret, newSecret, uuidV7 } from '../../lib/crypto.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import { type Actor, audit, auditSuccess } from '../../shared/audit.ts'
import type { Grants } from '../../shared/lineage/grants.ts'
import {
  type AppId,
  type RegisteredClientId,
  isRegisteredClientId,
  isUuid,
  newRegisteredClientId,
} from '../../shared/ids.ts'
import { parseReadable } from '../../shared/text.ts'
import type { Shared } from '../../shared/shared.ts'
import * as apps from '../apps/store.ts'
import { type ClientMetadata, parseMetadata, parseMetadataText } from './metadata.ts'
import * as store from './store.ts'

/**
 * Prefix of initial access tokens (RFC 7591). Registration access tokens (RFC 7592) have the next
 * one.
 */
const initialPrefix = 'svc_it_'
const managementPrefix = 'svc_ra_'
const usesLimit = 10_000
const lifetimeDaysMax = 366
const daySeconds = 86_400
const unusedBatch = 100

type Deps = Pick<Shared, 'pool' | 'secrets' | 'now'> & {
  readonly grants: Pick<Grants, 'end'>
  /** Maximum number of registered clients per app. */
  readonly registrationsPerApp: number
  /** Days without use after which a client is deleted. */
  readonly registrationUnusedDays: number
}

export interface Registration {
  readonly clientId: RegisteredClientId
  readonly metadata: ClientMetadata
  readonly createdAt: Date
  /** The registration access token. */
  readonly token: string
}

interface Presented {
  readonly clientId: string
  readonly token: string
}

type Context = { readonly correlationId: string }

/**
 * Clients that register themselves with an app (RFC 7591) and manage their registrations (RFC
 * 7592).
 */
export function createRegistrations(deps: Deps) {
  const { pool, secrets, grants, registrationsPerApp, registrationUnusedDays, now } = deps

  /**
   * Registers a public client with the app of the initial access token. Throws TOKEN_INVALID for an
   * unknown, expired, revoked or used-up token, CONFLICT when the app has too many clients, and the
   * errors of RFC 7591 for invalid metadata.
   */
  async function register(token: string, text: string, context: Context): Promise<Registration> {
    if (!isSecret(token, initialPrefix)) throw invalidInitialToken()
    return tx(pool, async (db) => {
      const at = now()
      const initial = await store.useInitialToken(db, secrets.candidates(token), at)
      if (!initial) throw invalidInitialToken()
      const appId = initial.app_id
      const metadata = parseMetadata(parseMetadataText(text), initial.scopes)
      await apps.lockApp(db, appId)
      await requirePlace(db, appId)
      const clientId = newRegisteredClientId()
      const management = newSecret(managementPrefix)
      await apps.insertRegisteredClient(db, { ...metadata, clientId, appId, at })
      const registration = { clientId, appId, initialTokenId: initial.id, metadata, at }
      await store.insertRegistration(db, { ...registration, ...secrets.store(management) })
      await note(db, { appId, clientId, action: 'client_registered', context })
      return { clientId, metadata, createdAt: at, token: management }
    })
  }

  async function requirePlace(db: Db, app: AppId): Promise<void> {
    if ((await store.countRegisteredClients(db, app)) < registrationsPerApp) return
    throw new DomainError('CONFLICT', `an app may have ${registrationsPerApp} registered clients`)
  }

  /**
   * Returns the current registration. Throws TOKEN_INVALID, also for an unknown client (RFC 7592
   * section 2.1).
   */
  const read = async (presented: Presented): Promise<Registration> =>
    (await find(pool, presented, store.findRegistration)).registration

  /**
   * Replaces all metadata (RFC 7592 section 2.2). A repeated request changes nothing and adds no
   * audit entry.
   */
  async function update(presented: Presented, text: string, context: Context) {
    return tx(pool, async (db) => {
      const { registration, appId, appScopes, storedScopes } = await lock(db, presented)
      const { clientId } = registration
      const members = parseMetadataText(text)
      refuseForeignMembers(members, clientId)
      const metadata = parseMetadata(members, appScopes, registration.metadata.name)
      if (isDeepStrictEqual(metadata, { ...registration.metadata, scopes: storedScopes }))
        return registration
      await apps.updateRegisteredClient(db, { ...metadata, clientId, appId })
      await store.updateRegistration(db, clientId, { metadata, at: now() })
      await note(db, { appId, clientId, action: 'client_registration_changed', context })
      return { ...registration, metadata }
    })
  }

  /** Deletes the client and ends all its logins (RFC 7592 section 2.3). */
  async function remove(presented: Presented, context: Context): Promise<void> {
    await tx(pool, async (db) => {
      const { registration, appId } = await lock(db, presented)
      const { clientId } = registration
      await end(db, { appId, clientId, action: 'client_registration_deleted', context })
    })
  }

  /**
   * Locks the rows only after the token is verified. A request with a wrong token neither takes a
   * lock nor waits for one.
   */
  async function lock(db: Db, presented: Presented) {
    await find(db, presented, store.findRegistration)
    return find(db, presented, store.lockRegistration)
  }

  async function find(
    db: Db,
    { clientId, token }: Presented,
    readRow: typeof store.findRegistration,
  ) {
    const isPossible = isRegisteredClientId(clientId) && isSecret(token, managementPrefix)
    const row = isPossible ? await readRow(db, clientId) : null
    if (!isPossible || !row || !secrets.matches(token, row)) throw invalidManagementToken()
    const { appId, appScopes, storedScopes, metadata, createdAt } = row
    const registration = { clientId, metadata, createdAt, token }
    return { appId, appScopes, storedScopes, registration }
  }

  interface Note {
    readonly appId: AppId
    readonly clientId: RegisteredClientId
    readonly action: string
    readonly context?: Context
  }

  async function end(db: Db, ending: Note): Promise<void> {
    const { clientId } = ending
    await grants.end(db, [{ id: clientId, cause: 'client_deleted', at: now() }])
    await apps.deleteRegisteredClient(db, clientId)
    await note(db, ending)
  }

  const note = (db: Db, { appId, clientId, action, context }: Note): Promise<void> =>
    audit(db, {
      appId,
      actor: clientId,
      action,
      status: 'success',
      correlationId: context?.correlationId,
      at: now(),
    })

  /** Upkeep: deletes clients that were not used for `registrationUnusedDays`. */
  async function endUnused(): Promise<void> {
    const before = addSeconds(now(), -registrationUnusedDays * daySeconds)
    for (const { client_id: clientId, app_id: appId } of await store.listUnusedClients(
      pool,
      before,
      unusedBatch,
    ))
      await tx(pool, (db) => end(db, { appId, clientId, action: 'client_registration_expired' }))
  }

  return { register, read, update, remove, endUnused, ...createInitialTokens(deps) }
}

export type Registrations = ReturnType<typeof createRegistrations>

export interface NewTokenRequest {
  readonly label: string
  readonly usesMax: number
  readonly days: number
}

/** Tokens with which an operator lets clients register with an app. */
function createInitialTokens({ pool, secrets, now }: Deps) {
  /**
   * Creates a token, which is returned only once. Throws REQUEST_INVALID when uses or days are out
   * of range.
   */
  async function createToken(app: AppId, { label, usesMax, days }: NewTokenRequest, actor: Actor) {
    requireWithin(usesMax, usesLimit, 'uses')
    requireWithin(days, lifetimeDaysMax, 'days')
    const at = now()
    const token = newSecret(initialPrefix)
    const id = uuidV7(at.getTime())
    const expiresAt = addSeconds(at, days * daySeconds)
    const text = label.trim() === '' ? '' : parseReadable(label, { field: 'label' })
    const row = { id, appId: app, label: text, usesMax, at, expiresAt }
    await tx(pool, async (db) => {
      await store.insertInitialToken(db, { ...row, ...secrets.store(token) })
      await noteToken(db, { app, actor, action: 'registration_token_created', id })
    })
    return { token, id, label: text, uses: 0, usesMax, createdAt: at, expiresAt, revokedAt: null }
  }

  const listTokens = async (app: AppId) =>
    (await store.listInitialTokens(pool, app)).map((row) => ({
      id: row.id,
      label: row.label,
      uses: row.uses,
      usesMax: row.uses_max,
      createdAt: row.created_at,
      expiresAt: row.expires_at,
      revokedAt: row.revoked_at,
    }))

  /**
   * Revokes the token. Clients registered with it stay. Throws NOT_FOUND when the app has no such
   * token.
   */
  async function revokeToken(app: AppId, id: string, actor: Actor): Promise<void> {
    await tx(pool, async (db) => {
      const isKnown = isUuid(id) && (await store.revokeInitialToken(db, { app, id, at: now() }))
      if (!isKnown) throw new DomainError('NOT_FOUND', 'the app has no such registration token')
      await noteToken(db, { app, actor, action: 'registration_token_revoked', id })
    })
  }

  const noteToken = (
    db: Db,
    { app, actor, action, id }: { app: AppId; actor: Actor; action: string; id: string },
  ): Promise<void> =>
    auditSuccess(db, {
      appId: app,
      actor,
      action,
      details: { tokenId: id },
      at: now(),
    })

  return { createToken, listTokens, revokeToken }
}

const invalidInitialToken = (): DomainError =>
  new DomainError('TOKEN_INVALID', 'the initial access token is not valid, or is used up')

const invalidManagementToken = (): DomainError =>
  new DomainError('TOKEN_INVALID', 'the registration access token is not valid')

function requireWithin(value: number, max: number, field: string): void {
  if (!Number.isInteger(value) || value < 1 || value > max)
    throw new DomainError('REQUEST_INVALID', `${field} must be a whole number from 1 to ${max}`)
}

const ownMembers = [
  'registration_access_token',
  'registration_client_uri',
  'client_secret_expires_at',
  'client_id_issued_at',
]

/**
 * Requires the client id in the request and rejects members that only the server sets (RFC 7592
 * section 2.2).
 */
function refuseForeignMembers(members: Readonly<Record<string, unknown>>, clientId: string): void {
  const foreign = ownMembers.find((name) => members[name] !== undefined)
  if (foreign !== undefined)
    throw new DomainError('CLIENT_METADATA_INVALID', `leave ${foreign} out`)
  if (members['client_id'] !== clientId)
    throw new DomainError('CLIENT_METADATA_INVALID', 'client_id must be that of the registration')
  if (members['client_secret'] !== undefined)
    throw new DomainError('CLIENT_METADATA_INVALID', 'the client has no secret')
}
