import { TicketServiceService } from '../../proto/gen/ts-proto/tollgate/usage/v1/tickets.ts'
import { MeterServiceService } from '../../proto/gen/ts-proto/tollgate/usage/v1/meters.ts'
import { UsageServiceService } from '../../proto/gen/ts-proto/tollgate/usage/v1/usage.ts'
import type { Ledger } from '../allowances/ledger.ts'
import type { IdentityApi } from '../identity/module.ts'
import type { BackendApi } from '../metering/backend/module.ts'
import { findApp } from '../platform/clients.ts'
import type { AppId } from '../platform/ids.ts'
import type { Platform } from '../platform/platform.ts'
import { grpcService } from '../rpc/serve.ts'
import { createCursors } from './cursor.ts'
import { createFeed } from './feed/feed.ts'
import { createFollow } from './feed/follow.ts'
import { createHistory } from './history/history.ts'
import { createRuleFinder } from './history/rules.ts'
import { createMeters } from './meters/meters.ts'
import { createMetersRpc } from './meters/rpc.ts'
import { createUsageRpc } from './rpc.ts'
import { createUsage } from './service.ts'
import { type ExplainDeps, createExplain } from './tickets/explain.ts'
import { createTicketRpc } from './tickets/rpc.ts'
import { createUserFinder } from './users.ts'

export interface UsageOthers {
  readonly backend: BackendApi
  readonly identity: IdentityApi
  readonly ledger: Pick<Ledger, 'shareCharge'>
  readonly plans: ExplainDeps['plans']
  /** The cuts of apps. */
  readonly cuts: {
    readonly at: (app: AppId, instant: Date) => Promise<bigint | null>
    readonly list: ExplainDeps['listCuts']
  }
}

/** Usage: sums, single requests and sessions, and the live feed. */
export function createUsageModule(
  platform: Platform,
  { backend, identity: { users, owners }, ledger, plans, cuts }: UsageOthers,
) {
  const { requireMetering, isOpenMeter } = backend
  const { pool, log, metrics, now, clocks, invalidations, sealing, stopping } = platform
  const follow = createFollow({
    pool,
    feed: createFeed({ pool, log, metrics }),
    cursors: createCursors(sealing),
    now,
    stopping,
    ownerOf: owners.accountOf,
    watchUser: (user, changed) =>
      invalidations.watch(({ kind, id }) => {
        if (kind === 'user' && id === user) changed()
      }),
  })
  const { usageService } = createUsageRpc({
    usage: createUsage({ pool, users, clocks, now, platformCut: (app) => cuts.at(app, now()) }),
    history: createHistory({ pool, users, sealing, clocks, now }),
    follow,
    findUser: createUserFinder(users),
    findRules: createRuleFinder({ pool, plans }),
    requireMetering,
    openmeterConfigured: isOpenMeter,
  })
  const meters = createMeters({ pool, clocks, now, ...backend })
  const { meterService } = createMetersRpc({ ...backend, meters })
  const { explain, ticketService } = createTickets({ pool, requireMetering, ledger, plans, cuts })
  return {
    api: { explain },
    services: [
      grpcService(UsageServiceService, usageService),
      grpcService(TicketServiceService, ticketService),
      grpcService(MeterServiceService, meterService),
    ],
  }
}

export type UsageApi = ReturnType<typeof createUsageModule>['api']

function createTickets({
  pool,
  requireMetering,
  ledger: { shareCharge },
  plans,
  cuts,
}: Pick<UsageOthers, 'ledger' | 'plans' | 'cuts'> &
  Pick<Platform, 'pool'> &
  Pick<BackendApi, 'requireMetering'>) {
  const { explain } = createExplain({ pool, shareCharge, plans, listCuts: cuts.list })
  const findAppOf = (clientId: string) => findApp(pool, clientId)
  return { explain, ...createTicketRpc({ explain, findApp: findAppOf, requireMetering }) }
}
