import {
  EscrowServiceService,
  HoldServiceService,
} from '../../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import type { Users } from '../../identity/users/users.ts'
import { type Loop, type LoopOptions, startLoop } from '../../lib/loop.ts'
import type { MeteringApi } from '../../metering/module.ts'
import type { Lifecycle } from '../../module.ts'
import { findApp } from '../../shared/clients.ts'
import type { Shared } from '../../shared/shared.ts'
import { grpcService } from '../../rpc/serve.ts'
import type { EscrowConfig } from '../config.ts'
import type { Exposures } from '../exposure/exposure.ts'
import type { Accounts } from '../accounts/accounts.ts'
import { createEscrow } from './escrow.ts'
import { createHolds } from './holds.ts'
import { createLosses } from './losses.ts'
import { type OwnerRecallsDeps, createOwnerRecalls } from './owner-recalls.ts'
import { type EscrowFigures, type EscrowMeters, createEscrowMetrics } from './metrics.ts'
import { type ReleaseDeps, createRelease } from './release.ts'
import { createRetention } from './retention.ts'
import { createEscrowRpc } from './rpc.ts'
import { createEscrowService } from './service.ts'
import { escrowStore as store } from './store.ts'
import { heldMoney, secondsBehind } from './stores/hold-store.ts'
import * as ownerLeases from './stores/owner-lease-store.ts'

export interface EscrowOthers {
  readonly config: EscrowConfig
  readonly accounts: Pick<Accounts, 'lock' | 'save' | 'nextIncluded' | 'insertAdjustment'> & {
    readonly exposures: Exposures
  }
  readonly users: Users
  readonly metering: MeteringApi
}

const releasePauseMs = 1_000
const ownerPauseMs = 500

/** Lends money to sidecars, holds what they authorise, and releases what no ticket settles. */
export function createEscrowModule(shared: Shared, others: EscrowOthers) {
  const { config, accounts, users, metering } = others
  const { leaseSeconds, lostTickets, eventLagSeconds, holdMaxSeconds } = config
  const meters = createEscrowMetrics(shared.metrics, figuresOf(shared))
  const losses = createLosses({ store, insertAdjustment: accounts.insertAdjustment, lostTickets })
  const { exposures } = accounts
  const parts = { ...shared, store, ownerLeases, accounts, exposures, losses, meters, users }
  const rules = createEscrow({ ...parts, leaseSeconds, soldRates: metering.soldRates })
  const { boundRate } = metering
  const escrow = createEscrowService({ ...parts, escrow: rules, boundRate })
  const holds = createHolds({
    ...shared,
    users,
    findApp,
    times: { eventLagSeconds, holdMaxSeconds },
  })
  const { escrowService, holdService } = createEscrowRpc({ escrow, holds })

  return {
    api: { recall: rules.recall },
    services: [
      grpcService(EscrowServiceService, escrowService),
      grpcService(HoldServiceService, holdService),
    ],
    lifecycle: repeat(loopsOf({ ...parts, config, recall: rules.recall })),
    upkeep: [createRetention(shared).forgetUnused],
  }
}

type LoopParts = Pick<EscrowOthers, 'config'> &
  Pick<Shared, 'metrics'> &
  OwnerRecallsDeps &
  Omit<ReleaseDeps, 'leaseSeconds' | 'lagSeconds' | 'holdMaxSeconds' | 'onReleased'> & {
    readonly meters: EscrowMeters
  }

/** Frees what no ticket settles, and recalls what owners cannot pay for any more. */
function loopsOf({ config, ...parts }: LoopParts): LoopOptions[] {
  const { log, metrics, meters } = parts
  const { leaseSeconds, eventLagSeconds: lagSeconds, holdMaxSeconds } = config
  const times = { leaseSeconds, lagSeconds, holdMaxSeconds }
  const release = createRelease({ ...parts, ...times, onReleased: meters.ended })
  const { round } = createOwnerRecalls(parts)
  const pauseMs = Math.min(releasePauseMs, lagSeconds * 250)
  return [
    { name: 'release', log, metrics, pauseMs, round: release.round },
    { name: 'owner recalls', log, metrics, pauseMs: ownerPauseMs, round },
  ]
}

const figuresOf = ({ pool, now }: Shared): EscrowFigures => ({
  held: () => heldMoney(pool, now()),
  secondsBehind: () => secondsBehind(pool, now()),
})

/** Runs loops while core runs. */
function repeat(all: readonly LoopOptions[]): Lifecycle {
  let loops: readonly Loop[] = []
  return {
    start: () => {
      loops = all.map(startLoop)
    },
    stop: async () => void (await Promise.all(loops.map((loop) => loop.stop()))),
  }
}
