import { TicketServiceService } from '../../proto/gen/ts-proto/tollgate/usage/v1/tickets.ts'
import { MeterServiceService } from '../../proto/gen/ts-proto/tollgate/usage/v1/meters.ts'
import { UsageServiceService } from '../../proto/gen/ts-proto/tollgate/usage/v1/usage.ts'
import type { IdentityApi } from '../identity/module.ts'
import type { BackendApi } from '../metering/backend/module.ts'
import { findApp } from '../shared/clients.ts'
import type { AppId } from '../shared/ids.ts'
import type { Shared } from '../shared/shared.ts'
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
  readonly ledger: ExplainDeps['ledger']
  readonly plans: ExplainDeps['plans']
  /** The cuts of apps. */
  readonly cuts: {
    readonly at: (app: AppId, instant: Date) => Promise<bigint | null>
    readonly list: ExplainDeps['listCuts']
  }
}

/** Usage: sums, single requests and sessions, and the live feed. */
export function createUsageModule(
  shared: Shared,
  { backend, identity: { users, owners }, ledger, plans, cuts }: UsageOthers,
) {
  const { requireMetering, isOpenMeter } = backend
  const { pool, read, log, metrics, now, clocks, invalidations, sealing, stopping } = shared
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
  const reading = { pool, read, users, clocks, now }
  const { usageService } = createUsageRpc({
    usage: createUsage({ ...reading, platformCut: (app) => cuts.at(app, now()) }),
    history: createHistory({ ...reading, sealing }),
    follow,
    findUser: createUserFinder(users),
    findRules: createRuleFinder({ pool, plans }),
    requireMetering,
    openmeterConfigured: isOpenMeter,
  })
  const meters = createMeters({ pool, read, clocks, now, ...backend })
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
  ledger,
  plans,
  cuts,
}: Pick<UsageOthers, 'ledger' | 'plans' | 'cuts'> &
  Pick<Shared, 'pool'> &
  Pick<BackendApi, 'requireMetering'>) {
  const { explain } = createExplain({ pool, ledger, plans, listCuts: cuts.list })
  const findAppOf = (clientId: string) => findApp(pool, clientId)
  return { explain, ...createTicketRpc({ explain, findApp: findAppOf, requireMetering }) }
}
