import { AccountServiceService } from '../../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import {
  AppServiceService,
  CallerServiceService,
  UserServiceService,
} from '../../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import {
  RegistrationServiceService,
  RegistrationTokenServiceService,
} from '../../proto/gen/ts-proto/tollgate/identity/v1/registrations.ts'
import { ManagementServiceService } from '../../proto/gen/ts-proto/tollgate/identity/v1/management.ts'
import { TenantServiceService } from '../../proto/gen/ts-proto/tollgate/identity/v1/tenants.ts'
import { RedirectUriServiceService } from '../../proto/gen/ts-proto/tollgate/identity/v1/redirects.ts'
import type { Mails } from '../mail/mails.ts'
import type { BackendApi } from '../metering/backend/module.ts'
import type { Plans } from '../plans/service.ts'
import type { Db } from '../lib/sql.ts'
import type { AppId } from '../shared/ids.ts'
import type { Shared } from '../shared/shared.ts'
import { grpcService } from '../rpc/serve.ts'
import { createAccounts } from './accounts/accounts.ts'
import { createIdentities } from './accounts/identities.ts'
import { createLoginRecords } from './accounts/log-in-records.ts'
import { type AppQuota, createAppQuota } from './accounts/app-quota.ts'
import { createAccountHandlers } from './accounts/rpc.ts'
import { createApps } from './apps/apps.ts'
import { type Clients, createClients } from './apps/clients.ts'
import type { MeteringMode } from './apps/store.ts'
import { createManagement } from './apps/management.ts'
import { createRedirectUris } from './apps/redirect-uris.ts'
import { createRedirectUrisRpc } from './apps/redirect-uris-rpc.ts'
import { createAppsRpc, createManagementHandlers } from './apps/rpc.ts'
import { createCallersRpc } from './callers/rpc.ts'
import type { IdentityConfig } from './config.ts'
import { createIssuersPart } from './issuers/module.ts'
import { isInvited } from './members/invitation-store.ts'
import { type Invitations, createInvitations } from './members/invitations.ts'
import { createInvitationHandlers, createOwnInvitationHandlers } from './members/invitations-rpc.ts'
import { createLoginPolicy } from './members/login-policy.ts'
import { type Members, createMembers } from './members/members.ts'
import { createMemberHandlers } from './members/rpc.ts'
import { openUserProvider } from './providers/open.ts'
import { createOwnerAccounts } from './platform-app/owner-accounts.ts'
import { createPlatformApp } from './platform-app/platform-app.ts'
import { createProvisioners } from './tenants/provisioners.ts'
import { createTenantsRpc } from './tenants/rpc.ts'
import { createTenants } from './tenants/tenants.ts'
import { createRegistrations } from './registrations/registrations.ts'
import { createRegistrationsRpc } from './registrations/rpc.ts'
import type { ActivationGate, CredentialIssuer, OwnByPlatform } from './types.ts'
import { createOwners } from './users/owners.ts'
import { createUsersRpc } from './users/rpc.ts'
import type { UsersDeps } from './users/create.ts'
import { createUsers } from './users/users.ts'

export { issuerCredentials } from './issuers/module.ts'
export { linkRequestDestination } from './accounts/link-requests.ts'
export { findOwnerUser } from './users/owners.ts'
export { findOwnerAccountUser } from './platform-app/owner-accounts.ts'

export interface IdentityOthers {
  /** How tickets reach this deployment. */
  readonly meteringMode: MeteringMode
  readonly config: IdentityConfig
  readonly mails: Mails
  readonly plans: Plans
  readonly backend: BackendApi
  readonly gate: ActivationGate
  readonly ownByPlatform: OwnByPlatform
  /** Throws CONFLICT for an app that must not be deleted now. */
  readonly requireDeletable: (db: Db, app: AppId) => Promise<void>
  /**
   * Domains that end credentials with their user or app, in the order in which they lock their
   * rows.
   */
  readonly credentialIssuers: readonly CredentialIssuer[]
  readonly collectFinal: UsersDeps['collectFinal']
}

/** Apps with their clients, end users, and the dashboard's accounts and members. */
export function createIdentityModule(shared: Shared, others: IdentityOthers) {
  const { config, backend, credentialIssuers } = others
  const { revocationBoundSeconds } = shared.config
  const clients = createClients({ ...shared, ...config })
  const { accounts, accountService, ...team } = createPeople(shared, others)
  const emitCustomers = backend.emitter?.emitCustomers
  const users = createUsers({ ...shared, ...others, emitCustomers })
  const owners = createOwners({ ...shared, users })
  const ownerAccounts = createOwnerAccounts({ ...shared, ...users })
  const platformApp = createPlatformApp({ ...shared, ...others, ...config })
  const userProvider = openUserProvider(shared, config.userProvider)
  const { userService } = createUsersRpc({ ...shared, users, revocationBoundSeconds })
  const { appService, managementService, redirectUriService } = createAppServices(shared, others, {
    ...team,
    clients,
  })
  const loginPolicy = createLoginPolicy(shared)
  const tenants = createTenants({ ...shared, clients, credentialIssuers })
  const provisioners = createProvisioners({ ...shared, clients, tenants })
  const { foreignTokens, services } = createIssuersPart(shared, { ...config, clients, users })
  const people = { clients, accounts, users, owners, userProvider, loginPolicy, provisioners }
  const registrations = createRegistrationServices(shared, others, clients)

  return {
    api: { ...people, ownerAccounts, foreignTokens },
    services: [
      grpcService(AppServiceService, appService),
      grpcService(CallerServiceService, createCallersRpc(backend).callerService),
      grpcService(UserServiceService, userService),
      grpcService(AccountServiceService, accountService),
      grpcService(ManagementServiceService, managementService),
      grpcService(RedirectUriServiceService, redirectUriService),
      grpcService(TenantServiceService, createTenantsRpc({ tenants }).tenantService),
      ...services,
      ...registrations.services,
    ],
    lifecycle: { prepare: platformApp.prepare },
    upkeep: [accounts.deleteExpired, team.invitations.deleteExpired, ...registrations.upkeep],
  }
}

/** Dynamic client registration. */
function createRegistrationServices(shared: Shared, { config }: IdentityOthers, clients: Clients) {
  const registrations = createRegistrations({ ...shared, ...config })
  const rpcs = createRegistrationsRpc({ registrations, clients })
  return {
    services: [
      grpcService(RegistrationServiceService, rpcs.registrationService),
      grpcService(RegistrationTokenServiceService, rpcs.registrationTokenService),
    ],
    upkeep: [registrations.endUnused],
  }
}

/** People who sign in to the dashboard. */
function createPeople(shared: Shared, { config, credentialIssuers, mails }: IdentityOthers) {
  const records = createLoginRecords(shared)
  const idleSeconds = config.sessionIdleSeconds
  const quota = createAppQuota({ ...shared, ...config })
  const invitations = createInvitations({ ...shared, quota, mails })
  const { signUp } = config
  const accounts = createAccounts({ ...shared, idleSeconds, records, mails, signUp, isInvited })
  const identities = createIdentities({ ...shared, ...config, accounts, records })
  const members = createMembers({ ...shared, invitations, credentialIssuers })
  const { appCreation } = config
  const accountService = {
    ...createAccountHandlers({ accounts, identities, quota, appCreation }),
    ...createOwnInvitationHandlers(invitations, accounts),
  }
  return { accounts, quota, invitations, members, accountService }
}

export type IdentityApi = ReturnType<typeof createIdentityModule>['api']

interface AppParts {
  readonly clients: Clients
  readonly quota: AppQuota
  readonly invitations: Invitations
  readonly members: Members
}

function createAppServices(
  shared: Shared,
  {
    config: { starterUsdMicros, appCreation },
    meteringMode,
    plans,
    credentialIssuers,
    ownByPlatform,
    requireDeletable,
  }: IdentityOthers,
  { clients, quota, invitations, members }: AppParts,
) {
  const { publicUrl, issuer, defaultSignerUrl } = shared.config
  const { putOwner } = members
  const apps = createApps({ ...shared, plans, quota, ownByPlatform, putOwner })
  const redirectUris = createRedirectUris(shared)
  const managing = { clients, credentialIssuers, meteringMode, requireDeletable }
  const management = createManagement({ ...shared, ...managing })
  const deployment = { defaultDmzUrl: defaultSignerUrl, meteringMode }
  return {
    ...createRedirectUrisRpc({ redirectUris }),
    ...createAppsRpc({ apps, clients, starterUsdMicros }),
    managementService: {
      ...createManagementHandlers({
        apps,
        management,
        idempotency: shared.idempotency,
        starterUsdMicros,
        appCreation,
        routing: { publicUrl, issuer, ...deployment },
      }),
      ...createMemberHandlers(members, invitations),
      ...createInvitationHandlers(invitations),
    },
  }
}
