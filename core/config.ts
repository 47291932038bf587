import { createHash } from 'node:crypto'
import type { EnvReader } from './lib/env.ts'
import { type UsdMicros, parseInteger, usdMicros } from './lib/money.ts'
import { type BooksConfig, readBooksConfig } from './books/config.ts'
import {
  issuerPath,
  readCoreToken,
  readDatabase,
  readHost,
  readPublicUrl,
  readRedisUrl,
  readRevocationBound,
  readSecret,
} from './lib/settings.ts'
import { type BackendConfig, readBackendConfig } from './metering/backend/config.ts'
import { type MeteringConfig, readMeteringConfig } from './metering/config.ts'
import type { Peppers } from './platform/secrets.ts'
import { type GrantsConfig, readGrantsConfig } from './tokens/grants/config.ts'
import { type SigningAlgorithm, signingAlgorithms } from './tokens/types.ts'

export interface CoreConfig {
  readonly host: string
  readonly port: number
  /** Shared by our own processes; proves a call to core comes from one of them. */
  readonly serviceToken: string
  readonly databaseUrl: string
  readonly databasePoolMax: number
  readonly redisUrl: string | undefined
  readonly issuer: string
  readonly tokens: {
    readonly alg: SigningAlgorithm
    readonly userTtlSeconds: number
    readonly machineTtlSeconds: number
  }
  /** 0: only by command. */
  readonly signingKeyRotationDays: number
  readonly sealingKey: Buffer
  readonly peppers: Peppers
  readonly starterUsdMicros: UsdMicros
  readonly revocationBoundSeconds: number
  readonly authorizationCodeTtlSeconds: number
  /** A dashboard session nobody uses for so long is over. */
  readonly sessionIdleSeconds: number
  /** How long a client's older secrets work beside a new one. */
  readonly secretOverlapSeconds: number
  readonly routing: {
    readonly publicUrl: string
    readonly issuer: string
    readonly defaultDmzUrl: string
  }
  readonly grants: GrantsConfig
  readonly metering: MeteringConfig
  readonly backend: BackendConfig
  readonly books: BooksConfig
}

/** Reads core's settings. Problems are collected in the reader; the result is only good when there are none. */
export function readCoreConfig(env: EnvReader): CoreConfig {
  return {
    host: readHost(env),
    port: env.port('CORE_PORT', { fallback: '50051', meaning: 'gRPC port of core.' }),
    serviceToken: readCoreToken(env),
    ...readDatabase(env),
    redisUrl: readRedisUrl(env),
    issuer: readPublicUrl(env) + issuerPath,
    tokens: readTokens(env),
    signingKeyRotationDays: env.integer('SIGNING_KEY_ROTATION_DAYS', {
      fallback: '90',
      min: 0,
      max: 3_650,
      meaning: 'How long a key signs tokens before the next one does; 0 rotates only by command.',
    }),
    sealingKey: createHash('sha256')
      .update(
        readSecret(
          env,
          'KEY_ENCRYPTION_KEY',
          'Encrypts signing keys and stored answers at rest; at least 32 characters.',
        ),
      )
      .digest(),
    peppers: readPeppers(env),
    starterUsdMicros: readStarter(env),
    revocationBoundSeconds: readRevocationBound(env),
    authorizationCodeTtlSeconds: env.integer('AUTHORIZATION_CODE_TTL_SECONDS', {
      fallback: '60',
      min: 10,
      max: 600,
      meaning: 'Lifetime of an authorization code.',
    }),
    sessionIdleSeconds: env.integer('SESSION_IDLE_SECONDS', {
      fallback: '1209600',
      min: 60,
      max: 7_776_000,
      meaning: 'How long a dashboard session lives without being used; at most 90 days in all.',
    }),
    secretOverlapSeconds: env.integer('M2M_SECRET_OVERLAP_SECONDS', {
      fallback: '86400',
      min: 0,
      max: 2_592_000,
      meaning: "How long an M2M client's older secrets work after a new one was made.",
    }),
    routing: readRouting(env),
    grants: readGrantsConfig(env),
    metering: readMeteringConfig(env),
    backend: readBackendConfig(env),
    books: readBooksConfig(env),
  }
}

function readRouting(env: EnvReader): CoreConfig['routing'] {
  const publicUrl = readPublicUrl(env)
  const defaultDmzUrl =
    env.url('SIGNER_DMZ_URL', {
      schemes: ['http', 'https'],
      fallback: 'http://localhost:8935',
      meaning: 'Address of the remote signer for apps that name none of their own.',
    }) ?? ''
  return { publicUrl, issuer: publicUrl + issuerPath, defaultDmzUrl }
}

function readTokens(env: EnvReader) {
  return {
    alg: env.choice('TOKEN_ALG', {
      fallback: 'RS256',
      of: signingAlgorithms,
      meaning: 'Algorithm of new signing keys.',
    }),
    userTtlSeconds: env.integer('USER_TOKEN_TTL_SECONDS', {
      fallback: '300',
      min: 30,
      max: 3_600,
      meaning: 'Lifetime of a user JWT.',
    }),
    machineTtlSeconds: env.integer('MACHINE_TOKEN_TTL_SECONDS', {
      fallback: '3600',
      min: 60,
      max: 86_400,
      meaning: 'Lifetime of a machine JWT.',
    }),
  }
}

function readPeppers(env: EnvReader): Peppers {
  const meaning =
    'Peppers under which secrets are hashed, as id:value pairs; the first is used for new ones, each at least 32 characters.'
  const entries = env.list('SECRET_PEPPERS', { secret: true, meaning }).map((entry) => {
    const colon = entry.indexOf(':')
    return { id: entry.slice(0, Math.max(colon, 0)), value: entry.slice(colon + 1) }
  })
  if (
    entries.length === 0 ||
    entries.some(({ id, value }) => !/^[A-Za-z0-9_-]{1,32}$/.test(id) || value.length < 32)
  ) {
    env.problem(
      'SECRET_PEPPERS must be id:value pairs, separated by commas, each value at least 32 characters',
    )
  }
  const byId = new Map(entries.map(({ id, value }) => [id, Buffer.from(value)]))
  return { current: entries[0]?.id ?? '', byId }
}

function readStarter(env: EnvReader): UsdMicros {
  const text = env.text('STARTER_USD_MICROS', {
    fallback: '5000000',
    meaning: "Included usage of a new app's Starter plan, in USD micros.",
  })
  const value = parseInteger(text)
  if (value === null || value > 10n ** 15n)
    env.problem('STARTER_USD_MICROS must be a whole number of USD micros, at most 10^15')
  return usdMicros(value ?? 0n)
}
