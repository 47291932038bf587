import { EscrowServiceService } from '../../../proto/gen/ts-proto/tollgate/allowances/v1/escrow.ts'
import type { Users } from '../../identity/users/users.ts'
import { type Loop, startLoop } from '../../lib/loop.ts'
import type { MeteringApi } from '../../metering/module.ts'
import type { Platform } from '../../platform/platform.ts'
import { grpcService } from '../../rpc/serve.ts'
import type { EscrowConfig } from '../config.ts'
import type { Ledger } from '../ledger.ts'
import { createEscrow } from './escrow.ts'
import { createLosses } from './losses.ts'
import { type EscrowFigures, createEscrowMetrics } from './metrics.ts'
import { createRelease } from './release.ts'
import { createEscrowRpc } from './rpc.ts'
import { createEscrowService } from './service.ts'
import { escrowStore } from './store.ts'
import { heldMoney, secondsBehind } from './stores/hold-store.ts'

export interface EscrowOthers {
  readonly config: EscrowConfig
  readonly ledger: Ledger
  readonly users: Users
  readonly metering: MeteringApi
}

const releasePauseMs = 1_000

/** The part of allowances that lends money to sidecars, holds what they authorise, and releases what no ticket settles. */
export function createEscrowModule(
  platform: Platform,
  { config, ledger, ...others }: EscrowOthers,
) {
  const { pool, log, now, invalidations, metrics } = platform
  const { leaseSeconds, eventLagSeconds, holdMaxSeconds, lostTickets } = config
  const meters = createEscrowMetrics(metrics, figuresOf(platform))
  const { insertAdjustment } = ledger
  const losses = createLosses({ store: escrowStore, insertAdjustment, lostTickets })
  const parts = { store: escrowStore, accounts: ledger, losses }
  const rules = createEscrow({ ...parts, leaseSeconds })
  const escrow = createEscrowService({
    pool,
    escrow: rules,
    users: others.users,
    boundRate: others.metering.boundRate,
    invalidations,
    meters,
    log,
    now,
  })
  const { round } = createRelease({
    ...parts,
    pool,
    lagSeconds: eventLagSeconds,
    holdMaxSeconds,
    now,
    onReleased: meters.ended,
  })
  const pauseMs = Math.min(releasePauseMs, eventLagSeconds * 250)
  let loop: Loop | undefined

  return {
    api: { recall: rules.recall },
    services: [grpcService(EscrowServiceService, createEscrowRpc({ escrow }).escrowService)],
    lifecycle: {
      start: () => {
        loop = startLoop({ name: 'release', log, pauseMs, round })
      },
      stop: async () => loop?.stop(),
    },
  }
}

const figuresOf = ({ pool, now }: Platform): EscrowFigures => ({
  held: () => heldMoney(pool, now()),
  secondsBehind: () => secondsBehind(pool, now()),
})
