import type { ServiceDefinition } from '@grpc/grpc-js'
import * as identity from '../../../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import * as accounts from '../../../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import * as management from '../../../proto/gen/ts-proto/tollgate/identity/v1/management.ts'
import * as issuers from '../../../proto/gen/ts-proto/tollgate/identity/v1/issuers.ts'
import * as registrations from '../../../proto/gen/ts-proto/tollgate/identity/v1/registrations.ts'

export const clientId = 'app_0123456789abcdef01234567'

export const at = '2026-01-02T03:04:05.000Z'

export const user: identity.User = {
  id: '6f1c2f2e-1d3c-4c55-9a52-0a9c5f1b7e11',
  clientId,
  externalUserId: 'ada',
  email: 'ada@example.com',
  status: 'active',
  createdAt: at,
  updatedAt: at,
  deactivatedAt: undefined,
  role: 'user',
}

const registered = registrations.RegisteredClient.fromPartial({
  registeredClientId: 'dyn_0123456789abcdef01234567',
  redirectUris: ['https://client.example/callback'],
  grantTypes: ['authorization_code'],
  scope: 'openid',
  clientName: 'An agent',
  createdAt: at,
  registrationAccessToken: 'svc_ra_x',
})

export const answers = {
  checkCaller: {} satisfies identity.CheckCallerResponse,
  findApp: { clientId } satisfies identity.FindAppResponse,
  checkOrigin: { allowed: false } satisfies management.CheckOriginResponse,
  getSession: {
    session: {
      account: { id: 'a-1', email: 'ada@example.com', name: 'Ada', isPlatformAdmin: false },
      csrfToken: 'csrf',
      authTime: at,
      expiresAt: at,
    },
    canCreateApps: false,
  } satisfies accounts.GetSessionResponse,
  requestPasswordReset: {} satisfies accounts.RequestPasswordResetResponse,
  getSignUp: { mode: 'off' } satisfies accounts.GetSignUpResponse,
  requestSignUp: {} satisfies accounts.RequestSignUpResponse,
  logIn: { sessionToken: 'a-session', session: undefined } satisfies accounts.LogInResponse,
  upsertUser: { user, created: true } satisfies identity.UpsertUserResponse,
  updateUser: { user } satisfies identity.UpdateUserResponse,
  deactivateUser: {
    user: { ...user, status: 'inactive', deactivatedAt: at },
    effectiveBy: at,
  } satisfies identity.DeactivateUserResponse,
  listUsers: {
    users: [user, { ...user, email: undefined }],
    nextCursor: 'next',
  } satisfies identity.ListUsersResponse,
  registerClient: { client: registered } satisfies registrations.RegisterClientResponse,
  getRegistration: { client: registered } satisfies registrations.GetRegistrationResponse,
  updateRegistration: { client: registered } satisfies registrations.UpdateRegistrationResponse,
  deleteRegistration: {} satisfies registrations.DeleteRegistrationResponse,
}

export const services: ServiceDefinition[] = [
  identity.AppServiceService,
  identity.CallerServiceService,
  identity.UserServiceService,
  accounts.AccountServiceService,
  management.ManagementServiceService,
  issuers.TrustedIssuerServiceService,
  registrations.RegistrationServiceService,
]
