import type { EnvReader } from '../../lib/env.ts'

/** Lifetimes of what the grants hand out (decision 10). */
export interface GrantsConfig {
  readonly signerTtlSeconds: number
  readonly sessionTtlSeconds: number
  readonly deviceTtlSeconds: number
  readonly deviceIntervalSeconds: number
  readonly loginTtlSeconds: number
  readonly refreshTtlSeconds: number
  readonly enforceAllowance: boolean
}

export function readGrantsConfig(env: EnvReader): GrantsConfig {
  return {
    signerTtlSeconds: env.integer('SIGNER_TOKEN_TTL_SECONDS', {
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
    deviceTtlSeconds: env.integer('DEVICE_CODE_TTL_SECONDS', {
      fallback: '600',
      min: 60,
      max: 3_600,
      meaning: 'Lifetime of a device code.',
    }),
    deviceIntervalSeconds: env.integer('DEVICE_POLL_SECONDS', {
      fallback: '5',
      min: 1,
      max: 60,
      meaning: 'Seconds that a device waits between two polls, to begin with.',
    }),
    loginTtlSeconds: env.integer('LOGIN_TOKEN_TTL_SECONDS', {
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
    enforceAllowance:
      env.choice('ENFORCE_ALLOWANCE_ON_EXCHANGE', {
        fallback: 'false',
        of: ['true', 'false'],
        meaning: 'Whether a signer session is refused with 402 when nothing is left to spend.',
      }) === 'true',
  }
}
