import { join } from 'node:path'
import { startCore } from '../../core/app.ts'
import { readCoreConfig } from '../../core/config.ts'
import { startEmbeddedPostgres } from '../../core/db/embedded/embedded.ts'
import { type Env, createEnvReader } from '../../core/lib/env.ts'
import { createAdminServer, listen } from '../../core/lib/http.ts'
import type { Log } from '../../core/lib/log.ts'
import { createMetrics } from '../../core/lib/metrics.ts'
import { readLogLevel } from '../../core/lib/process.ts'
import { readGatewayConfig } from '../../gateway/config.ts'
import { startGateway } from '../../gateway/server.ts'
import { readSidecarConfig } from '../../sidecar/config.ts'
import { startSidecar } from '../../sidecar/server.ts'
import { dataDirOf, loadSecrets, newSecrets, openDataDir, type Quickstart } from './data-dir.ts'
import { openLogFile } from './log-file.ts'
import { choosePorts } from './ports.ts'
import { ensureQuickstart } from './quickstart.ts'
import { type Stopping, createStopping } from './shutdown.ts'

export interface Service {
  readonly dataDir: string
  readonly logFile: string
  readonly quickstart: Quickstart
  /** Which part each port of the architecture runs on, for people. */
  readonly parts: Readonly<Record<string, string>>
  readonly startedInMs: number
  stop(): Promise<void>
}

/**
 * Starts core, sidecar and gateway in this process (decision 3): embedded parts where the environment names no real
 * one, data and generated secrets in the data directory, an app to try it with. Rejects with one clear error for
 * each problem; what had been started by then is stopped again.
 */
export async function startService(environment: Env): Promise<Service> {
  const startedAt = performance.now()
  const given = defined(environment)
  // Said before anything is made or opened; the secrets only stand for those that will be found or made.
  readSettings({ ...newSecrets(), ...given })
  const dataDir = dataDirOf(environment)
  await openDataDir(dataDir)
  const env: Record<string, string | undefined> = {
    ...(await loadSecrets(dataDir)),
    SPOOL_DIR: join(dataDir, 'spool'),
    ...given,
  }
  await choosePorts(env)
  const settings = readSettings(env)
  const logFile = await openLogFile(join(dataDir, 'tollgate.log'), settings.logLevel)
  const stopping = createStopping(logFile.log)
  const stop = once(async () => {
    const clean = await stopping.stop().finally(logFile.flush)
    // What is left behind may still log.
    if (clean) logFile.close()
  })
  try {
    const { core } = settings
    const context = { log: logFile.log, stopping, dataDir }
    const databaseUrl = env['DATABASE_URL'] ?? (await startDatabase(context))
    const processes = await startProcesses(
      { ...settings, core: { ...core, platform: { ...core.platform, databaseUrl } } },
      context,
    )
    const quickstart = await ensureQuickstart({
      dataDir,
      serviceToken: core.server.serviceToken,
      webhookSecret: firstOf(env['WEBHOOK_SECRET']),
      addresses: { ...processes, issuer: core.platform.issuer },
    })
    return {
      dataDir,
      logFile: logFile.path,
      quickstart,
      parts: partsOf(env, environment),
      startedInMs: performance.now() - startedAt,
      stop,
    }
  } catch (error) {
    // Why it cannot run is what counts, however stopping it goes.
    await stop().catch(() => {})
    throw error
  }
}

const defined = (environment: Env): Env =>
  Object.fromEntries(
    Object.entries(environment).filter(([, value]) => value !== undefined && value.trim() !== ''),
  )

type Settings = ReturnType<typeof readSettings>

/** Throws all problems at once. Where no database is named the embedded one comes later, with its own address. */
function readSettings(env: Env) {
  const reader = createEnvReader({ DATABASE_URL: 'postgres://embedded', ...env })
  const settings = {
    core: readCoreConfig(reader),
    sidecar: readSidecarConfig(reader),
    gateway: readGatewayConfig(reader),
    adminPort: reader.port('ADMIN_PORT', {
      fallback: '9090',
      meaning: 'Loopback port of metrics and health, all in one process.',
    }),
    logLevel: readLogLevel(reader),
  }
  if (reader.problems.length > 0)
    throw new AggregateError(
      reader.problems.map((line) => new Error(line)),
      'bad settings',
    )
  return settings
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
  const core = await startCore(settings.core, { log: log.child({ process: 'core' }), metrics })
  stopping.add('core', core.stop)
  const near = <T extends { readonly core: object }>(config: T) => ({
    ...config,
    core: { ...config.core, target: core.target },
  })
  const sidecar = await startSidecar(near(settings.sidecar), {
    log: log.child({ process: 'sidecar' }),
    metrics,
  })
  stopping.add('sidecar', sidecar.stop)
  const gateway = await startGateway(near(settings.gateway), {
    log: log.child({ process: 'gateway' }),
    metrics,
    webhook: sidecar.webhook,
  })
  stopping.add('gateway', gateway.stop)
  const ready = async () => ({
    ...(await core.ready()),
    ...(await sidecar.ready()),
    ...(await gateway.ready()),
  })
  const admin = await listen(createAdminServer({ metrics: [metrics], ready }), {
    host: '127.0.0.1',
    port: settings.adminPort,
    setting: 'ADMIN_PORT',
  })
  stopping.add('gateway', () => admin.stop(200))
  return {
    platformUrl: gateway.platformUrl,
    builderUrl: gateway.builderUrl,
    sidecarUrl: sidecar.url,
    adminUrl: admin.url,
    coreTarget: core.target,
  }
}

const firstOf = (list: string | undefined): string => list?.split(',')[0]?.trim() ?? ''

function once(work: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> | null = null
  return () => (running ??= work())
}

function partsOf(env: Env, environment: Env): Record<string, string> {
  return {
    database: environment['DATABASE_URL'] ? 'PostgreSQL of DATABASE_URL' : 'embedded PostgreSQL',
    cache: env['REDIS_URL'] ? 'Redis of REDIS_URL' : 'in process',
    events: env['KAFKA_BROKERS']
      ? 'Kafka of KAFKA_BROKERS, and POST /events'
      : 'POST /events on the sidecar (direct mode)',
    reports: reportsOf(env),
    rates: env['RATE_FIXED'] ? `fixed, ${env['RATE_FIXED']} USD per ETH` : 'public exchanges',
  }
}

function reportsOf(env: Env): string {
  const backend = env['METERING_BACKEND'] ?? (env['OPENMETER_URL'] ? 'openmeter' : 'embedded')
  return backend === 'openmeter'
    ? 'OpenMeter of OPENMETER_URL'
    : backend === 'none'
      ? 'none'
      : 'our own tables'
}
