import { setTimeout as sleep } from 'node:timers/promises'
import { createLedger } from './allowances/ledger.ts'
import { createAllowancesModule } from './allowances/module.ts'
import { createCuts } from './billing/cuts.ts'
import { createBillingModule } from './billing/module.ts'
import { createBooksModule } from './books/module.ts'
import type { CoreConfig } from './config.ts'
import { createIdentityModule } from './identity/module.ts'
import { type Parts, partStates } from './lib/http.ts'
import { createKeysModule, keyCredentials } from './keys/module.ts'
import { createBackendModule } from './metering/backend/module.ts'
import { createMeteringModule } from './metering/module.ts'
import type { Module } from './module.ts'
import { createPlansModule } from './plans/module.ts'
import { createOperatorLog } from './platform/operator-log.ts'
import { createAuditModule } from './platform/audit-log/module.ts'
import { type Platform, type ProcessDeps, openPlatform } from './platform/platform.ts'
import { createSealingModule } from './platform/sealing/module.ts'
import { startUpkeep } from './platform/upkeep.ts'
import { startGrpcServer } from './rpc/server.ts'
import { createSignerModule, signerCredentials } from './signer/module.ts'
import { createTokensModule, tokenCredentials } from './tokens/module.ts'
import { createUsageModule } from './usage/module.ts'

const drainMs = 2_500
const closeMs = 300

/** Migrates, makes the modules and serves them. Rejects with one clear error when it cannot start. */
export async function startCore(config: CoreConfig, deps: ProcessDeps) {
  const opened = await openPlatform(config.platform, deps)
  const { platform } = opened
  const { modules, authenticator } = createModules(platform, config)
  const lifecycles = modules.flatMap(({ lifecycle }) => lifecycle ?? [])
  for (const { prepare } of lifecycles) await prepare?.()
  const services = modules.flatMap((module) => module.services)
  const operatorLog = createOperatorLog(platform)
  const serving = { ...platform, ...config.server, authenticator, operatorLog }
  const server = await startGrpcServer(services, serving)
  const steps = modules.flatMap((module) => module.upkeep ?? [])
  const upkeep = startUpkeep([...opened.upkeep, ...steps], platform.log)
  for (const { start } of lifecycles) await start?.()
  server.setServing(true)

  async function ready(): Promise<Parts> {
    const answers = await Promise.all(lifecycles.map(({ ready }) => ready?.()))
    return partStates(Object.assign(await opened.ready(), ...answers), ['database'])
  }

  /** Tells health checks first, lets running work finish for a bounded time, then closes the connections. */
  async function drain(): Promise<void> {
    server.setServing(false)
    opened.abort()
    const stops = lifecycles.toReversed().map(({ stop }) => stop?.())
    await Promise.race([
      Promise.all([server.stop(drainMs), upkeep.stop(), ...stops]),
      sleep(drainMs, undefined, { ref: false }),
    ])
    await opened.close(closeMs)
  }

  let stopped: Promise<void> | undefined
  const stop = (): Promise<void> => (stopped ??= drain())
  const host = config.server.host === '0.0.0.0' ? '127.0.0.1' : config.server.host
  return { target: `${host}:${server.port}`, port: server.port, ready, stop }
}

export type Core = Awaited<ReturnType<typeof startCore>>

/** Makes every module of core, each after those whose `api` it needs. */
function createModules(platform: Platform, config: CoreConfig) {
  const modules: Module<unknown>[] = []
  function add<Api>(module: Module<Api>): Api {
    modules.push(module)
    return module.api
  }
  // Made first: metering and plans, which stand before allowances, write to it in their own transactions.
  const ledger = createLedger()
  const cuts = createCuts(platform)
  const backend = add(createBackendModule(platform, { config: config.backend }))
  const selling = { require: async () => {} }
  const plans = add(createPlansModule(platform, { config: config.plans, ledger, selling }))
  const credentialIssuers = [keyCredentials, tokenCredentials, signerCredentials]
  const people = { config: config.identity, meteringMode: config.metering.mode, plans, backend }
  const identity = add(createIdentityModule(platform, { ...people, credentialIssuers }))
  const tickets = { config: config.metering, backend, ledger, plans, cuts, users: identity.users }
  const metering = add(createMeteringModule(platform, tickets))
  const spending = { config: config.escrow, ledger, backend, plans, identity, metering }
  const allowances = add(createAllowancesModule(platform, spending))
  const keys = add(createKeysModule(platform, { identity }))
  const credentials = { config: config.tokens, identity, allowances, keys }
  const tokens = add(createTokensModule(platform, credentials))
  add(createBillingModule(platform, { config: config.billing, cuts }))
  add(createUsageModule(platform, { backend, identity }))
  add(createBooksModule(platform, { config: config.books, metering, ledger, plans, cuts }))
  add(createSealingModule(platform, tokens))
  add(createAuditModule(platform))
  add(createSignerModule(platform, { ledger, metering, identity, keys, tokens }))
  return { modules, authenticator: tokens.authenticator }
}
