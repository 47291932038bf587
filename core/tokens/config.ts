import type { EnvReader } from '../lib/env.ts'
import { type GrantsConfig, readGrantsConfig } from './grants/config.ts'
import { type SigningAlgorithm, signingAlgorithms } from './types.ts'

export interface TokensConfig {
  readonly alg: SigningAlgorithm
  readonly userTtlSeconds: number
  readonly machineTtlSeconds: number
  /** 0: signing keys are rotated by command only. */
  readonly signingKeyRotationDays: number
  readonly authorizationCodeTtlSeconds: number
  readonly grants: GrantsConfig
}

/** Declares and reads the settings of the issuer and of every way to get a token. */
export const readTokensConfig = (env: EnvReader): TokensConfig => ({
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
  signingKeyRotationDays: env.integer('SIGNING_KEY_ROTATION_DAYS', {
    fallback: '90',
    min: 0,
    max: 3_650,
    meaning: 'How long a key signs tokens before the next one does; 0 rotates only by command.',
  }),
  authorizationCodeTtlSeconds: env.integer('AUTHORIZATION_CODE_TTL_SECONDS', {
    fallback: '60',
    min: 10,
    max: 600,
    meaning: 'Lifetime of an authorization code.',
  }),
  grants: readGrantsConfig(env),
})
