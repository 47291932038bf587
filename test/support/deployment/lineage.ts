import { createHash, randomBytes } from 'node:crypto'
import { credentials } from '@grpc/grpc-js'
import { unary } from '../../../core/lib/grpc.ts'
import { basic } from '../../../deploy/cli/client.ts'
import { AccountServiceClient } from '../../../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import { AuthorizationServiceClient } from '../../../proto/gen/ts-proto/tollgate/tokens/v1/authorization.ts'
import { serviceTokenHeader } from '../../../proto/headers.ts'
import { GrantType, TokenType } from '../../../proto/oauth.ts'
import { registerSecret } from '../run/secrecy.ts'
import type { Answer, Ask, Split } from './split.ts'

/**
 * One credential of each kind.
 * - `access`, `refresh`: tokens of a login of the owner
 * - `signer`, `session`: results of exchanging `access`, by a public caller and by the backend
 * - `machine` to `machineKey`: the backend's own token, and what it created
 */
export const credentialNames = [
  'access',
  'refresh',
  'signer',
  'session',
  'machine',
  'minted',
  'userKey',
  'keyToken',
  'machineKey',
  'appKey',
  'web',
] as const
export type CredentialName = (typeof credentialNames)[number]

/** Credentials that a caller of the signer can present. */
export const signingNames = credentialNames.filter(
  (name) => !['refresh', 'machine', 'web'].includes(name),
)

export const redirectUri = 'https://app.example/callback'
const password = registerSecret('a long enough password')
const verifier = 'v'.repeat(43)
const random = (): string => randomBytes(8).toString('hex')
const text = ({ body }: Answer, name: string): string => {
  const value = body[name]
  if (typeof value !== 'string') throw new Error(`no ${name} in ${JSON.stringify(body)}`)
  return value
}

/** Returns the RPCs that only our own pages call, with the options of each call. */
export function createPages({ target, serviceToken }: Split) {
  const accounts = new AccountServiceClient(target, credentials.createInsecure())
  const authorizations = new AuthorizationServiceClient(target, credentials.createInsecure())
  const options = { deadlineMs: 10_000, headers: { [serviceTokenHeader]: serviceToken } }
  const logIn = unary(accounts.logIn.bind(accounts))
  const logOutEverywhere = unary(accounts.logOutEverywhere.bind(accounts))
  const createAccount = unary(accounts.createAccount.bind(accounts))
  const startReset = unary(accounts.startPasswordReset.bind(accounts))
  const reset = unary(accounts.resetPassword.bind(accounts))
  const grant = unary(authorizations.grantAuthorization.bind(authorizations))
  const request = {
    redirectUri,
    responseType: 'code',
    scope: 'openid offline_access sign:job',
    codeChallenge: createHash('sha256').update(verifier).digest('base64url'),
    codeChallengeMethod: 'S256',
  }
  return {
    logIn: (email: string) => logIn({ email, password }, options),
    createAccount: (email: string) =>
      createAccount({ email, password, name: '', isPlatformAdmin: false }, options),
    logOutEverywhere: (sessionToken: string) => logOutEverywhere({ sessionToken }, options),
    async resetPassword(email: string): Promise<void> {
      const { token } = await startReset({ email }, options)
      await reset({ token, password: `${password} again` }, options)
    },
    authorize: async (clientId: string, sessionToken: string): Promise<string> =>
      (await grant({ sessionToken, request: { ...request, clientId }, consented: true }, options))
        .code,
    close(): void {
      accounts.close()
      authorizations.close()
    },
  }
}
export type Pages = ReturnType<typeof createPages>

/**
 * Creates an app with a logged-in owner and a credential of each kind. Also returns the functions
 * that end them.
 */
export async function createLineage(split: Split, pages: Pages) {
  const email = `${random()}@example.com`
  const created = await split.near.apps.createApp({
    name: 'Lineage',
    ownerEmail: email,
    ownerPassword: password,
    starterUsdMicros: undefined,
  })
  const { clientId, m2mClientId } = created
  const app = {
    path: `/api/v1/apps/${clientId}`,
    m2mClientId,
    basic: basic(m2mClientId, created.m2mClientSecret),
  }
  const { sessionToken, session } = await pages.logIn(email)
  const headersOf = (cookie: string, csrfToken: string | undefined) => ({
    cookie: `tollgate_session=${cookie}`,
    origin: split.app.owner.origin,
    'x-csrf-token': csrfToken ?? '',
  })
  const owner = headersOf(sessionToken, session?.csrfToken)
  const accountId = session?.account?.id ?? ''
  async function call(method: string, path: string, ask: Ask = {}): Promise<Answer> {
    const answer = await split.rest(method, path, ask)
    if (answer.status < 300) return answer
    throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  }
  const byOwner = (method: string, path: string, json?: object) =>
    call(method, app.path + path, { headers: owner, json })
  const byBackend = (method: string, path: string, more: Ask = {}) =>
    call(method, app.path + path, { authorization: app.basic, ...more })
  const token = (form: Record<string, string>, authorization?: string) =>
    split.rest('POST', '/api/v1/oidc/token', {
      form,
      ...(authorization !== undefined && { authorization }),
    })

  await byOwner('PUT', '', {
    redirectUris: [redirectUri],
    allowedScopes: ['openid', 'offline_access', 'sign:job'],
  })
  await byBackend('POST', '/users', { json: { externalUserId: 'ada' } })
  const firstCode = await pages.authorize(clientId, sessionToken)
  const redeem = (code = firstCode) =>
    token({
      grant_type: GrantType.authorizationCode,
      client_id: clientId,
      redirect_uri: redirectUri,
      code,
      code_verifier: verifier,
    })
  const login = await redeem()
  const access = text(login, 'access_token')
  const exchange = {
    grant_type: GrantType.tokenExchange,
    subject_token: access,
    subject_token_type: TokenType.accessToken,
  }
  const signer = await call('POST', `${app.path}/oidc/token`, { form: exchange })
  const opened = await token(exchange, app.basic)
  const machine = text(
    await token({ grant_type: GrantType.clientCredentials }, app.basic),
    'access_token',
  )
  const userKey = await byBackend('POST', '/users/ada/keys')
  const machineKey = await byBackend('POST', '/users/ada/keys', {
    authorization: `Bearer ${machine}`,
  })
  const appKey = await byOwner('POST', '/keys', {})
  const keyToken = await byBackend('POST', '/auth/api-key/token', {
    authorization: `Bearer ${text(userKey, 'apiKey')}`,
  })
  const minted = await byBackend('POST', '/users/ada/token')
  const values: Record<CredentialName, string> = {
    access,
    refresh: text(login, 'refresh_token'),
    signer: text(signer, 'access_token'),
    session: text(opened, 'access_token'),
    machine,
    minted: text(minted, 'access_token'),
    userKey: text(userKey, 'apiKey'),
    keyToken: text(keyToken, 'access_token'),
    machineKey: text(machineKey, 'apiKey'),
    appKey: text(appKey, 'apiKey'),
    web: sessionToken,
  }
  const keyIds = { user: text(userKey, 'keyId'), app: text(appKey, 'id') }
  /** Makes another person an owner, who then removes the first one. */
  async function removeOwner(): Promise<void> {
    const other = `${random()}@example.com`
    await pages.createAccount(other)
    const login = await pages.logIn(other)
    const headers = headersOf(login.sessionToken, login.session?.csrfToken)
    const { body } = await byOwner('PUT', '/admins', { email: other, role: 'owner' })
    const { id } = Object(body['invitation'])
    await call('POST', `/api/v1/invitations/${id}/accept`, { headers })
    await call('DELETE', `${app.path}/admins?accountId=${accountId}`, { headers })
  }
  const parts = { clientId, email, owner, app, values, keyIds, sessionToken }
  return { ...parts, redeem, token, byOwner, byBackend, removeOwner }
}

export type Lineage = Awaited<ReturnType<typeof createLineage>>
