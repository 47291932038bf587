import { join } from 'node:path'
import { startCore } from '../../core/app.ts'
import { startEmbeddedPostgres } from '../../core/db/embedded/embedded.ts'
import type { Env, EnvReader } from '../../core/lib/env.ts'
import { createAdminServer, listen, mergeParts } from '../../core/lib/http.ts'
import { type Log, setLogLevel } from '../../core/lib/log.ts'
import { connectRedis, redisAnswers } from '../../core/lib/redis.ts'
import type { ReloadOptions } from '../../core/lib/settings/reload.ts'
import { onlyDatabase } from '../../core/shared/database/config.ts'
import { toRedisAddress } from '../../core/lib/settings/redis-url.ts'
import { createMetrics } from '../../core/lib/metrics.ts'
import { localPort } from '../../core/lib/process.ts'
import { openTelemetry } from '../../core/lib/telemetry/open.ts'
import { startGateway } from '../../gateway/server.ts'
import { startSidecar } from '../../sidecar/server.ts'
import {
  resolveDataDir,
  loadSecrets,
  newSecrets,
  openDataDir,
  type Quickstart,
} from '../local/data-dir.ts'
import { openLogFile } from './log-file.ts'
import { ensureQuickstart } from './quickstart.ts'
import { type Settings, nameEdge, toParts, readSettings, setVariables } from './settings.ts'
import { applyPortBase, choosePorts, requireFreePorts } from '../local/ports.ts'
import { type Stopping, createStopping } from './shutdown.ts'

export interface Service {
  readonly dataDir: string
  readonly logFile: string
  readonly quickstart: Quickstart
  /** The product behind each part, for display. */
  readonly parts: Readonly<Record<string, string>>
  readonly startedInMs: number
  /** Problems that do not prevent the start, for display. */
  readonly warnings: readonly string[]
  /** How SIGHUP reloads the settings. */
  readonly reloading: Omit<ReloadOptions, 'read'> & { readonly read: (later: Env) => EnvReader }
  stop(): Promise<void>
}

/**
 * Starts core, sidecar and gateway in this process (decision 3). Embeds parts that the environment
 * does not name, stores data and generated secrets in the data directory, and creates a demo app.
 * On failure, stops everything that has started, then rejects with one clear error for each
 * problem.
 */
export async function startService(environment: Env): Promise<Service> {
  const startedAt = performance.now()
  const { dataDir, env, settings, read } = await prepare(environment)
  const logFile = await openLogFile(join(dataDir, 'tollgate.log'), {
    level: settings.logLevel(),
    isTraced: settings.telemetry !== undefined,
  })
  const stopping = createStopping(logFile.log)
  const stop = once(async () => {
    const isClean = await stopping.stop().finally(logFile.flush)
    // A part that did not stop in time may still log.
    if (isClean) logFile.close()
  })
  try {
    const { core } = settings
    const context = { log: logFile.log, stopping, dataDir }
    const database =
      env['DATABASE_URL'] === undefined
        ? onlyDatabase(core.shared.database, await startDatabase(context))
        : core.shared.database
    const { hasRate, ...addresses } = await startProcesses(
      { ...settings, core: { ...core, shared: { ...core.shared, database } } },
      context,
    )
    const quickstart = await ensureQuickstart({
      dataDir,
      operator: settings.operator,
      gateway: settings.gateway.core,
      webhookSecret: firstOf(env['WEBHOOK_SECRET']),
      addresses: { ...addresses, issuer: core.shared.issuer },
      database: env['DATABASE_URL'] === undefined ? 'embedded' : 'external',
    })
    const parts = { ...toParts(env, environment), ...(hasRate ? {} : { rates: 'NONE usable now' }) }
    const startedInMs = performance.now() - startedAt
    const warnings = [...(await redisWarnings(env['REDIS_URL'])), ...(hasRate ? [] : [noRate])]
    const { path, log } = logFile
    const onReloaded = (): void => setLogLevel(log, settings.logLevel())
    const reloading = { current: settings.reader, read, onReloaded, log }
    return { dataDir, logFile: path, quickstart, parts, startedInMs, warnings, reloading, stop }
  } catch (error) {
    // Report the first error, even if stopping fails, too.
    await stop().catch(() => {})
    throw error
  }
}

/** Opens the data directory and completes the environment with secrets, spool and ports. */
async function prepare(environment: Env) {
  const variables = setVariables(environment)
  // Report wrong settings before anything is created; fresh secrets replace the stored ones.
  readSettings({ ...newSecrets(), ...variables })
  const dataDir = resolveDataDir(environment)
  await openDataDir(dataDir)
  const env: Record<string, string | undefined> = {
    ...(await loadSecrets(dataDir)),
    SPOOL_DIR: join(dataDir, 'spool'),
    ...variables,
  }
  applyPortBase(env)
  await choosePorts(env)
  nameEdge(env)
  const names = ['DATABASE_URL', ...Object.keys(env)]
  const generated = names.filter((name) => variables[name] === undefined)
  const settings = readSettings(env, generated)
  await requireFreePorts(env, settings.reader.settings)
  const read = (later: Env) =>
    readSettings(reloadedEnv(later, { env, variables }), generated).reader
  return { dataDir, env, settings, read }
}

/** The environment of a reload: an unchanged variable keeps the value that the start gave it. */
function reloadedEnv(
  later: Env,
  { env, variables }: { readonly env: Env; readonly variables: Env },
): Env {
  const isChanged = ([name, value]: [string, string | undefined]): boolean =>
    value !== variables[name]
  const fromStart = Object.entries(env).filter(isChanged)
  return {
    ...Object.fromEntries(fromStart),
    ...Object.fromEntries(
      Object.entries(setVariables(later)).filter(
        (each) => isChanged(each) || env[each[0]] === variables[each[0]],
      ),
    ),
  }
}

interface Context {
  readonly dataDir: string
  readonly log: Log
  readonly stopping: Stopping
}

async function startDatabase({ dataDir, log, stopping }: Context): Promise<string> {
  const postgres = await startEmbeddedPostgres({ dataDir: join(dataDir, 'postgres'), log })
  stopping.add('database', postgres.stop)
  return postgres.url
}

async function startProcesses(settings: Settings, { log, stopping }: Context) {
  const metrics = createMetrics('all-in-one')
  stopping.add('telemetry', await openTelemetry(settings.telemetry, { metrics, log }))
  const deps = { metrics, settings: settings.own }
  const core = await startCore(settings.core, { ...deps, log: log.child({ process: 'core' }) })
  stopping.add('core', core.stop)
  const withCoreTarget = <T extends { readonly core: object }>(config: T) => ({
    ...config,
    core: { ...config.core, target: core.target },
  })
  const sidecar = await startSidecar(withCoreTarget(settings.sidecar), {
    log: log.child({ process: 'sidecar' }),
    metrics,
  })
  stopping.add('sidecar', sidecar.stop)
  const gateway = await startGateway(withCoreTarget(settings.gateway), {
    ...deps,
    log: log.child({ process: 'gateway' }),
    webhook: sidecar.webhook,
    webhookSecrets: settings.sidecar.webhookSecrets,
    adminPort: localPort(settings.adminHost, settings.adminPort),
    hasSimulatedProcessor: settings.core.billing.processor.kind === 'simulated',
  })
  stopping.add('gateway', gateway.stop)
  const ready = async () =>
    mergeParts(await Promise.all([core.ready(), sidecar.ready(), gateway.ready()]))
  const admin = await listen(createAdminServer({ metrics: [metrics], ready }), {
    host: settings.adminHost,
    port: settings.adminPort,
    setting: 'ADMIN_PORT',
  })
  stopping.add('gateway', () => admin.stop(200))
  const { builderEdge: edge } = settings.gateway
  return {
    hasRate: (await core.ready())['rate'] === 'ok',
    platformUrl: gateway.platformUrl,
    builderUrl: gateway.builderUrl,
    // Its metadata has this origin, and MCP clients refuse a resource with another name.
    ...(edge === undefined ? {} : { edgeUrl: edge.url }),
    sidecarUrl: sidecar.url,
    adminUrl: admin.url,
    coreTarget: core.target,
  }
}

const noRate =
  'no ETH price is usable: calls are refused and tickets wait. Set one with ./tollgate rate set USD_PER_ETH, or start with RATE_FIXED=3000'

const firstOf = (list: string | undefined): string => list?.split(',')[0]?.trim() ?? ''

function once(work: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> | null = null
  return () => (running ??= work())
}

/** Warns if Redis does not answer, because the service runs without it. */
async function redisWarnings(url: string | undefined): Promise<string[]> {
  if (url === undefined) return []
  const redis = connectRedis({ url, commandTimeoutMs: 1_000, whileAway: 'wait', log: null })
  try {
    const answers = await redisAnswers(redis)
    return answers
      ? []
      : [
          `REDIS_URL: Redis does not answer at ${toRedisAddress(url)}; the service goes on without it`,
        ]
  } finally {
    redis.disconnect()
  }
}
