import type { EnvReader } from '../core/lib/env.ts'
import { parseDecimal18 } from '../core/lib/money.ts'
import { readCoreAddress } from '../core/lib/core-link/address.ts'
import { readCertificateFiles } from '../core/lib/network/server-tls.ts'
import {
  readHost,
  readLogLevel,
  readRedisUrl,
  readRevocationBound,
  readSecrets,
} from '../core/lib/settings/shared.ts'
import { readIdentity, rememberTokensSeconds } from './identity/config.ts'
import { readSignerAddresses } from './callers/addresses.ts'
import { maxSecretBytes } from './callers/callers.ts'

/** The sidecar's settings, read once. Units are in the names. */
export type SidecarConfig = ReturnType<typeof readSidecarConfig>

export function readSidecarConfig(env: EnvReader) {
  const settings = readSettings(env)
  requireBound(env, settings)
  return settings
}

function readSettings(env: EnvReader) {
  return {
    listen: readListen(env),
    core: readCoreAddress(env, 'sidecar'),
    sidecarId: readSidecarId(env),
    redisUrl: readRedisUrl(env),
    webhookSecrets: env.live(() => readWebhookSecrets(env)),
    eventsSecrets: env.live(() =>
      readSecrets(env, 'EVENTS_SECRET', {
        meaning:
          'Secrets for POST /events, in the form of WEBHOOK_SECRET, which then is valid for POST /authorize only.',
      }),
    ),
    guessesMax: env.live(() => readGuessesMax(env)),
    signerAddresses: readSignerAddresses(env),
    cacheKey: env.live(() => readCacheKey(env)),
    cacheEntries: readCacheEntries(env),
    maxInFlight: env.live(() =>
      env.integer('AUTHORIZE_MAX_IN_FLIGHT', {
        meaning: 'Most decisions in progress; more are refused with 503 at once.',
        fallback: '1000',
        min: 1,
        max: 100_000,
      }),
    ),
    signingTtlSeconds: env.integer('SIGNING_TTL_SECONDS', {
      meaning:
        'Longest time for which the signer may skip the webhook; 0 for never. The cost of replays of a signed state within that time is not limited.',
      fallback: '0',
      min: 0,
      max: 60,
    }),
    identity: readIdentity(env),
    access: readAccess(env),
    maxPrice: readMaxPrice(env),
    decisions: env.live(() => readDecisions(env)),
    spool: readSpool(env),
  } as const
}

/**
 * Core promises users when a revocation takes effect. This sidecar must meet that time even if it
 * does not receive the revocation.
 */
function requireBound(
  env: EnvReader,
  { identity: { ttlSeconds }, signingTtlSeconds }: SettingsOfTime,
): void {
  const least = ttlSeconds + rememberTokensSeconds(ttlSeconds) + signingTtlSeconds
  if (readRevocationBound(env) >= least) return
  env.problem(
    `REVOCATION_BOUND_SECONDS must be at least ${least} here, and at core: IDENTITY_TTL_SECONDS, a token's time in memory and SIGNING_TTL_SECONDS together`,
  )
}

interface SettingsOfTime {
  readonly identity: { readonly ttlSeconds: number }
  readonly signingTtlSeconds: number
}

function readDecisions(env: EnvReader) {
  const logLevel = readLogLevel(env)
  const sample = env.integer('DECISION_SAMPLE', {
    meaning:
      'One of this many permissions is recorded, so that it can be explained; 0 records only those on request. 1 by default if LOG_LEVEL is debug.',
    fallback: '0',
    min: 0,
    max: 1_000_000_000,
  })
  return {
    sample: logLevel === 'debug' || logLevel === 'trace' ? 1 : sample,
    perSecond: env.integer('DECISION_RECORDS_PER_SECOND', {
      meaning:
        'Most decisions that a sidecar records in a second; further ones cannot be explained.',
      fallback: '50',
      min: 0,
      max: 10_000,
    }),
  } as const
}

function readListen(env: EnvReader) {
  return {
    host: readHost(env),
    certificate: readCertificateFiles(env),
    port: env.port('SIDECAR_PORT', {
      meaning: 'Port of the sidecar: POST /authorize and POST /events.',
      fallback: '8090',
    }),
    maxConnectionsPerAddress: env.live(() =>
      env.integer('SIDECAR_MAX_CONNECTIONS_PER_ADDRESS', {
        meaning:
          'Most simultaneous connections from one address, except those in SIGNER_ADDRESSES; one more replaces the oldest idle one.',
        fallback: '2000',
        min: 1,
        max: 1_000_000,
      }),
    ),
    maxConnections: env.live(() =>
      env.integer('SIDECAR_MAX_CONNECTIONS', {
        meaning:
          'Most simultaneous connections of the sidecar; one more replaces the oldest idle one.',
        fallback: '10000',
        min: 1,
        max: 1_000_000,
      }),
    ),
  } as const
}

const readCacheEntries = (env: EnvReader): number =>
  env.integer('SIDECAR_CACHE_ENTRIES', {
    meaning:
      "Most credentials, users and sessions, each, in the sidecar's memory; others are read from Redis or core.",
    fallback: '30000',
    min: 1_000,
    max: 10_000_000,
  })

const readGuessesMax = (env: EnvReader): number =>
  env.integer('WEBHOOK_GUESSES_PER_MINUTE', {
    meaning:
      'Wrong webhook secrets from one address in a minute, after which requests are refused with 429 before their secret is checked.',
    fallback: '20',
    min: 1,
    max: 100_000,
  })

/** Secret that signs entries of the shared cache; undefined to use the token of sidecars. */
const readCacheKey = (env: EnvReader): string | undefined =>
  readSecrets(env, 'CACHE_KEY', {
    meaning:
      'Secret, the same for all sidecars, that signs their shared entries in Redis, at least 32 characters; when unset it is derived from their token for core.',
  })[0]

/** Secrets that the signer may send; several during a rotation. */
function readWebhookSecrets(env: EnvReader): readonly string[] {
  const secrets = readSecrets(env, 'WEBHOOK_SECRET', {
    meaning:
      'Secrets of the signer, at least 32 characters each, separated by commas; several during a rotation.',
  })
  if (secrets.some((secret) => Buffer.byteLength(secret) > maxSecretBytes)) {
    env.problem(`WEBHOOK_SECRET: each must have at most ${maxSecretBytes} bytes`)
  }
  return secrets
}

function readAccess(env: EnvReader) {
  return {
    ttlSeconds: env.integer('ACCESS_TTL_SECONDS', {
      meaning:
        "How long core's answer about a user is cached. If the notice of a deactivation is lost, the user still works this long.",
      fallback: '10',
      min: 1,
      max: 60,
    }),
    untyped: readUsd(env, 'UNTYPED_CALL_USD', {
      meaning:
        'Assumed highest cost in dollars of a call of a session without a type or price; when unset, such calls are refused.',
    }),
    offlineUserBudget:
      readUsd(env, 'OFFLINE_BUDGET_USER_USD', {
        meaning: 'Most dollars that one user may spend beyond leases while core is unavailable.',
        fallback: '0',
      }) ?? 0,
    offlineBudget:
      readUsd(env, 'OFFLINE_BUDGET_USD', {
        meaning:
          'Most dollars that all users together may spend beyond leases while core is unavailable.',
        fallback: '0',
      }) ?? 0,
  } as const
}

// Core refuses a longer one in every report.
const idBytes = 200

function readSidecarId(env: EnvReader): string | undefined {
  const id = env.optional('SIDECAR_ID', {
    meaning:
      'Unique name of this sidecar, by which core counts its spending. Host name and port when unset.',
  })
  if (id !== undefined && Buffer.byteLength(id) > idBytes)
    env.problem(`SIDECAR_ID must be at most ${idBytes} bytes`)
  return id
}

const attosPerNano = 1_000_000_000n
const maxUsdNanos = 1_000_000_000_000_000

/** Reads decimal dollars as nano-dollars; null when unset. */
function readUsd(
  env: EnvReader,
  name: string,
  spec: { readonly meaning: string; readonly fallback?: string },
): number | null {
  const text = env.optional(name, spec)
  if (text === undefined) return null
  const nanos = Number((parseDecimal18(text) ?? -1n) / attosPerNano)
  if (parseDecimal18(text) !== null && nanos <= maxUsdNanos) return nanos
  env.problem(`${name} must be dollars as a decimal, at most 1000000`)
  return null
}

const mebibyte = 1024 * 1024

/** Null without a spool: events are then acknowledged after core has stored them. */
function readSpool(env: EnvReader) {
  const directory = env.optional('SPOOL_DIR', {
    meaning:
      'Folder, for this sidecar only, that stores pushed events until core has them. When unset, events are acknowledged after core has stored them.',
  })
  const maxBytes = env.integer('SPOOL_MAX_BYTES', {
    meaning: 'Most disk space of the spool; when it is full, pushes are refused with 503.',
    fallback: String(1024 * mebibyte),
    // A smaller spool could not hold the largest push.
    min: 8 * mebibyte,
    max: 64 * 1024 * mebibyte,
  })
  return directory === undefined ? null : ({ directory, maxBytes } as const)
}

const ceilings = {
  live: 'MAX_PRICE_LIVE_WEI',
  lv2v: 'MAX_PRICE_LV2V_WEI',
  fixed: 'MAX_PRICE_FIXED_WEI',
} as const
const units = { live: 'second', lv2v: '720p-pixel-second', fixed: 'unit' } as const

/** Price ceilings in wei per unit by session type, as canonical digits; absent when unset. */
function readMaxPrice(env: EnvReader): Readonly<Partial<Record<keyof typeof ceilings, string>>> {
  const read = (type: keyof typeof ceilings): string | undefined => {
    const name = ceilings[type]
    const digits = env.optional(name, {
      meaning: `Highest price of a ${type} session, wei per ${units[type]}.`,
    })
    if (digits === undefined || /^[1-9][0-9]{0,17}$/.test(digits)) return digits
    env.problem(`${name} must be a whole number of wei above 0`)
    return undefined
  }
  const [live, lv2v, fixed] = [read('live'), read('lv2v'), read('fixed')]
  return { ...(live && { live }), ...(lv2v && { lv2v }), ...(fixed && { fixed }) }
}
