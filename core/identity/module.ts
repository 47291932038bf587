import { AccountServiceService } from '../../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import {
  AppServiceService,
  CallerServiceService,
  UserServiceService,
} from '../../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import { ManagementServiceService } from '../../proto/gen/ts-proto/tollgate/identity/v1/management.ts'
import type { BackendApi } from '../metering/backend/module.ts'
import type { Plans } from '../plans/service.ts'
import type { Platform } from '../platform/platform.ts'
import { grpcService } from '../rpc/serve.ts'
import { createAccounts } from './accounts/accounts.ts'
import { createAccountsRpc } from './accounts/rpc.ts'
import { createApps } from './apps/apps.ts'
import { createManagement } from './apps/management.ts'
import { createManagementRpc } from './apps/management-rpc.ts'
import type { IdentityConfig } from './config.ts'
import { createMembers } from './members/members.ts'
import { createIdentityRpc } from './rpc.ts'
import { createUsers } from './users/users.ts'

export interface IdentityOthers {
  readonly config: IdentityConfig
  readonly plans: Plans
  readonly backend: BackendApi
}

/** Apps with their clients, end users, and the accounts and members of the dashboard. */
export function createIdentityModule(
  platform: Platform,
  { config, plans, backend }: IdentityOthers,
) {
  const { pool, now, log, secrets, idempotency, invalidations } = platform
  const { revocationBoundSeconds, publicUrl, issuer, defaultSignerUrl } = platform.config
  const { starterUsdMicros, secretOverlapSeconds } = config
  const apps = createApps({ pool, plans, secrets, now })
  const accounts = createAccounts({ pool, now, idleSeconds: config.sessionIdleSeconds })
  const emitCustomer = backend.emitter?.emitCustomer
  const users = createUsers({ pool, plans, invalidations, log, now, emitCustomer })
  const { appService, callerService, userService } = createIdentityRpc({
    apps,
    users,
    starterUsdMicros,
    revocationBoundSeconds,
    requireMetering: backend.requireMetering,
  })
  const { managementService } = createManagementRpc({
    apps,
    management: createManagement({
      pool,
      secrets,
      idempotency,
      invalidations,
      secretOverlapSeconds,
      now,
    }),
    members: createMembers({ pool, now }),
    starterUsdMicros,
    routing: { publicUrl, issuer, defaultDmzUrl: defaultSignerUrl },
  })

  return {
    api: { apps, accounts, users },
    services: [
      grpcService(AppServiceService, appService),
      grpcService(CallerServiceService, callerService),
      grpcService(UserServiceService, userService),
      grpcService(AccountServiceService, createAccountsRpc({ accounts }).accountService),
      grpcService(ManagementServiceService, managementService),
    ],
    upkeep: [accounts.forgetEnded],
  }
}

export type IdentityApi = ReturnType<typeof createIdentityModule>['api']
