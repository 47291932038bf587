import { hash, randomBytes, randomUUID } from 'node:crypto'
import { DomainError } from '../../../proto/errors.ts'
import type { LiveSession } from '../../identity/accounts/sessions.ts'
import type { PublicClient } from '../../identity/apps/clients.ts'
import { tx } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import { audit } from '../../shared/audit.ts'
import { joinGrants } from '../../shared/lineage/grants.ts'
import { type UserId, accountSubject, isRegisteredClientId } from '../../shared/ids.ts'
import type { Subjects } from '../subjects.ts'
import {
  type AuthorizationCheckDeps,
  type AuthorizationRequest,
  hashClient,
  createAuthorizationCheck,
} from './authorization-check.ts'
import * as store from './store.ts'

type Deps = AuthorizationCheckDeps & {
  readonly subjects: Pick<Subjects, 'provision'>
  readonly codeTtlSeconds: number
}

/** Authorization code with PKCE: checks requests, stores consent, issues codes. */
export function createAuthorizations(deps: Deps) {
  const { pool, clients, subjects, codeTtlSeconds, now } = deps
  const check = createAuthorizationCheck(deps)

  /**
   * Stores the consent of the session's account and issues a short-lived, single-use code.
   * `consented` is set if the person has just consented on our page, which showed `clientVersion`
   * of the client. Otherwise an earlier consent must cover the scopes, and only this client may be
   * able to receive the code.
   */
  async function authorize(
    request: AuthorizationRequest,
    { consented, clientVersion }: { consented: boolean; clientVersion?: string | undefined },
  ): Promise<string> {
    const { client, scopes, session, refusal, needsConsent } = await check({
      ...request,
      prompt: undefined,
    })
    if (refusal) throw new DomainError('REQUEST_INVALID', refusal.description)
    if (!session) throw new DomainError('TOKEN_INVALID', 'log in first')
    if (needsConsent && !consented)
      throw new DomainError('REQUEST_INVALID', 'the user must consent first')
    if (consented && clientVersion !== undefined && clientVersion !== hashClientVersion(client))
      throw new DomainError('REQUEST_INVALID', 'the application has changed; start again')
    const userId = await userOf(client, session)
    const code = randomBytes(32).toString('base64url')
    const at = now()
    await tx(pool, async (db) => {
      const accountId = session.account.id
      const { clientId } = client
      const clientHash = hashClient(client)
      await store.addConsent(db, { clientId, clientHash, accountId, scopes, at })
      await store.insertCode(db, {
        codeHash: hash('sha256', code, 'buffer'),
        clientId,
        accountId,
        userId,
        familyId: randomUUID(),
        redirectUri: request.redirectUri,
        scope: scopes.join(' '),
        nonce: request.nonce ?? null,
        codeChallenge: request.codeChallenge ?? '',
        authTime: session.authTime,
        grants: lineageOf(client, session),
        at,
        expiresAt: addSeconds(at, codeTtlSeconds),
      })
      await audit(db, {
        appId: client.appId,
        actor: accountSubject(accountId),
        action: 'authorization_granted',
        status: 'success',
        at,
        details: { userId, scope: scopes.join(' ') },
      })
    })
    return code
  }

  /**
   * Returns the account's end user in the app, created on first use. Throws ACCESS_DENIED when it
   * is inactive.
   */
  async function userOf(
    { publicClientId: clientId }: PublicClient,
    session: LiveSession,
  ): Promise<UserId> {
    const externalUserId = accountSubject(session.account.id)
    const user = await subjects.provision({ clientId, externalUserId })
    if (!user) throw new DomainError('ACCESS_DENIED', 'this application has ended your access')
    return user.id
  }

  /**
   * Returns the URL at which the app begins device logins. Throws NOT_FOUND when the app does not
   * support them.
   */
  async function initiateLoginUri(clientId: string): Promise<string> {
    const client = await clients.findPublicOrDisabled(clientId)
    if (
      !client?.isAppActive ||
      !client.deviceThirdPartyInitiateLogin ||
      client.initiateLoginUri === null
    ) {
      throw new DomainError('NOT_FOUND', 'the application that sent you here does not start logins')
    }
    return client.initiateLoginUri
  }

  return { check, authorize, initiateLoginUri }
}

export type Authorizations = ReturnType<typeof createAuthorizations>

/** A registered client's logins also descend from that client. */
const lineageOf = (client: PublicClient, { grants }: LiveSession): readonly string[] =>
  isRegisteredClientId(client.clientId) ? joinGrants(grants, [client.clientId]) : grants

/** Identifies the client data shown to the person; empty for an app's own client. */
export const hashClientVersion = (client: PublicClient): string =>
  hashClient(client)?.toString('base64url') ?? ''
