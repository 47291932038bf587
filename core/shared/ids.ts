import { randomBytes, randomUUID } from 'node:crypto'
import { DomainError } from '../../proto/errors.ts'
import { uuidV7 } from '../lib/crypto.ts'
import { nameProblem } from '../lib/text/names.ts'
import { isReadable, unreadableKinds } from '../lib/text/readable.ts'

/**
 * Branded ids with their prefixes (decision 6). Internal ids are UUIDv7; a user's id (`endUserId`)
 * is a UUIDv4.
 */
declare const kind: unique symbol
export type AppId = string & { readonly [kind]: 'app' }
export type ClientId = string & { readonly [kind]: 'public-client' }
export type RegisteredClientId = string & { readonly [kind]: 'registered-client' }
export type M2mClientId = string & { readonly [kind]: 'm2m-client' }
export type AccountId = string & { readonly [kind]: 'account' }
export type UserId = string & { readonly [kind]: 'user' }
export type KeyId = string & { readonly [kind]: 'key' }
export type ExternalUserId = string & { readonly [kind]: 'external-user' }

/** A user of an app. */
export interface UserKey {
  readonly appId: AppId
  readonly userId: UserId
}

export const newAppId = (): AppId => uuidV7() as AppId
export const newUserId = (): UserId => randomUUID() as UserId
export const newKeyId = (): KeyId => uuidV7() as KeyId
export const newClientId = (): ClientId => `app_${randomBytes(12).toString('hex')}` as ClientId
export const newRegisteredClientId = (): RegisteredClientId =>
  `dyn_${randomBytes(12).toString('hex')}` as RegisteredClientId
export const newM2mClientId = (): M2mClientId =>
  `m2m_${randomBytes(12).toString('hex')}` as M2mClientId

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/
export const isUuid = (text: string): boolean => uuid.test(text)

const anyUuid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i
const upperCase = /[A-F]/

/**
 * The normal form of an event id for storage and comparison. UUIDs are case-insensitive (RFC 9562
 * section 4) and become lower case; other ids are unchanged.
 */
export const canonicalEventId = (id: string): string =>
  upperCase.test(id) && anyUuid.test(id) ? id.toLowerCase() : id

export const isClientId = (text: string): text is ClientId => /^app_[0-9a-f]{24}$/.test(text)
/**
 * The id of a client that registered itself (RFC 7591). Used as OAuth client_id, never in a path.
 */
export const isRegisteredClientId = (text: string): text is RegisteredClientId =>
  /^dyn_[0-9a-f]{24}$/.test(text)
export const isM2mClientId = (text: string): text is M2mClientId => /^m2m_[0-9a-f]{24}$/.test(text)

/** Casts for ids from our own tables, which need no check. */
export const appId = (text: string): AppId => text as AppId
export const userId = (text: string): UserId => text as UserId
export const accountId = (text: string): AccountId => text as AccountId
export const keyId = (text: string): KeyId => text as KeyId
export const externalUserId = (text: string): ExternalUserId => text as ExternalUserId

const utf8 = new TextEncoder()
const controls = /\p{Cc}|\p{Zl}|\p{Zp}|\p{Cs}/u

/**
 * The problem with `text` as the externalUserId of a user that an integrator creates (decisions 8,
 * 43 and 58); null if it is valid.
 */
export function newUserProblem(text: string): string | null {
  if (/^(owner|user|account):/.test(text.trim()))
    return 'externalUserId must not start with owner:, user: or account:'
  if (!isReadable(text.trim())) return `externalUserId must have ${unreadableKinds}`
  const problem = nameProblem(text)
  return problem === null ? null : `externalUserId ${problem}`
}

/**
 * The problem with `text` as the id of any user; null if it is valid. Accepts reserved ids:
 * integrators cannot provision them, but tickets signed for them are metered like others.
 */
export function subjectProblem(text: string): string | null {
  const trimmed = text.trim()
  if (trimmed === '') return 'externalUserId is required'
  // A UTF-16 code unit has at most three bytes in UTF-8, so most texts need no encoding.
  if (trimmed.length * 3 > 200 && utf8.encode(trimmed).length > 200)
    return 'externalUserId must be at most 200 bytes'
  if (controls.test(trimmed)) return 'externalUserId must not contain control characters'
  return null
}

/**
 * Parses and trims a user id. Throws REQUEST_INVALID if no user can have it. Routes that create
 * users must also check `newUserProblem`.
 */
export function parseExternalUserId(text: string): ExternalUserId {
  const problem = subjectProblem(text)
  if (problem) throw new DomainError('REQUEST_INVALID', problem)
  return text.trim() as ExternalUserId
}

/** `{clientId}:{externalUserId}`. The signer binds it to a session and repeats it in its events. */
export const authId = (client: string, user: string): string => `${client}:${user}`

const ownerPrefix = 'owner:'

/**
 * The external id of an account as the owner of an app (decision 37). Integrators cannot create
 * such an id.
 */
export const ownerSubject = (account: AccountId): ExternalUserId =>
  externalUserId(ownerPrefix + account)

/**
 * Returns an account's external id as an end user. Integrators cannot provision such ids (decision
 * 8).
 */
export const accountSubject = (account: AccountId): ExternalUserId =>
  externalUserId(`user:${account}`)

/** Whether the external id belongs to a user who came by login, a dashboard account. */
export const isLoginSubject = (external: string): boolean => external.startsWith('user:')

export const isOwnerSubject = (external: string): boolean => external.startsWith(ownerPrefix)

export const ownerAccountPrefix = 'account:'

/**
 * The external id of an account as an end user of the platform app (decision 58). Integrators
 * cannot create such an id.
 */
export const ownerAccountSubject = (account: AccountId): ExternalUserId =>
  externalUserId(ownerAccountPrefix + account)
