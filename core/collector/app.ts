import type { FindPayingOwners } from '../balances/exposure/exposure.ts'
import { createCuts } from '../billing/cuts.ts'
import { createOwnerAccounts } from '../identity/platform-app/owner-accounts.ts'
import { createUsers } from '../identity/users/users.ts'
import type { EnvReader } from '../lib/env.ts'
import { settlesWithin } from '../lib/process.ts'
import { type Parts, partStates } from '../lib/http.ts'
import { type BackendConfig, readBackendConfig } from '../metering/backend/config.ts'
import { createEmitter } from '../metering/backend/emit.ts'
import { type MeteringConfig, readCollectingConfig } from '../metering/config.ts'
import { createMetering } from '../metering/service.ts'
import { openLedger } from '../open-ledger.ts'
import { planReads } from '../plans/offers/reads.ts'
import type { Resubscribe } from '../plans/subscriptions/ports.ts'
import { createPlans } from '../plans/service.ts'
import { type SharedBaseConfig, readSharedConfig } from '../shared/config.ts'
import { type ProcessDeps, openSharedBase } from '../shared/shared.ts'

export interface CollectorConfig {
  readonly shared: SharedBaseConfig
  readonly metering: MeteringConfig
  readonly backend: BackendConfig
}

/** Reads the settings of the collector, a subset of core's. Collects mistakes in `env.problems`. */
export const readCollectorConfig = (env: EnvReader): CollectorConfig => ({
  shared: readSharedConfig(env),
  metering: readCollectingConfig(env),
  backend: readBackendConfig(env),
})

const drainMs = 3_000
const closeMs = 500

/**
 * Runs only the part of core that collects events. It creates the services but not core's modules:
 * without gRPC, secrets and the issuer the process stays below 150 MB. Rejects with one clear error
 * if it cannot start.
 */
export async function startCollector(config: CollectorConfig, deps: ProcessDeps) {
  const opened = await openSharedBase(config.shared, { ...deps, name: 'tollgate-collector' })
  const { shared } = opened
  const resubscribe: Resubscribe = (db, lost) => users.resubscribe(db, lost)
  const findPayingOwners: FindPayingOwners = (db, apps) => ownerAccounts.payingOwners(db, apps)
  const { ledger } = openLedger(shared, { resubscribe, findPayingOwners })
  // The collector writes a backend's data to the outbox; core delivers it.
  const emitter = config.backend.name === 'openmeter' ? createEmitter() : undefined
  const plans = createPlans({
    ledger,
    clocks: shared.clocks,
    send: async (db, users) => emitter?.emitSubscribers(db, users, shared.now()),
  })
  const users = createUsers({
    ...shared,
    plans,
    credentialIssuers: [],
    emitCustomers: emitter?.emitCustomers,
  })
  const ownerAccounts = createOwnerAccounts({ ...shared, ...users })
  const metering = createMetering({
    ...shared,
    config: config.metering,
    users,
    ledger,
    plans: planReads,
    cuts: createCuts(shared),
    emitter,
    savesMemory: true,
  })
  await metering.start()

  async function ready(): Promise<Parts> {
    const answers = { ...(await opened.ready()), ...(await metering.ready()) }
    return partStates(answers, ['database', 'events'])
  }

  /**
   * Lets the current batch finish, and leaves the consumer group, so that other collectors take
   * over at once.
   */
  async function stop(): Promise<void> {
    await settlesWithin(metering.stop(), drainMs)
    await opened.close(closeMs)
  }

  const { topic = '', group = '' } = config.metering.kafka ?? {}
  return { ready, stop, summary: { topic, group } }
}
