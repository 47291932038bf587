import {
  EscrowServiceService,
  HoldServiceService,
} from '../../../proto/gen/ts-proto/tollgate/allowances/v1/escrow.ts'
import type { Users } from '../../identity/users/users.ts'
import { type Loop, type LoopOptions, startLoop } from '../../lib/loop.ts'
import type { MeteringApi } from '../../metering/module.ts'
import type { Lifecycle } from '../../module.ts'
import { findApp } from '../../platform/clients.ts'
import type { Platform } from '../../platform/platform.ts'
import { grpcService } from '../../rpc/serve.ts'
import type { EscrowConfig } from '../config.ts'
import { createExposures } from '../exposure/exposure.ts'
import type { Ledger } from '../ledger.ts'
import { createEscrow } from './escrow.ts'
import { createHolds } from './holds.ts'
import { createLosses } from './losses.ts'
import { type EscrowFigures, createEscrowMetrics } from './metrics.ts'
import { createRelease } from './release.ts'
import { createRetention } from './retention.ts'
import { createEscrowRpc } from './rpc.ts'
import { createEscrowService } from './service.ts'
import { escrowStore as store } from './store.ts'
import { heldMoney, secondsBehind } from './stores/hold-store.ts'

export interface EscrowOthers {
  readonly config: EscrowConfig
  readonly ledger: Ledger
  readonly users: Users
  readonly metering: MeteringApi
}

const releasePauseMs = 1_000

/** Lends money to sidecars, holds what they authorise, and releases what no ticket settles. */
export function createEscrowModule(platform: Platform, others: EscrowOthers) {
  const { pool, log } = platform
  const { config, ledger, users, metering } = others
  const { leaseSeconds, eventLagSeconds: lagSeconds, holdMaxSeconds, lostTickets } = config
  const meters = createEscrowMetrics(platform.metrics, figuresOf(platform))
  const losses = createLosses({ store, insertAdjustment: ledger.insertAdjustment, lostTickets })
  const parts = { ...platform, store, accounts: ledger, losses, meters, users }
  const exposures = createExposures({ defaultMax: config.unpaidNetworkMax })
  const rules = createEscrow({ ...parts, leaseSeconds, soldRates: metering.soldRates, exposures })
  const { boundRate } = metering
  const escrow = createEscrowService({ ...parts, escrow: rules, boundRate })
  const release = createRelease({
    ...parts,
    leaseSeconds,
    lagSeconds,
    holdMaxSeconds,
    onReleased: meters.ended,
  })
  const holds = createHolds({ pool, users, findApp })
  const { escrowService, holdService } = createEscrowRpc({ escrow, holds })

  return {
    api: { recall: rules.recall },
    services: [
      grpcService(EscrowServiceService, escrowService),
      grpcService(HoldServiceService, holdService),
    ],
    lifecycle: repeat(release.round, {
      name: 'release',
      log,
      pauseMs: Math.min(releasePauseMs, lagSeconds * 250),
    }),
    upkeep: [createRetention(platform).forgetUnused],
  }
}

const figuresOf = ({ pool, now }: Platform): EscrowFigures => ({
  held: () => heldMoney(pool, now()),
  secondsBehind: () => secondsBehind(pool, now()),
})

/** Runs rounds while core runs. */
function repeat(round: LoopOptions['round'], options: Omit<LoopOptions, 'round'>): Lifecycle {
  let loop: Loop | undefined
  return {
    start: () => {
      loop = startLoop({ ...options, round })
    },
    stop: async () => loop?.stop(),
  }
}
