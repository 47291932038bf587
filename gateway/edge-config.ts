import type { EnvReader } from '../core/lib/env.ts'
import type { LimitSettings } from './limits/limiter.ts'

/** What stands between the world and the routes. */
export interface EdgeConfig {
  /** Null when they are off. */
  readonly limits: LimitSettings | null
  readonly redisUrl: string | undefined
  readonly trustedProxyHops: number
  readonly corsOrigins: readonly string[]
  readonly ingestSecret: string | undefined
}

export function readEdgeConfig(env: EnvReader): EdgeConfig {
  const limits = readLimits(env)
  const limited = env.choice('RATE_LIMITS', {
    meaning: 'Whether token, device, key-exchange, validate and login routes are rate limited.',
    fallback: 'on',
    of: ['on', 'off'],
  })
  return {
    limits: limited === 'on' ? limits : null,
    redisUrl: env.url('REDIS_URL', {
      schemes: ['redis', 'rediss'],
      secret: true,
      meaning: 'Redis for shared caches and invalidations; in process when not set.',
    }),
    trustedProxyHops: env.integer('TRUSTED_PROXY_HOPS', {
      meaning:
        'How many proxies before the gateway append to X-Forwarded-For; 0 uses the address of the connection.',
      fallback: '0',
      min: 0,
      max: 10,
    }),
    corsOrigins: readOrigins(env),
    ingestSecret: readIngestSecret(env),
  }
}

function readLimits(env: EnvReader): LimitSettings {
  const perMinute = (name: string, meaning: string, fallback: string) =>
    env.integer(name, { meaning, fallback, min: 1, max: 1_000_000 })
  return {
    perAddress: perMinute(
      'RATE_LIMIT_ADDRESS',
      'Requests a minute from one address to the token routes; the same again to device, key-exchange and validate routes.',
      '6000',
    ),
    perClient: perMinute(
      'RATE_LIMIT_CLIENT',
      'Requests a minute of one client that were not refused, counted for each kind of route.',
      '6000',
    ),
    loginPerAddress: perMinute(
      'RATE_LIMIT_LOGIN',
      'Requests a minute from one address to the login routes.',
      '60',
    ),
    failuresPerAddress: perMinute(
      'RATE_LIMIT_FAILURES',
      'Failed authentications a minute after which an address, or an account from everywhere, waits.',
      '60',
    ),
    failuresPerClient: perMinute(
      'RATE_LIMIT_CLIENT_FAILURES',
      'Failed authentications a minute as one client or account after which an address waits with it.',
      '20',
    ),
  }
}

function readIngestSecret(env: EnvReader): string | undefined {
  const secret = env.optional('INGEST_SHARED_SECRET', {
    meaning:
      'Bearer secret of POST /api/v1/ingest/events, at least 32 characters; the route refuses everyone when not set.',
    secret: true,
  })
  if (secret !== undefined && secret.length < 32)
    env.problem('INGEST_SHARED_SECRET must have at least 32 characters')
  return secret
}

function readOrigins(env: EnvReader): string[] {
  const origins = env.list('CORS_ORIGINS', {
    meaning: 'Origins of browser pages that may call routes that belong to no app.',
  })
  const wrong = origins.find((origin) => !URL.canParse(origin) || new URL(origin).origin !== origin)
  if (wrong !== undefined)
    env.problem(`CORS_ORIGINS must be origins like https://app.example, not ${wrong.slice(0, 100)}`)
  return origins
}
