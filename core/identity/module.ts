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
import { OperatorAppServiceService } from '../../proto/gen/ts-proto/tollgate/identity/v1/operators.ts'
import type { BackendApi } from '../metering/backend/module.ts'
import type { Plans } from '../plans/service.ts'
import type { Platform } from '../platform/platform.ts'
import { grpcService } from '../rpc/serve.ts'
import { createAccounts } from './accounts/accounts.ts'
import { createIdentities } from './accounts/identities.ts'
import { createLoginRecords } from './accounts/log-in-records.ts'
import { createAccountsRpc } from './accounts/rpc.ts'
import { createApps } from './apps/apps.ts'
import { type Clients, createClients } from './apps/clients.ts'
import type { MeteringMode } from './apps/store.ts'
import { createLoginPolicy } from './apps/login-policy.ts'
import { createManagement } from './apps/management.ts'
import { type AppQuota, createAppQuota } from './apps/quota.ts'
import { createRedirectUris } from './apps/redirect-uris.ts'
import { createAppsRpc, createManagementRpc } from './apps/rpc.ts'
import { createCallersRpc } from './callers/rpc.ts'
import type { IdentityConfig } from './config.ts'
import { type Invitations, createInvitations } from './invitations/invitations.ts'
import { createIssuersPart } from './issuers/module.ts'
import { type Members, createMembers } from './members/members.ts'
import { createOperatorsRpc } from './operators/rpc.ts'
import { openUserProvider } from './providers/open.ts'
import { createProvisioners } from './tenants/provisioners.ts'
import { createTenantsRpc } from './tenants/rpc.ts'
import { createTenants } from './tenants/tenants.ts'
import { createRegistrations } from './registrations/registrations.ts'
import { createRegistrationsRpc } from './registrations/rpc.ts'
import type { ActivationGate, CredentialIssuer, OwnByPlatform } from './types.ts'
import { createOwners } from './users/owners.ts'
import { createUsersRpc } from './users/rpc.ts'
import { type Users, createUsers } from './users/users.ts'

export { issuerCredentials } from './issuers/module.ts'
export { findOwnerUser } from './users/owners.ts'

export interface IdentityOthers {
  /** How tickets reach this deployment. */
  readonly meteringMode: MeteringMode
  readonly config: IdentityConfig
  readonly plans: Plans
  readonly backend: BackendApi
  readonly gate: ActivationGate
  readonly ownByPlatform: OwnByPlatform
  /**
   * Domains that end credentials with their user or app, in the order in which they lock their
   * rows.
   */
  readonly credentialIssuers: readonly CredentialIssuer[]
}

/** Apps with their clients, end users, and the dashboard's accounts and members. */
export function createIdentityModule(platform: Platform, others: IdentityOthers) {
  const { config, plans, backend, gate, credentialIssuers } = others
  const { pool, now, log, secrets, invalidations, grants } = platform
  const { revocationBoundSeconds } = platform.config
  const clients = createClients({ ...config, pool, secrets, now })
  const { accounts, accountService, ...team } = createPeople(platform, others)
  const emitCustomers = backend.emitter?.emitCustomers
  const ending = { invalidations, grants, credentialIssuers }
  const users = createUsers({ ...ending, pool, plans, gate, log, now, emitCustomers })
  const owners = createOwners({ pool, users })
  const userProvider = openUserProvider(platform, config.userProvider)
  const { userService } = createUsersRpc({ users, revocationBoundSeconds })
  const { appService, managementService, operatorAppService } = createAppServices(
    platform,
    others,
    { ...team, clients, users },
  )
  const loginPolicy = createLoginPolicy({ pool })
  const tenants = createTenants({ ...ending, pool, secrets, clients, now })
  const provisioners = createProvisioners({ pool, clients, tenants })
  const { foreignTokens, services } = createIssuersPart(platform, { ...config, clients, users })
  const people = { clients, accounts, users, owners, userProvider, loginPolicy, provisioners }
  const registrations = createRegistrationServices(platform, others, clients)

  return {
    api: { ...people, foreignTokens },
    services: [
      grpcService(AppServiceService, appService),
      grpcService(CallerServiceService, createCallersRpc(backend).callerService),
      grpcService(UserServiceService, userService),
      grpcService(AccountServiceService, accountService),
      grpcService(ManagementServiceService, managementService),
      grpcService(OperatorAppServiceService, operatorAppService),
      grpcService(TenantServiceService, createTenantsRpc({ tenants }).tenantService),
      ...services,
      ...registrations.services,
    ],
    upkeep: [accounts.deleteExpired, team.invitations.deleteExpired, ...registrations.upkeep],
  }
}

/** Dynamic client registration. */
function createRegistrationServices(
  platform: Platform,
  { config }: IdentityOthers,
  clients: Clients,
) {
  const registrations = createRegistrations({ ...platform, ...config })
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
function createPeople(platform: Platform, { config, credentialIssuers }: IdentityOthers) {
  const { pool, now, grants } = platform
  const records = createLoginRecords(platform)
  const idleSeconds = config.sessionIdleSeconds
  const accounts = createAccounts({ pool, grants, now, idleSeconds, records })
  const quota = createAppQuota({ ...config, pool, now })
  const invitations = createInvitations({ pool, quota, now })
  const identities = createIdentities({ ...config, pool, now, accounts, records })
  const members = createMembers({ pool, grants, now, invitations, credentialIssuers })
  const { accountService } = createAccountsRpc({ accounts, identities, quota, invitations })
  return { accounts, quota, invitations, members, accountService }
}

export type IdentityApi = ReturnType<typeof createIdentityModule>['api']

interface AppParts {
  readonly clients: Clients
  readonly quota: AppQuota
  readonly invitations: Invitations
  readonly members: Members
  readonly users: Users
}

function createAppServices(
  platform: Platform,
  {
    config: { starterUsdMicros, appCreation },
    meteringMode,
    plans,
    credentialIssuers,
    ownByPlatform,
  }: IdentityOthers,
  { clients, quota, invitations, members, users }: AppParts,
) {
  const { pool, now, secrets, idempotency, grants, config } = platform
  const { publicUrl, issuer, defaultSignerUrl, revocationBoundSeconds } = config
  const ending = { grants, credentialIssuers }
  const apps = createApps({ pool, plans, secrets, quota, ownByPlatform, now })
  const redirectUris = createRedirectUris({ pool, now })
  const management = createManagement({
    ...ending,
    pool,
    clients,
    idempotency,
    meteringMode,
    now,
  })
  const deployment = { defaultDmzUrl: defaultSignerUrl, meteringMode }
  const tenancy = { clients, users, members, invitations, redirectUris, revocationBoundSeconds }
  return {
    ...createOperatorsRpc({ ...tenancy, management, deployment }),
    ...createAppsRpc({ apps, clients, starterUsdMicros }),
    ...createManagementRpc({
      apps,
      management,
      members,
      invitations,
      starterUsdMicros,
      appCreation,
      routing: { publicUrl, issuer, ...deployment },
    }),
  }
}
