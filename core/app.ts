import { setTimeout as sleep } from 'node:timers/promises'
import { openProcessor } from './billing/processor/open.ts'
import type { CoreConfig } from './config.ts'
import { type Parts, partStates } from './lib/http.ts'
import { type OutsideParts, createModules } from './modules.ts'
import { createOperatorLog } from './shared/operator-log.ts'
import { type ProcessDeps, openShared } from './shared/shared.ts'
import { startUpkeep } from './shared/upkeep.ts'
import { readinessService } from './rpc/readiness.ts'
import { startGrpcServer } from './rpc/server.ts'

const drainMs = 2_500
const closeMs = 300

export interface CoreDeps extends ProcessDeps, OutsideParts {
  /** Milliseconds between rounds of upkeep. Default is a minute. */
  readonly upkeepMs?: number
}

/**
 * Migrates the database, creates the modules and serves them. Rejects with one clear error if core
 * cannot start.
 */
export async function startCore(config: CoreConfig, deps: CoreDeps) {
  const opened = await openShared(config.shared, deps)
  const { shared } = opened
  const processor = deps.processor ?? (await openProcessor(config.billing.processor, shared.now))
  const outside = { ...deps, processor }
  const { modules, authenticator } = createModules(shared, config, outside)
  const lifecycles = modules.flatMap(({ lifecycle }) => lifecycle ?? [])
  for (const { prepare } of lifecycles) await prepare?.()
  const services = [
    ...modules.flatMap((module) => module.services),
    readinessService(ready, shared.now),
  ]
  const operatorLog = createOperatorLog(shared)
  const serving = { ...shared, ...config.server, authenticator, operatorLog }
  const server = await startGrpcServer(services, serving)
  const steps = modules.flatMap((module) => module.upkeep ?? [])
  const upkeep = startUpkeep([...opened.upkeep, ...steps], {
    ...shared,
    everyMs: deps.upkeepMs,
  })
  for (const { start } of lifecycles) await start?.()
  server.setServing(true)

  async function ready(): Promise<Parts> {
    const answers = await Promise.all(lifecycles.map(({ ready }) => ready?.()))
    return partStates(Object.assign(await opened.ready(), ...answers), ['database'])
  }

  /**
   * Notifies health checks first, lets running work finish for a limited time, then closes the
   * connections.
   */
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
