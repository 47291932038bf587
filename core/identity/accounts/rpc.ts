import type * as pb from '../../../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import { operator, serviceCaller } from '../../rpc/callers.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import type { Accounts, LiveSession } from './accounts.ts'

export function createAccountsRpc({ accounts }: { accounts: Accounts }) {
  const accountService: Handlers<pb.AccountServiceServer> = {
    logIn: rpc(serviceCaller(), async (request: pb.LogInRequest) =>
      renderLogin(await accounts.logIn(request.email, request.password)),
    ),
    logInWithIdentity: rpc(serviceCaller(), async (request: pb.LogInWithIdentityRequest) =>
      renderLogin(await accounts.logInWithIdentity(request)),
    ),
    logOut: rpc(serviceCaller(), async (request: pb.LogOutRequest) => {
      await accounts.logOut(request.sessionToken)
      return {}
    }),
    getSession: rpc(serviceCaller(), async (request: pb.GetSessionRequest) => ({
      session: render(await accounts.session(request.sessionToken)),
    })),
    createAccount: rpc(operator(), async (request: pb.CreateAccountRequest) =>
      accounts.create({
        email: request.email,
        password: request.password,
        name: request.name,
        isPlatformAdmin: request.isPlatformAdmin,
      }),
    ),
    startPasswordReset: rpc(operator(), async (request: pb.StartPasswordResetRequest) => {
      const { token, expiresAt } = await accounts.startReset(request.email)
      return { token, expiresAt: expiresAt.toISOString() }
    }),
    resetPassword: rpc(serviceCaller(), async (request: pb.ResetPasswordRequest) => {
      await accounts.reset(request.token, request.password)
      return {}
    }),
  }
  return { accountService }
}

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
