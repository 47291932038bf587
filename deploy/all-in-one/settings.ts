import { readCoreConfig } from '../../core/config.ts'
import { type Env, createEnvReader } from '../../core/lib/env.ts'
import { readCoreAddress } from '../../core/lib/core-link/address.ts'
import type { OwnSettings } from '../../core/lib/settings/redacted.ts'
import { readAdminHost, readLogLevel } from '../../core/lib/settings/shared.ts'
import { readTelemetry } from '../../core/lib/telemetry/config.ts'
import { readGatewayConfig } from '../../gateway/config.ts'
import { readSidecarConfig } from '../../sidecar/config.ts'
import { readPorts } from '../local/ports.ts'

/** Returns the variables with a value; empty ones count as unset. */
export const setVariables = (environment: Env): Env =>
  Object.fromEntries(
    Object.entries(environment).filter(([, value]) => value !== undefined && value.trim() !== ''),
  )

export type Settings = ReturnType<typeof readSettings>

/**
 * Reads the settings of all three processes; throws all problems at once. Without DATABASE_URL, the
 * address of the embedded database replaces `postgres://embedded` later. `generated` are the variables that
 * `npm start` adds.
 */
export function readSettings(env: Env, generated: readonly string[] = []) {
  const reader = createEnvReader(
    { DATABASE_URL: 'postgres://embedded', ...env },
    { isEmbedded: true, files: Object.fromEntries(generated.map((name) => [name, 'npm start'])) },
  )
  const settings = {
    core: readCoreConfig(reader),
    sidecar: readSidecarConfig(reader),
    gateway: readGatewayConfig(reader),
    operator: readCoreAddress(reader, 'operator'),
    ...readPorts(reader),
    adminHost: readAdminHost(reader),
    reader,
    own: { process: 'all-in-one', list: () => reader.settings } satisfies OwnSettings,
    telemetry: readTelemetry(reader, 'all-in-one'),
    logLevel: reader.live(() => readLogLevel(reader)),
  }
  if (reader.problems.length > 0)
    throw new AggregateError(
      reader.problems.map((line) => new Error(line)),
      'bad settings',
    )
  return settings
}

/**
 * Sets the edge's URL for core, which does not know the edge's port, if EDGE_PUBLIC_URL is not set.
 */
export function nameEdge(env: Record<string, string | undefined>): void {
  const port = env['EDGE_PORT']
  if (port !== undefined) env['EDGE_PUBLIC_URL'] ??= `http://localhost:${port}`
}

/**
 * Returns the product behind each part, for display. `environment` excludes the variables that `npm
 * start` adds.
 */
export function toParts(env: Env, environment: Env): Record<string, string> {
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
