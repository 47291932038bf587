import type { EnvReader } from './env.ts'

/** Settings that several processes share, declared once. */

export const readHost = (env: EnvReader): string =>
  env.text('HOST', { fallback: '127.0.0.1', meaning: 'Address that every listener binds.' })

export const readPlatformPort = (env: EnvReader): number =>
  env.port('PLATFORM_PORT', {
    fallback: '8080',
    meaning: 'Port of the platform API and OIDC.',
  })

/** Every URL handed out begins with it; never a request header (decision 9). No trailing slash. */
export function readPublicUrl(env: EnvReader): string {
  const fallback = `http://localhost:${readPlatformPort(env)}`
  return (
    env.url('PUBLIC_URL', {
      schemes: ['http', 'https'],
      fallback,
      meaning: 'Origin under which clients reach the platform; the issuer is built from it.',
    }) ?? fallback
  )
}

export const issuerPath = '/api/v1/oidc'

/** Where core answers gRPC, and the token that proves a call comes from one of our own processes. */
export function readCoreAddress(env: EnvReader): {
  readonly target: string
  readonly token: string
} {
  const target = env.text('CORE_TARGET', {
    fallback: '127.0.0.1:50051',
    meaning: 'Where core answers gRPC, as host:port.',
  })
  if (!/^[^\s/@]+:\d{1,5}$/.test(target)) env.problem('CORE_TARGET must be host:port')
  return { target, token: readCoreToken(env) }
}

export const readCoreToken = (env: EnvReader): string =>
  readSecret(env, 'CORE_TOKEN', 'Shared by core, gateway, sidecar and CLI; at least 32 characters.')

/** A secret without a default; a problem when it is shorter than 32 characters. */
export function readSecret(env: EnvReader, name: string, meaning: string): string {
  const value = env.optional(name, { secret: true, meaning }) ?? ''
  if (value.length < 32) env.problem(`${name} must have at least 32 characters`)
  return value
}

export const readRedisUrl = (env: EnvReader): string | undefined =>
  env.url('REDIS_URL', {
    schemes: ['redis', 'rediss'],
    secret: true,
    meaning: 'Redis for shared caches and invalidations; in process when not set.',
  })

/** Secrets the signer may present; several while one is replaced. */
export const readWebhookSecrets = (env: EnvReader): string[] =>
  env.list('WEBHOOK_SECRET', {
    secret: true,
    meaning: 'Secrets the signer may present, separated by commas; several while one is replaced.',
  })

export function readDatabase(env: EnvReader): {
  readonly databaseUrl: string
  readonly databasePoolMax: number
} {
  const url = env.url('DATABASE_URL', {
    schemes: ['postgres', 'postgresql'],
    secret: true,
    meaning: 'PostgreSQL 15 or newer; an embedded one when not set.',
  })
  if (url === undefined && !env.problems.some((line) => line.startsWith('DATABASE_URL')))
    env.problem('DATABASE_URL is required')
  const databasePoolMax = env.integer('DATABASE_POOL_MAX', {
    fallback: '16',
    min: 2,
    max: 200,
    meaning: 'Connections that one core process opens.',
  })
  return { databaseUrl: url ?? '', databasePoolMax }
}

export const readRevocationBound = (env: EnvReader): number =>
  env.integer('REVOCATION_BOUND_SECONDS', {
    fallback: '360',
    min: 1,
    max: 3_600,
    meaning:
      'Longest time that caches may honour an ended permission; told in answers and used for tombstones.',
  })
