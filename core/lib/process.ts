import { setTimeout as sleep } from 'node:timers/promises'
import { isatty } from 'node:tty'
import { type EnvReader, createEnvReader } from './env.ts'
import { readEnvironment } from './settings/environment.ts'
import { type Readiness, createAdminServer, listen } from './http.ts'
import { type Log, createLog, setLogLevel } from './log.ts'
import { type Metrics, createMetrics } from './metrics.ts'
import { onReloadSignal } from './settings/reload.ts'
import { readAdminHost, readLogLevel } from './settings/shared.ts'
import { readTelemetry } from './telemetry/config.ts'
import { openTelemetry } from './telemetry/open.ts'
import type { OwnSettings } from './settings/redacted.ts'
import { unknownSettings } from './settings/unknown.ts'

export interface Running {
  readonly ready: Readiness
  stop(): Promise<void>
  /** Fields of the log line that reports the process as up. */
  readonly summary: Readonly<Record<string, string>>
}

export interface ProcessSpec<Config> {
  readonly name: string
  readonly adminPort: { readonly setting: string; readonly fallback: string }
  readonly read: (env: EnvReader) => Config
  readonly start: (
    config: Config,
    deps: {
      log: Log
      metrics: Metrics
      adminPort: number | undefined
      settings: OwnSettings
    },
  ) => Promise<Running>
}

const stopWithinMs = 4_500

/**
 * Runs one process: reads its settings (on problems, prints one line each and exits with 1), starts
 * it (one line on failure), serves /metrics and health on ADMIN_HOST, reloads settings on SIGHUP,
 * and drains on SIGTERM or SIGINT within five seconds.
 */
export async function runProcess<Config>(spec: ProcessSpec<Config>): Promise<void> {
  const setReload = onReloadSignal()
  const { env, config, adminHost, adminPort, level, telemetry } = await readSettings(spec).catch(
    (error: unknown) => fail(toMessages(error)),
  )
  if (env.problems.length > 0) fail([...env.problems, ...unknownSettings(process.env)])
  const log = createLog({ level: level(), name: spec.name, isTraced: telemetry !== undefined })
  setReload({
    current: env,
    read: async () => (await readSettings(spec)).env,
    onReloaded: () => setLogLevel(log, level()),
    log,
  })
  for (const line of [...env.warnings, ...unknownSettings(process.env)]) log.warn(line)
  const metrics = createMetrics(spec.name)
  const stopTelemetry = await openTelemetry(telemetry, { metrics, log })
  const running = await spec
    .start(config, {
      log,
      metrics,
      adminPort: localPort(adminHost, adminPort),
      settings: { process: spec.name, list: () => env.settings },
    })
    .catch((error: unknown) => fail(toMessages(error)))
  const admin = await listen(createAdminServer({ metrics: [metrics], ready: running.ready }), {
    host: adminHost,
    port: adminPort,
    setting: spec.adminPort.setting,
  }).catch(async (error: unknown) => {
    // Report the original error, even if stopping also fails.
    await running.stop().catch(() => {})
    return fail(toMessages(error))
  })
  log.info({ ...running.summary, admin: admin.url }, `${spec.name} is up`)
  onStopSignal(async () => {
    log.info('draining')
    await Promise.all([running.stop(), admin.stop(500)])
    await stopTelemetry()
  })
}

/** Reads all settings of the process. Rejects if the environment or a file cannot be read. */
async function readSettings<Config>(spec: ProcessSpec<Config>) {
  const { env: variables, files } = await readEnvironment(process.env)
  const env = createEnvReader(variables, { files })
  return {
    env,
    config: spec.read(env),
    adminPort: env.port(spec.adminPort.setting, {
      fallback: spec.adminPort.fallback,
      meaning: `Port of ${spec.name}'s metrics and health.`,
    }),
    adminHost: readAdminHost(env),
    level: env.live(() => readLogLevel(env)),
    telemetry: readTelemetry(env, spec.name),
  }
}

/** The admin port for links on this machine; undefined if loopback does not reach it. */
export const localPort = (host: string, port: number): number | undefined =>
  ['127.0.0.1', 'localhost', '0.0.0.0', '::'].includes(host) ? port : undefined

/**
 * Calls `stop` once on SIGTERM, on SIGINT or at the end of its terminal, and exits with 0. A second
 * signal, or five seconds, ends the process at once.
 */
export function onStopSignal(stop: () => Promise<void>): void {
  let stopping = false
  let askedAt = 0
  const handle = (): void => {
    // A process group and a wrapper may send the same signal twice, so only a later signal counts
    // as a second request.
    if (stopping && performance.now() - askedAt > 1_000) process.exit(1)
    if (stopping) return
    stopping = true
    askedAt = performance.now()
    setTimeout(() => process.exit(1), stopWithinMs).unref()
    stop().then(
      () => process.exit(0),
      () => process.exit(1),
    )
  }
  // The end of a terminal sends SIGHUP, too; without a terminal, SIGHUP only reloads settings.
  if (isatty(0)) process.on('SIGHUP', () => void (isatty(0) || handle()))
  process.on('SIGTERM', handle)
  process.on('SIGINT', handle)
}

/** The first line of an error's message. */
export function toMessage(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).split('\n')[0] ?? ''
}

/** One line for each problem. */
export const toMessages = (error: unknown): string[] =>
  error instanceof AggregateError ? [...new Set(error.errors.map(toMessage))] : [toMessage(error)]

/** Whether `work` settles within `milliseconds`. Does not cancel it otherwise. */
export function settlesWithin(work: Promise<unknown>, milliseconds: number): Promise<boolean> {
  const late = sleep(Math.max(0, milliseconds), false, { ref: false })
  return Promise.race([
    work.then(
      () => true,
      () => true,
    ),
    late,
  ])
}

export function fail(lines: readonly string[]): never {
  for (const line of lines) process.stderr.write(`tollgate: ${line}\n`)
  process.exit(1)
}
