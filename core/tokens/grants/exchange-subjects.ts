import { TokenType } from '../../../proto/oauth.ts'
import { DomainError } from '../../../proto/errors.ts'
import type { ExchangeTokenRequest } from '../../../proto/gen/ts-proto/tollgate/tokens/v1/grants.ts'
import { Scope } from '../../../proto/scopes.ts'
import { joinGrants, keyGrant } from '../../shared/lineage/grants.ts'
import { readLineage } from '../issuer/jwt.ts'
import type { Keys } from '../../keys/keys.ts'
import type { M2mCaller } from '../../rpc/callers.ts'
import type { Subjects, UserToken } from '../subjects.ts'
import type { ForeignSubjects } from './foreign-subject.ts'
import { type SignerSubject, requireGranted } from './signer-token.ts'

export const keyTypes: readonly string[] = [TokenType.apiKey, TokenType.legacyApiKey]
// Also matches after the app's id, as for keys. Other text may contain the prefix by chance.
const clientSecret = /^(?:app_[0-9a-f]{24}_)?svc_cs_/

export type ExchangeSubjectsDeps = {
  readonly keys: Pick<Keys, 'find' | 'ownerOf' | 'isKey'>
  readonly subjects: Subjects
  readonly foreignSubjects: ForeignSubjects
}

/** The app and the client of an exchange. */
export interface Parties {
  /** The app in the route, which may be missing; null at the issuer's endpoint. */
  readonly app: { readonly clientId: string } | null
  readonly caller: M2mCaller | null
}

/** Users behind the subject tokens of an exchange. */
export function createExchangeSubjects({ keys, subjects, foreignSubjects }: ExchangeSubjectsDeps) {
  const isKey = ({ subjectTokenType, subjectToken }: ExchangeTokenRequest): boolean =>
    keyTypes.includes(subjectTokenType) ||
    clientSecret.test(subjectToken) ||
    keys.isKey(subjectToken)

  /** Returns the user that a signer JWT is issued for, and the expiry of the subject token. */
  const ownerOf = (request: ExchangeTokenRequest, parties: Parties) =>
    isKey(request)
      ? keyOwner(request, parties)
      : foreignSubjects.isForeign(request.subjectToken)
        ? foreignOwner(request, parties)
        : tokenOwner(request, parties)

  /** All refusals come before the user, because an app-level key may create it. */
  async function keyOwner(
    { subjectToken, scope }: ExchangeTokenRequest,
    parties: Parties,
  ): Promise<{ subject: SignerSubject; notAfter: undefined }> {
    const key = clientSecret.test(subjectToken) ? null : await keys.find(subjectToken)
    if (!key) throw invalidSubject()
    requireApp(key.clientId, parties)
    requireSigning([Scope.signJob], scope)
    requireGranted(key.publicScopes)
    const owner = await keys.ownerOf(key)
    if (!owner) throw invalidSubject()
    const grants = joinGrants(owner.grants, [keyGrant(owner.keyId)], parties.caller?.grants ?? [])
    return { subject: { ...owner, grants }, notAfter: undefined }
  }

  async function tokenOwner(request: ExchangeTokenRequest, parties: Parties) {
    const { jwt, user, caller } = await userOf(request.subjectToken, parties)
    requireSigning(jwt.scopes, request.scope)
    const grants = joinGrants(readLineage(jwt), parties.caller?.grants ?? [])
    const { tokensValidAfter } = user
    return { subject: { ...caller, tokensValidAfter, grants }, notAfter: jwt.exp }
  }

  /**
   * Returns the user of a foreign token, by the trust of the route's app or else of the client's
   * app.
   */
  async function foreignOwner({ subjectToken, scope }: ExchangeTokenRequest, parties: Parties) {
    const clientId = parties.app?.clientId ?? parties.caller?.clientId ?? null
    requireSigning([Scope.signJob], scope)
    const { subject, notAfter } = await foreignSubjects.ownerOf(subjectToken, clientId)
    const grants = joinGrants(subject.grants, parties.caller?.grants ?? [])
    return { subject: { ...subject, grants }, notAfter }
  }

  /**
   * Throws GRANT_INVALID unless the token is a valid user JWT of the app. Rejects a signer JWT,
   * which could otherwise renew itself.
   */
  async function userOf(token: string, parties: Parties): Promise<UserToken> {
    const userToken = await subjects.userToken(token).catch(asInvalidGrant)
    requireApp(userToken.caller.clientId, parties)
    return userToken
  }

  return { isKey, ownerOf, userOf }
}

/**
 * Throws unless the subject belongs to the app. Treats another app and a missing app alike, so that
 * only an app's own users and clients learn that it exists (decision 13).
 */
function requireApp(clientId: string, { app, caller }: Parties): void {
  if (app && clientId !== app.clientId) throw noSuchApp()
  if (caller && clientId !== caller.clientId) throw invalidSubject()
}

export const noSuchApp = (): DomainError =>
  new DomainError('NOT_FOUND', 'no such app for this credential')

export function requireSigning(scopes: readonly string[], requested: string | undefined): void {
  if (!scopes.includes(Scope.signJob))
    throw new DomainError('GRANT_INVALID', `the subject token lacks the scope ${Scope.signJob}`)
  if (requested !== undefined && requested.trim() !== Scope.signJob) {
    throw new DomainError('SCOPE_INVALID', `the only scope of a signer session is ${Scope.signJob}`)
  }
}

export const invalidSubject = (cause?: unknown): DomainError =>
  new DomainError('GRANT_INVALID', 'the subject token is not valid here, or has expired', { cause })

export function asInvalidGrant(error: unknown): never {
  if (
    error instanceof DomainError &&
    (error.reason === 'TOKEN_INVALID' || error.reason === 'NOT_FOUND')
  )
    throw invalidSubject(error)
  throw error
}
