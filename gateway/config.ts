import type { EnvReader } from '../core/lib/env.ts'
import { readCoreAddress } from '../core/lib/core-link/address.ts'
import type { ConnectionBounds } from '../core/lib/network/connections.ts'
import { type CertificateFiles, readCertificateFiles } from '../core/lib/network/server-tls.ts'
import {
  readHost,
  readPlatformPort,
  readPublicUrl,
  readRedisUrl,
} from '../core/lib/settings/shared.ts'
import type { Reloadable } from '../core/lib/settings/reloadable.ts'
import { type BuilderEdgeConfig, readBuilderEdge } from './builder-api/edge/config.ts'
import type { CoreOptions } from './core/call-context.ts'
import { type LimitSettings, readLimits } from './limits/config.ts'
import { type LoginProviderConfig, readLoginProvider } from './pages/config.ts'

export interface GatewayConfig {
  readonly host: string
  readonly platformPort: number
  readonly builderPort: number
  /** Certificate of all listeners; undefined for plain HTTP. */
  readonly certificate?: CertificateFiles | undefined
  /** Undefined if the builder API has no edge. */
  readonly builderEdge?: BuilderEdgeConfig | undefined
  /** Prefix of every URL that we hand out; no trailing slash. */
  readonly publicUrl: string
  readonly tokenAlg: string
  readonly core: CoreOptions
  /** Whether the POST form of key validation replaces the GET form. */
  readonly validateV2?: boolean
  readonly edge: EdgeConfig
  readonly loginProvider?: LoginProviderConfig | undefined
}

/** Declares the gateway's settings. Collects problems in `env.problems`. */
export function readGatewayConfig(env: EnvReader): GatewayConfig {
  return {
    host: readHost(env),
    platformPort: readPlatformPort(env),
    builderPort: env.port('BUILDER_PORT', {
      meaning: 'Port of the builder API.',
      fallback: '8081',
    }),
    builderEdge: readBuilderEdge(env),
    certificate: readCertificateFiles(env),
    publicUrl: readPublicUrl(env),
    tokenAlg: env.choice('TOKEN_ALG', {
      meaning: 'Algorithm of new signing keys.',
      fallback: 'RS256',
      choices: ['RS256', 'ES256'],
    }),
    edge: readEdgeConfig(env),
    validateV2: /^(1|true|yes)$/i.test(
      env.text('BPP_VALIDATE_V2', {
        meaning:
          '1, true or yes: POST /api/v1/auth/validate validates keys, and the GET route is removed.',
        fallback: '',
      }),
    ),
    loginProvider: readLoginProvider(env),
    core: {
      ...readCoreAddress(env, 'gateway'),
      deadlineMs: env.integer('GATEWAY_DEADLINE_MS', {
        meaning: 'How long the gateway waits for core, in milliseconds.',
        fallback: '5000',
        min: 10,
        max: 60_000,
      }),
    },
  }
}

/** Settings of admission, which runs before any route. */
export interface EdgeConfig {
  /** Null if rate limits are off. */
  readonly limits: Reloadable<LimitSettings> | null
  readonly redisUrl: string | undefined
  readonly trustedProxyHops: number
  readonly corsOrigins: readonly string[]
  readonly ingestSecret: Reloadable<string | undefined>
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
    ingestSecret: env.live(() => readIngestSecret(env)),
    connections: readConnections(env, trustedProxyHops),
  }
}

/**
 * Behind a trusted proxy all connections come from the proxy's address, so there is no limit per
 * address.
 */
function readConnections(env: EnvReader, trustedProxyHops: number): ConnectionBounds {
  const maxPerAddress = env.live(() =>
    env.integer('GATEWAY_MAX_CONNECTIONS_PER_ADDRESS', {
      meaning:
        'Most simultaneous connections from one address to each public listener; one more replaces the oldest idle one. Unlimited if TRUSTED_PROXY_HOPS is set.',
      fallback: '1000',
      min: 1,
      max: 1_000_000,
    }),
  )
  const max = env.live(() =>
    env.integer('GATEWAY_MAX_CONNECTIONS', {
      meaning:
        'Most simultaneous connections of each public listener; one more replaces the oldest idle one.',
      fallback: '10000',
      min: 1,
      max: 1_000_000,
    }),
  )
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
