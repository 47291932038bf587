import type { EnvReader } from '../core/lib/env.ts'
import { readCoreAddress, readHost, readRedisUrl } from '../core/lib/settings.ts'
import { readIdentity } from './identity/config.ts'
import { maxSecretBytes } from './http/caller.ts'

/** The sidecar's settings, read once. Units are in the names. */
export type SidecarConfig = ReturnType<typeof readSidecarConfig>

export function readSidecarConfig(env: EnvReader) {
  return {
    listen: readListen(env),
    logLevel: env.text('LOG_LEVEL', {
      meaning: 'trace, debug, info, warn, error or silent.',
      fallback: 'info',
    }),
    core: readCoreAddress(env),
    redisUrl: readRedisUrl(env),
    webhookSecrets: readSecrets(env),
    maxInFlight: env.integer('AUTHORIZE_MAX_IN_FLIGHT', {
      meaning: 'Decisions at work at the same time; more are refused with 503 at once.',
      fallback: '1000',
      min: 1,
      max: 100_000,
    }),
    signingTtlSeconds: env.integer('SIGNING_TTL_SECONDS', {
      meaning: 'Longest time for which the signer may skip the webhook; 0 for never.',
      fallback: '10',
      min: 0,
      max: 60,
    }),
    identity: readIdentity(env),
    access: readAccess(env),
    maxPrice: readMaxPrice(env),
    spool: readSpool(env),
  } as const
}

function readListen(env: EnvReader) {
  return {
    host: readHost(env),
    port: env.port('SIDECAR_PORT', {
      meaning: 'Port of the sidecar: POST /authorize and POST /events.',
      fallback: '8090',
    }),
    maxConnections: env.integer('SIDECAR_MAX_CONNECTIONS', {
      meaning: 'Connections the sidecar holds at once; more are closed.',
      fallback: '10000',
      min: 1,
      max: 1_000_000,
    }),
  } as const
}

function readSecrets(env: EnvReader): readonly string[] {
  const secrets = readWebhookSecrets(env)
  if (secrets.some((secret) => Buffer.byteLength(secret) > maxSecretBytes)) {
    env.problem(`WEBHOOK_SECRET: each must have at most ${maxSecretBytes} bytes`)
  }
  return secrets
}

function readAccess(env: EnvReader) {
  const minimum = env.integer('ACCESS_MIN_USD_MICROS', {
    meaning: 'Balance below which signing is refused, in millionths of a dollar.',
    fallback: '1',
    min: 1,
    max: 1_000_000_000,
  })
  return {
    minimumUsdNanos: minimum * 1000,
    lagSeconds: env.integer('EVENT_LAG_SECONDS', {
      meaning:
        'How long a payment allowed here may take to reach the ledger; until then it counts as spent.',
      fallback: '20',
      min: 1,
      max: 300,
    }),
    ttlSeconds: env.integer('ACCESS_TTL_SECONDS', {
      meaning: 'How long a balance read from core may be spent from without asking again.',
      fallback: '10',
      min: 1,
      max: 60,
    }),
  } as const
}

const mebibyte = 1024 * 1024

/** Null without a spool: events are then acknowledged when core has them. */
function readSpool(env: EnvReader) {
  const directory = env.optional('SPOOL_DIR', {
    meaning:
      'Folder in which the sidecar keeps pushed events until core has them, its own; unset: events are acknowledged when core has them.',
  })
  const maxBytes = env.integer('SPOOL_MAX_BYTES', {
    meaning: 'Disk that the spool may take; when it is full, pushes are refused with 503.',
    fallback: String(1024 * mebibyte),
    // A smaller spool would not hold the largest push.
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

/** Price ceilings in wei for a unit by session type, as canonical digits; absent for none. */
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

/** Secrets that the signer may send; several while one is replaced. */
const readWebhookSecrets = (env: EnvReader): string[] =>
  env.list('WEBHOOK_SECRET', {
    secret: true,
    meaning: 'Secrets the signer may present, separated by commas; several while one is replaced.',
  })
