import { LossServiceService } from '../../proto/gen/ts-proto/tollgate/metering/v1/loss.ts'
import { MeteringServiceService } from '../../proto/gen/ts-proto/tollgate/metering/v1/metering.ts'
import { QuarantineServiceService } from '../../proto/gen/ts-proto/tollgate/metering/v1/quarantine.ts'
import type { Shared } from '../shared/shared.ts'
import { grpcService } from '../rpc/serve.ts'
import type { BackendApi } from './backend/module.ts'
import type { NamedUser, ResolveSubjects } from './batch/subjects.ts'
import type { MeteringConfig } from './config.ts'
import type { Charge } from './ingest/charges.ts'
import { conflictOnPoison, createManualIngest } from './ingest/manual-ingest.ts'
import { createPartitions } from './ingest/partition-store.ts'
import { createLossRpc } from './loss/rpc.ts'
import { createQuarantine } from './redrive/quarantine.ts'
import { createQuarantineRpc } from './redrive/rpc.ts'
import { createBoundRate } from './rates/bound-rate.ts'
import { createHoldingRate } from './rates/holding-rate.ts'
import { createRateLookup } from './rates/lookup.ts'
import { newestRate } from './rates/store.ts'
import type { Periods, RatingPorts } from './rating/port.ts'
import { createUnpricedCount } from './rates/unpriced.ts'
import { ticketRecords } from './records.ts'
import { createMeteringRpc } from './rpc.ts'
import { createMetering } from './service.ts'

export interface MeteringOthers {
  readonly config: MeteringConfig
  readonly backend: BackendApi
  /** Charges the cost of tickets to the users' balances. */
  readonly ledger: Periods & { readonly charge: Charge }
  /** Reads the prices that plan versions sell at. */
  readonly plans: RatingPorts['plans']
  /** Reads the platform's cuts per app. */
  readonly cuts: RatingPorts['cuts']
  /** Finds the users that tickets name, and provisions unknown ones. */
  readonly users: {
    readonly resolveSubjects: ResolveSubjects
    readonly refuseNewSubject: (user: NamedUser) => Promise<void>
  }
}

/** Turns events into unique, priced, charged tickets: from a stream, directly, or manually. */
export function createMeteringModule(shared: Shared, { backend, ...others }: MeteringOthers) {
  const { config, ledger, users } = others
  const { pool, now, log } = shared
  const { emitter, requireMetering } = backend
  const metering = createMetering({ ...shared, ...others, emitter })
  const manualIngest = createManualIngest({
    ...shared,
    charge: ledger.charge,
    emit: emitter?.emitPriced,
    resolveSubjects: users.resolveSubjects,
    partitions: createPartitions(pool, now),
    findRates: createRateLookup({ ...config.rates, now }),
    holdingRate: createHoldingRate(config.rates.marginPercent),
    rating: metering.rating,
  })
  const quarantine = createQuarantine({ ...shared, users, manualIngest, limits: config.tickets })
  const { quarantineService } = createQuarantineRpc({ quarantine, log })

  return {
    api: {
      usableRate: metering.usableRate,
      boundRate: createBoundRate({
        findRate: () => newestRate(pool),
        now,
        ...config.rates,
      }),
      /** Number of a user's tickets that wait for a price. */
      countUnpriced: createUnpricedCount(pool),
      manualIngest,
      signingLimits: config.tickets,
      conflictOnPoison,
      ticketRecords,
      /** Reads the prices of the plan versions of locked accounts. */
      soldRates: metering.rating.running,
    },
    services: [
      grpcService(MeteringServiceService, createMeteringRpc({ metering }).meteringService),
      grpcService(QuarantineServiceService, quarantineService),
      grpcService(LossServiceService, createLossRpc({ ...metering, requireMetering }).lossService),
    ],
    lifecycle: { start: metering.start, stop: metering.stop, ready: metering.ready },
  }
}

export type MeteringApi = ReturnType<typeof createMeteringModule>['api']
