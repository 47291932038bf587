import type { EnvReader } from '../lib/env.ts'
import { readEdgeUrl } from '../lib/settings/shared.ts'
import { type SigningAlgorithm, signingAlgorithms } from './types.ts'

export interface TokensConfig {
  readonly alg: SigningAlgorithm
  readonly userTtlSeconds: number
  readonly machineTtlSeconds: number
  /** 0 rotates signing keys only by command. */
  readonly signingKeyRotationDays: number
  readonly authorizationCodeTtlSeconds: number
  readonly signer: SignerConfig
  readonly device: DeviceConfig
  readonly login: LoginConfig
  /** Whether a user with nothing left to spend is refused a signer session. */
  readonly enforceAllowance: boolean
  /**
   * Origin of the builder API's edge, an allowed resource of tokens; undefined if there is no edge.
   */
  readonly edgeUrl: string | undefined
}

interface SignerConfig {
  readonly ttlSeconds: number
  readonly sessionTtlSeconds: number
}

interface DeviceConfig {
  readonly ttlSeconds: number
  readonly intervalSeconds: number
  readonly openPerClient: number
  readonly openPerAddress: number
}

interface LoginConfig {
  readonly ttlSeconds: number
  readonly refreshTtlSeconds: number
}

/** Declares and reads the settings of the issuer and of all grants (decision 10). */
export const readTokensConfig = (env: EnvReader): TokensConfig => ({
  alg: env.choice('TOKEN_ALG', {
    fallback: 'RS256',
    choices: signingAlgorithms,
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
  ...readRotation(env),
  signer: readSigner(env),
  device: readDevice(env),
  login: readLogin(env),
  enforceAllowance: readEnforceAllowance(env),
  edgeUrl: readEdgeUrl(env),
})

const readRotation = (env: EnvReader) => ({
  signingKeyRotationDays: env.integer('SIGNING_KEY_ROTATION_DAYS', {
    fallback: '90',
    min: 0,
    max: 3_650,
    meaning:
      'How long a key signs tokens before the next key replaces it; 0 rotates only by command.',
  }),
  authorizationCodeTtlSeconds: env.integer('AUTHORIZATION_CODE_TTL_SECONDS', {
    fallback: '60',
    min: 10,
    max: 600,
    meaning: 'Lifetime of an authorization code.',
  }),
})

const readSigner = (env: EnvReader): SignerConfig => ({
  ttlSeconds: env.integer('SIGNER_TOKEN_TTL_SECONDS', {
    fallback: '300',
    min: 30,
    max: 3_600,
    meaning: 'Lifetime of a signer JWT.',
  }),
  sessionTtlSeconds: env.integer('SIGNER_SESSION_TTL_SECONDS', {
    fallback: '86400',
    min: 60,
    max: 7_776_000,
    meaning: 'Lifetime of an opaque signer session.',
  }),
})

const readDevice = (env: EnvReader): DeviceConfig => ({
  ttlSeconds: env.integer('DEVICE_CODE_TTL_SECONDS', {
    fallback: '600',
    min: 60,
    max: 3_600,
    meaning: 'Lifetime of a device code.',
  }),
  intervalSeconds: env.integer('DEVICE_POLL_SECONDS', {
    fallback: '5',
    min: 1,
    max: 60,
    meaning: 'Initial number of seconds between two polls of a device.',
  }),
  openPerClient: env.integer('DEVICE_CODES_PER_CLIENT', {
    fallback: '10000',
    min: 1,
    max: 1_000_000,
    meaning: 'Most undecided device codes of one client; more are refused.',
  }),
  openPerAddress: env.integer('DEVICE_CODES_PER_ADDRESS', {
    fallback: '100',
    min: 1,
    max: 1_000_000,
    meaning: 'Most undecided device codes requested from one address; more are refused.',
  }),
})

const readLogin = (env: EnvReader): LoginConfig => ({
  ttlSeconds: env.integer('LOGIN_TOKEN_TTL_SECONDS', {
    fallback: '3600',
    min: 60,
    max: 86_400,
    meaning: 'Lifetime of the access and ID tokens of a login.',
  }),
  refreshTtlSeconds: env.integer('REFRESH_TOKEN_TTL_SECONDS', {
    fallback: '2592000',
    min: 3_600,
    max: 31_536_000,
    meaning: 'How long a login can be refreshed, counted from the login.',
  }),
})

const readEnforceAllowance = (env: EnvReader): boolean =>
  env.choice('ENFORCE_ALLOWANCE_ON_EXCHANGE', {
    fallback: 'false',
    choices: ['true', 'false'],
    meaning: 'Whether a signer session is refused with 402 when the user has no money left.',
  }) === 'true'
