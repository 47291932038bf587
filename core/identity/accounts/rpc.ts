import type * as pb from '../../../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import { parseCursor, parseLimit } from '../../shared/cursor.ts'
import { callerName } from '../../rpc/callers.ts'
import {
  gatewayCaller,
  operator,
  operatorWrite,
  orOperator,
  platformAdmin,
} from '../../rpc/guards.ts'
import { rpc } from '../../rpc/serve.ts'
import type { AppCreation } from '../config.ts'
import type { Accounts } from './accounts.ts'
import type { AppQuota } from './app-quota.ts'
import type { PasswordCredential } from './passwords.ts'
import type { LiveSession } from './sessions.ts'
import type { Identities } from './identities.ts'

export interface AccountsDeps {
  readonly accounts: Accounts
  readonly identities: Identities
  readonly quota: AppQuota
  readonly appCreation: AppCreation
}

/** The RPCs of AccountService, without those about invitations. */
export function createAccountHandlers(deps: AccountsDeps) {
  const { accounts, quota } = deps
  return {
    ...createLoginHandlers(deps),
    ...createSignUpHandlers(accounts),
    createAccount: rpc(operatorWrite(), async (request: pb.CreateAccountRequest, _, context) =>
      accounts.create(
        {
          email: request.email,
          password: request.password,
          name: request.name,
          isPlatformAdmin: request.isPlatformAdmin,
        },
        context,
      ),
    ),
    updateAccount: rpc(operatorWrite(), async (request: pb.UpdateAccountRequest, _, context) => ({
      account: await accounts.change(request, context),
    })),
    ...createQuotaHandlers(quota),
    listAccounts: rpc(operator(), async ({ limit, cursor }: pb.ListAccountsRequest) => {
      const { items, nextCursor } = await accounts.list(parseCursor(cursor), parseLimit(limit))
      return {
        accounts: items.map(({ createdAt, ...account }) => ({
          account,
          createdAt: createdAt.toISOString(),
        })),
        nextCursor,
      }
    }),
    startPasswordReset: rpc(
      operatorWrite(),
      async ({ email }: pb.StartPasswordResetRequest, _, context) => {
        const { token, expiresAt } = await accounts.startReset(email, context)
        return { token, expiresAt: expiresAt.toISOString() }
      },
    ),
    requestPasswordReset: rpc(
      gatewayCaller(),
      async ({ email }: pb.RequestPasswordResetRequest, _, context) => {
        await accounts.requestReset(email, context)
        return {}
      },
    ),
    checkPasswordReset: rpc(gatewayCaller(), async ({ token }: pb.CheckPasswordResetRequest) => {
      await accounts.checkReset(token)
      return {}
    }),
    resetPassword: rpc(gatewayCaller(), async (request: pb.ResetPasswordRequest, _, context) => {
      await accounts.reset(request.token, request.password, context)
      return {}
    }),
  }
}

const createSignUpHandlers = (accounts: Accounts) => ({
  getSignUp: rpc(gatewayCaller(), async (_request: pb.GetSignUpRequest) => ({
    mode: accounts.signUpMode(),
  })),
  requestSignUp: rpc(gatewayCaller(), async ({ email }: pb.RequestSignUpRequest, _, context) => {
    await accounts.requestSignUp(email, context)
    return {}
  }),
  checkSignUp: rpc(gatewayCaller(), async ({ token }: pb.CheckSignUpRequest) => ({
    email: await accounts.checkSignUp(token),
  })),
  completeSignUp: rpc(gatewayCaller(), async (request: pb.CompleteSignUpRequest, _, context) =>
    renderLogin(await accounts.completeSignUp(request, context)),
  ),
})

const createQuotaHandlers = (quota: AppQuota) => ({
  getAccountQuota: rpc(
    orOperator(platformAdmin(), operator()),
    async ({ email }: pb.GetAccountQuotaRequest) => quota.read(email),
  ),
  updateAccountQuota: rpc(
    orOperator(platformAdmin(), operatorWrite()),
    async ({ email, appsMax }: pb.UpdateAccountQuotaRequest, caller, { correlationId }) =>
      quota.change(email, appsMax ?? null, { name: callerName(caller), correlationId }),
  ),
})

const createLoginHandlers = ({
  accounts,
  identities,
  appCreation,
}: Pick<AccountsDeps, 'accounts' | 'identities' | 'appCreation'>) => ({
  logIn: rpc(gatewayCaller(), async (request: pb.LogInRequest, _, context) =>
    renderLogin(await accounts.logIn(credentialOf(request), context)),
  ),
  logInWithIdentity: rpc(
    gatewayCaller(),
    async (request: pb.LogInWithIdentityRequest, _, context) => {
      const { session, link } = await identities.logIn(request, context)
      return session
        ? renderLogin(session)
        : { sessionToken: '', session: undefined, linkToken: link?.token, linkEmail: link?.email }
    },
  ),
  linkIdentity: rpc(gatewayCaller(), async (request: pb.LinkIdentityRequest, _, context) =>
    renderLogin(
      await identities.link({ token: request.linkToken, ...credentialOf(request) }, context),
    ),
  ),
  logOut: rpc(gatewayCaller(), async (request: pb.LogOutRequest) => {
    await accounts.logOut(request.sessionToken)
    return {}
  }),
  logOutEverywhere: rpc(
    gatewayCaller(),
    async ({ sessionToken }: pb.LogOutEverywhereRequest, _, context) => {
      await accounts.logOutEverywhere(sessionToken, context)
      return {}
    },
  ),
  getSession: rpc(gatewayCaller(), async (request: pb.GetSessionRequest) => {
    const session = await accounts.session(request.sessionToken)
    const canCreateApps = session.account.isPlatformAdmin || appCreation === 'accounts'
    return { session: render(session), canCreateApps }
  }),
})

const credentialOf = ({
  email,
  password,
  source,
  isKnownDevice,
}: pb.LogInRequest | pb.LinkIdentityRequest): PasswordCredential => ({
  email,
  password,
  place: { source, isKnown: isKnownDevice ?? false },
})

const renderLogin = ({ token, session }: { token: string; session: LiveSession }) => ({
  sessionToken: token,
  session: render(session),
})

const render = ({ account, csrfToken, authTime, expiresAt }: LiveSession) => ({
  account,
  csrfToken,
  authTime: authTime.toISOString(),
  expiresAt: expiresAt.toISOString(),
})
