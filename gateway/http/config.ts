import type { ConnectionBounds } from '../../core/lib/network/connections.ts'
import type { EnvReader } from '../../core/lib/env.ts'
import { readRedisUrl } from '../../core/lib/settings.ts'
import { type LimitSettings, readLimits } from '../limits/config.ts'

/** Settings of admission, which runs before any route. */
export interface EdgeConfig {
  /** Null if rate limits are off. */
  readonly limits: LimitSettings | null
  readonly redisUrl: string | undefined
  readonly trustedProxyHops: number
  readonly corsOrigins: readonly string[]
  readonly ingestSecret: string | undefined
  /** Limits per public listener. */
  readonly connections: ConnectionBounds
}

export function readEdgeConfig(env: EnvReader): EdgeConfig {
  const trustedProxyHops = env.integer('TRUSTED_PROXY_HOPS', {
    meaning:
      'Number of proxies in front of the gateway that append to X-Forwarded-For; 0 uses the address of the connection.',
    fallback: '0',
    min: 0,
    max: 10,
  })
  return {
    limits: readLimits(env),
    redisUrl: readRedisUrl(env),
    trustedProxyHops,
    corsOrigins: readOrigins(env),
    ingestSecret: readIngestSecret(env),
    connections: readConnections(env, trustedProxyHops),
  }
}

/**
 * Behind a trusted proxy all connections come from the proxy's address, so there is no limit per
 * address.
 */
function readConnections(env: EnvReader, trustedProxyHops: number): ConnectionBounds {
  const maxPerAddress = env.integer('GATEWAY_MAX_CONNECTIONS_PER_ADDRESS', {
    meaning:
      'Most simultaneous connections from one address to each public listener; one more replaces the oldest idle one. Unlimited if TRUSTED_PROXY_HOPS is set.',
    fallback: '1000',
    min: 1,
    max: 1_000_000,
  })
  const max = env.integer('GATEWAY_MAX_CONNECTIONS', {
    meaning:
      'Most simultaneous connections of each public listener; one more replaces the oldest idle one.',
    fallback: '10000',
    min: 1,
    max: 1_000_000,
  })
  return { max, maxPerAddress: trustedProxyHops > 0 ? null : maxPerAddress }
}

function readIngestSecret(env: EnvReader): string | undefined {
  const secret = env.optional('INGEST_SHARED_SECRET', {
    meaning:
      'Bearer secret of POST /api/v1/ingest/events, at least 32 characters; when not set, the route refuses every request.',
    secret: true,
  })
  if (secret !== undefined && secret.length < 32)
    env.problem('INGEST_SHARED_SECRET must have at least 32 characters')
  return secret
}

function readOrigins(env: EnvReader): string[] {
  const origins = env.list('CORS_ORIGINS', {
    meaning: 'Origins of browser pages that may call routes outside of apps.',
  })
  const wrong = origins.find((origin) => !URL.canParse(origin) || new URL(origin).origin !== origin)
  if (wrong !== undefined)
    env.problem(`CORS_ORIGINS must be origins like https://app.example, not ${wrong.slice(0, 100)}`)
  return origins
}
