import { DomainError } from '../../../proto/errors.ts'
import type {
  ExchangeBuilderTokenRequest,
  ExchangeBuilderTokenResponse,
} from '../../../proto/gen/ts-proto/tollgate/tokens/v1/grants.ts'
import { TokenType } from '../../../proto/oauth.ts'
import { Scope } from '../../../proto/scopes.ts'
import type { Clients } from '../../identity/apps/clients.ts'
import type { Provisioners } from '../../identity/tenants/provisioners.ts'
import type { Keys } from '../../keys/keys.ts'
import { joinGrants, keyGrant } from '../../shared/lineage/grants.ts'
import type { ClientCaller, M2mCaller } from '../../rpc/callers.ts'
import type { Context } from '../../rpc/serve.ts'
import { readLineage } from '../issuer/jwt.ts'
import type { Subjects } from '../subjects.ts'
import type { ExchangeAudit } from './exchange-audit.ts'
import type { ForeignSubjects } from './foreign-subject.ts'
import {
  type SignerSubject,
  type SignerTokens,
  requireGranted,
  requireTargets,
  signerTargets,
} from './signer-token.ts'
import { asInvalidGrant, invalidSubject, requireSigning } from './exchange-subjects.ts'
import {
  builderSubjectTypes,
  requireGrantType,
  requireRequested,
  requireSubject,
} from './token-exchange.ts'

export interface BuilderExchangeDeps {
  readonly issuer: string
  readonly clients: Pick<Clients, 'findPublic'>
  readonly provisioners: Pick<Provisioners, 'serves'>
  readonly keys: Pick<Keys, 'find' | 'ownerOf'>
  readonly subjects: Pick<Subjects, 'userToken'>
  readonly foreignSubjects: ForeignSubjects
  readonly signerTokens: SignerTokens
  readonly exchangeAudit: ExchangeAudit
}

interface Subject {
  readonly subject: SignerSubject
  /** Expiry of a JWT, in Unix seconds. */
  readonly notAfter: number | undefined
}

/**
 * Token exchange of the builder API (RFC 8693). The checks run in the order of docs/builder-api.md,
 * because the first failure decides the response. There is no separate check for a missing app.
 */
export function createBuilderExchange(deps: BuilderExchangeDeps) {
  const { issuer, clients, provisioners, keys, subjects, foreignSubjects } = deps
  const { signerTokens, exchangeAudit } = deps

  async function exchange(
    request: ExchangeBuilderTokenRequest,
    credentials: ClientCaller,
    context: Context,
  ): Promise<ExchangeBuilderTokenResponse> {
    const client = await clients.findPublic(request.clientId)
    const { anonymous, caller } = await exchangeAudit.begin(client, context, () =>
      authenticate(request, credentials),
    )
    const actor = { name: caller?.m2mClientId ?? anonymous.actor.name, context }
    const attempt = { ...anonymous, actor, isAnonymous: caller === null }
    return exchangeAudit.record(attempt, (decided) =>
      issue(request, caller, decided).catch(asUngranted),
    )
  }

  /**
   * Checks the request, then the client's credentials. Accepts the M2M client of the app, and that
   * of a platform app.
   */
  async function authenticate(
    request: ExchangeBuilderTokenRequest,
    credentials: ClientCaller,
  ): Promise<M2mCaller | null> {
    requireGrantType(request.grantType)
    requireSubject(request, builderSubjectTypes)
    const caller = await credentials.authenticate()
    if (caller && !(await provisioners.serves(caller, request.clientId)))
      throw new DomainError('CREDENTIAL_INVALID', 'the client does not serve this app')
    return caller
  }

  async function issue(
    request: ExchangeBuilderTokenRequest,
    caller: M2mCaller | null,
    decided: () => void,
  ): Promise<ExchangeBuilderTokenResponse> {
    requireRequested(request.requestedTokenType, [TokenType.accessToken])
    requireTargets([...request.resources, ...request.audiences], signerTargets(issuer))
    const { subjectToken, clientId } = request
    const { subject, notAfter } = subjectToken.startsWith('sk_')
      ? await keyOwner(subjectToken, clientId)
      : foreignSubjects.isForeign(subjectToken)
        ? await foreignSubjects.ownerOf(subjectToken, clientId)
        : await tokenOwner(subjectToken, clientId)
    const grants = joinGrants(subject.grants, caller?.grants ?? [])
    const issued = await signerTokens.issue({ ...subject, grants }, { notAfter, decided })
    return { ...issued, issuedTokenType: TokenType.accessToken }
  }

  async function keyOwner(key: string, clientId: string): Promise<Subject> {
    const stored = await keys.find(key)
    if (stored?.clientId !== clientId) throw invalidSubject()
    requireGranted(stored.publicScopes)
    const owner = await keys.ownerOf(stored)
    if (!owner) throw invalidSubject()
    const grants = joinGrants(owner.grants, [keyGrant(owner.keyId)])
    return { subject: { ...owner, grants }, notAfter: undefined }
  }

  async function tokenOwner(token: string, clientId: string): Promise<Subject> {
    const { jwt, user, caller } = await subjects.userToken(token).catch(asInvalidGrant)
    if (caller.clientId !== clientId) throw invalidSubject()
    requireSigning(jwt.scopes, Scope.signJob)
    const { tokensValidAfter } = user
    return { subject: { ...caller, tokensValidAfter, grants: readLineage(jwt) }, notAfter: jwt.exp }
  }

  return { exchange }
}

export type BuilderExchange = ReturnType<typeof createBuilderExchange>

/**
 * Replaces SCOPE_INVALID with GRANT_INVALID: this endpoint takes no scope, so a subject that may
 * not sign is invalid.
 */
function asUngranted(error: unknown): never {
  if (error instanceof DomainError && error.reason === 'SCOPE_INVALID')
    throw new DomainError('GRANT_INVALID', error.message, { cause: error })
  throw error
}
