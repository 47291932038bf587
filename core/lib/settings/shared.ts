import { normalizeDomain, normalizeEmail } from '../text/email.ts'
import type { EnvReader } from '../env.ts'
import { parseRedisUrl } from './redis-url.ts'

/** Settings that several processes share, each declared once. */

export const readHost = (env: EnvReader): string =>
  env.text('HOST', { fallback: '127.0.0.1', meaning: 'Address that every listener binds.' })

export const readAdminHost = (env: EnvReader): string =>
  env.text('ADMIN_HOST', {
    fallback: '127.0.0.1',
    meaning:
      'Address that serves only metrics, /healthz and /readyz; it must be private, and Prometheus must reach it.',
  })

/** Log levels from least to most severe, and `silent`. */
export const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const

export const readLogLevel = (env: EnvReader): string =>
  env.choice('LOG_LEVEL', {
    fallback: 'info',
    choices: logLevels,
    meaning: 'Least severe level that is logged, from trace to fatal; or silent.',
  })

export const readPlatformPort = (env: EnvReader): number =>
  env.port('PLATFORM_PORT', {
    fallback: '8080',
    meaning: 'Port of the platform API and OIDC.',
  })

/**
 * The origin of every URL in our responses; request headers are not used (decision 9). No trailing
 * slash.
 */
export function readPublicUrl(env: EnvReader): string {
  const scheme = env.isSet('TLS_CERT_FILE') ? 'https' : 'http'
  const fallback = `${scheme}://localhost:${readPlatformPort(env)}`
  return (
    env.url('PUBLIC_URL', {
      schemes: ['http', 'https'],
      fallback,
      meaning: 'Origin at which clients reach the platform; the issuer is derived from it.',
    }) ?? fallback
  )
}

/**
 * The origin of the builder API's edge (docs/edge.md), without a trailing slash; undefined if there
 * is no edge or it is only local.
 */
export const readEdgeUrl = (env: EnvReader): string | undefined =>
  env.url('EDGE_PUBLIC_URL', {
    schemes: ['http', 'https'],
    meaning:
      "Public origin of the builder API's edge; http://localhost:{EDGE_PORT} when not set. Core needs it, too, because token requests may name it as resource (RFC 8707).",
  })

/** Minimum number of characters of a machine-generated secret. */
export const secretCharacters = 32

/** Reads secrets separated by commas, each of at least 32 characters. */
export function readSecrets(
  env: EnvReader,
  name: string,
  { meaning }: { readonly meaning: string },
): string[] {
  const secrets = env.list(name, { secret: true, meaning })
  if (secrets.some(({ length }) => length < secretCharacters))
    env.problem(
      `${name} must have at least ${secretCharacters} characters; make one with: openssl rand -base64 32`,
    )
  return secrets
}

/** Reads a secret without a default. Records a problem if it has fewer than 32 characters. */
export function readSecret(env: EnvReader, name: string, meaning: string): string {
  const value = env.optional(name, { secret: true, meaning }) ?? ''
  if (value.length < 32) env.problem(`${name} must have at least 32 characters`)
  return value
}

/** A URL for display, without user, password and parameters. */
export function toAddress(url: string): string {
  if (!URL.canParse(url)) return 'an address that is not a URL'
  const { protocol, host, pathname } = new URL(url)
  return `${protocol}//${host}${pathname}`
}

/** Reads the address of Redis or of its Sentinels (`parseRedisUrl`). */
export function readRedisUrl(env: EnvReader): string | undefined {
  const value = env.optional('REDIS_URL', {
    secret: true,
    meaning:
      'Redis for shared caches and invalidations, or its Sentinels: redis+sentinel://HOST:PORT,HOST:PORT/NAME, with the name of the master (docs/failover.md); rediss for TLS. When not set, both stay within the process.',
  })
  if (value === undefined || parseRedisUrl(value) !== null) return value
  env.problem(
    'REDIS_URL must be redis://HOST:PORT or redis+sentinel://HOST:PORT,HOST:PORT/NAME, or start with rediss for TLS',
  )
  return undefined
}

/**
 * How long a credential may still be accepted after its end. Core returns it in responses and keeps
 * tombstones for this time. A sidecar refuses to start with cache times that would exceed it.
 */
export const readRevocationBound = (env: EnvReader): number =>
  env.integer('REVOCATION_BOUND_SECONDS', {
    fallback: '420',
    min: 1,
    max: 7_200,
    meaning:
      'Longest time that an ended permission may still be accepted; answers include it. At least the sum of IDENTITY_TTL_SECONDS, the lower of IDENTITY_TTL_SECONDS and 60, and SIGNING_TTL_SECONDS.',
  })

/** Who may sign in through the external provider, by verified e-mail address. */
export interface AllowedLogins {
  readonly anybody: boolean
  readonly domains: ReadonlySet<string>
  readonly emails: ReadonlySet<string>
}

/**
 * Reads who may sign in through the provider; no user if neither setting is set. Core enforces it,
 * and the gateway refuses to start without it.
 */
export function readAllowedLogins(env: EnvReader): AllowedLogins {
  const domains = env.list('LOGIN_OIDC_ALLOWED_DOMAINS', {
    meaning:
      'Domains of the e-mail addresses that may log in through LOGIN_OIDC_ISSUER; * allows every account of that provider.',
  })
  const emails = env.list('LOGIN_OIDC_ALLOWED_EMAILS', {
    meaning:
      'Single e-mail addresses that may log in through LOGIN_OIDC_ISSUER; * allows every account of that provider.',
  })
  return {
    anybody: [...domains, ...emails].includes('*'),
    domains: namesOf(env, 'LOGIN_OIDC_ALLOWED_DOMAINS', {
      values: domains,
      normalize: normalizeDomain,
    }),
    emails: namesOf(env, 'LOGIN_OIDC_ALLOWED_EMAILS', {
      values: emails,
      normalize: normalizeEmail,
    }),
  }
}

function namesOf(
  env: EnvReader,
  setting: string,
  { values, normalize }: { values: readonly string[]; normalize: (text: string) => string | null },
): ReadonlySet<string> {
  const names = values.filter((value) => value !== '*').map((value) => normalize(value))
  if (names.includes(null))
    env.problem(`${setting} must hold ${nounOf(setting)}, separated by commas, or *`)
  return new Set(names.filter((name) => name !== null))
}

const nounOf = (setting: string): string =>
  setting.endsWith('DOMAINS') ? 'domains such as example.com' : 'e-mail addresses'
