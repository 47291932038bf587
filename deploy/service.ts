import { join } from 'node:path'
import { startCore } from '../core/app.ts'
import { readCoreConfig } from '../core/config.ts'
import { startEmbeddedPostgres } from '../core/db/embedded.ts'
import { type Env, createEnvReader } from '../core/lib/env.ts'
import { createAdminServer, listen } from '../core/lib/http.ts'
import type { Log } from '../core/lib/log.ts'
import { createMetrics } from '../core/lib/metrics.ts'
import { readGatewayConfig } from '../gateway/config.ts'
import { startGateway } from '../gateway/server.ts'
import { readSidecarConfig } from '../sidecar/config.ts'
import { startSidecar } from '../sidecar/server.ts'
import { dataDirOf, loadSecrets, openDataDir, type Quickstart } from './data-dir.ts'
import { openLogFile } from './log-file.ts'
import { choosePorts } from './ports.ts'
import { ensureQuickstart } from './quickstart.ts'

export interface Service {
  readonly dataDir: string
  readonly logFile: string
  readonly quickstart: Quickstart
  /** Which part each port of the architecture runs on, for people. */
  readonly parts: Readonly<Record<string, string>>
  readonly startedInMs: number
  stop(): Promise<void>
}

type Stop = () => Promise<void>

/**
 * Starts core, sidecar and gateway in this process (decision 3): embedded parts where the environment names no real
 * one, data and generated secrets in the data directory, an app to try it with. Rejects with one clear error for
 * each problem; what had been started by then is stopped again.
 */
export async function startService(environment: Env): Promise<Service> {
  const startedAt = performance.now()
  const dataDir = dataDirOf(environment)
  await openDataDir(dataDir)
  const env: Record<string, string | undefined> = { ...await loadSecrets(dataDir), ...defined(environment) }
  await choosePorts(env)
  const logFile = openLogFile(join(dataDir, 'tollgate.log'), env['LOG_LEVEL'])
  const stops: Stop[] = [async () => logFile.close()]
  // The last thing started is the first to stop: nothing loses what it stands on while it drains.
  const stop = once(async () => {
    for (const step of stops.toReversed()) await step()
  })
  try {
    env['DATABASE_URL'] ??= await startDatabase({ dataDir, log: logFile.log, stops })
    const quickstart = await startProcesses({ env, dataDir, log: logFile.log, stops })
    return {
      dataDir, logFile: logFile.path, quickstart, parts: partsOf(env, environment),
      startedInMs: performance.now() - startedAt, stop,
    }
  } catch (error) {
    await stop()
    throw error
  }
}

const defined = (environment: Env): Env =>
  Object.fromEntries(Object.entries(environment).filter(([, value]) => value !== undefined && value.trim() !== ''))

async function startDatabase({ dataDir, log, stops }: { dataDir: string; log: Log; stops: Stop[] }): Promise<string> {
  const postgres = await startEmbeddedPostgres({ dataDir: join(dataDir, 'postgres'), log })
  stops.push(postgres.stop)
  return postgres.url
}

interface Context {
  readonly env: Env
  readonly dataDir: string
  readonly log: Log
  readonly stops: Stop[]
}

async function startProcesses({ env, dataDir, log, stops }: Context): Promise<Quickstart> {
  const reader = createEnvReader(env)
  const config = { core: readCoreConfig(reader), sidecar: readSidecarConfig(reader), gateway: readGatewayConfig(reader) }
  const adminPort = reader.port('ADMIN_PORT', { fallback: '9090', meaning: 'Loopback port of metrics and health, all in one process.' })
  if (reader.problems.length > 0) throw new AggregateError(reader.problems.map((line) => new Error(line)), 'bad settings')
  const metrics = createMetrics('all-in-one')

  const core = await startCore(config.core, { log: log.child({ process: 'core' }), metrics })
  stops.push(core.stop)
  const sidecar = await startSidecar({ ...config.sidecar, core: { ...config.sidecar.core, target: core.target } }, { log: log.child({ process: 'sidecar' }), metrics })
  stops.push(sidecar.stop)
  const gateway = await startGateway({ ...config.gateway, core: { ...config.gateway.core, target: core.target } }, {
    log: log.child({ process: 'gateway' }), metrics, webhook: sidecar.webhook,
  })
  stops.push(gateway.stop)
  const ready = async () => ({ ...await core.ready(), ...await sidecar.ready(), ...await gateway.ready() })
  const admin = await listen(createAdminServer({ metrics: [metrics], ready }), { host: '127.0.0.1', port: adminPort, setting: 'ADMIN_PORT' })
  stops.push(() => admin.stop(200))

  return ensureQuickstart({
    dataDir, serviceToken: config.core.serviceToken, webhookSecret: firstOf(env['WEBHOOK_SECRET']),
    addresses: {
      platformUrl: gateway.platformUrl, builderUrl: gateway.builderUrl, sidecarUrl: sidecar.url, adminUrl: admin.url,
      issuer: config.core.issuer, coreTarget: core.target,
    },
  })
}

const firstOf = (list: string | undefined): string => list?.split(',')[0]?.trim() ?? ''

function once(work: Stop): Stop {
  let running: Promise<void> | null = null
  return () => (running ??= work())
}

function partsOf(env: Env, environment: Env): Record<string, string> {
  return {
    database: environment['DATABASE_URL'] ? 'PostgreSQL of DATABASE_URL' : 'embedded PostgreSQL',
    cache: env['REDIS_URL'] ? 'Redis of REDIS_URL' : 'in process',
    events: env['KAFKA_BROKERS'] ? 'Kafka of KAFKA_BROKERS, and POST /events' : 'POST /events on the sidecar (direct mode)',
    rates: env['RATE_FIXED'] ? `fixed, ${env['RATE_FIXED']} USD per ETH` : 'public exchanges',
  }
}
