import { issuerPath } from '../../proto/headers.ts'
import type { EnvReader } from '../lib/env.ts'
import { type DeploymentIssuer, readDeploymentIssuer } from '../lib/foreign-tokens/deployment.ts'
import { type UsdMicros, parseInteger, usdMicros } from '../lib/money.ts'
import { type AllowedLogins, readAllowedLogins, readPublicUrl } from '../lib/settings/shared.ts'
import { normalizeDomain } from '../lib/text/email.ts'
import { isClientId } from '../shared/ids.ts'
import { type UserProviderConfig, readUserProvider } from './providers/config.ts'
import { type SignUpPolicy, signUpModes } from './types.ts'

export interface IdentityConfig {
  /** Allowance of a new app's Starter plan. */
  readonly starterUsdMicros: UsdMicros
  /** Idle time in seconds after which a dashboard session ends. */
  readonly sessionIdleSeconds: number
  /** Seconds for which a client's older secrets work after a rotation. */
  readonly secretOverlapSeconds: number
  /** Who may sign in through the external provider. */
  readonly allowedLogins: AllowedLogins
  readonly appCreation: AppCreation
  readonly signUp: SignUpPolicy
  /** Maximum number of apps per account. */
  readonly appsPerOwner: number
  readonly userProvider: UserProviderConfig
  readonly deploymentIssuer: DeploymentIssuer
  /** Maximum number of registered clients per app. */
  readonly registrationsPerApp: number
  /** Days without use after which a registered client is deleted. */
  readonly registrationUnusedDays: number
  /** Client id of the platform app; null for the one that core creates. */
  readonly platformAppId: string | null
}

export type AppCreation = 'admins' | 'accounts'

/** Declares and reads the settings of apps, users and accounts. */
export const readIdentityConfig = (env: EnvReader): IdentityConfig => ({
  starterUsdMicros: readStarter(env),
  sessionIdleSeconds: env.integer('SESSION_IDLE_SECONDS', {
    fallback: '1209600',
    min: 60,
    max: 7_776_000,
    meaning: 'Lifetime of a dashboard session since its last use; at most 90 days in all.',
  }),
  secretOverlapSeconds: env.integer('M2M_SECRET_OVERLAP_SECONDS', {
    fallback: '86400',
    min: 0,
    max: 2_592_000,
    meaning: "How long an M2M client's older secrets stay valid after a new one was made.",
  }),
  allowedLogins: readAllowedLogins(env),
  appCreation: env.choice('APP_CREATION', {
    choices: ['admins', 'accounts'],
    fallback: 'admins',
    meaning: 'Who may create apps: platform admins, or every account.',
  }),
  signUp: readSignUp(env),
  appsPerOwner: env.integer('QUOTA_APPS_PER_OWNER', {
    fallback: '10',
    min: 0,
    max: 1_000_000,
    meaning: 'Most apps that one account may own; ./tollgate quota changes it for an account.',
  }),
  userProvider: readUserProvider(env),
  deploymentIssuer: readDeploymentIssuer(env, readPublicUrl(env) + issuerPath),
  ...readRegistrations(env),
  platformAppId: readPlatformAppId(env),
})

function readSignUp(env: EnvReader): SignUpPolicy {
  const mode = env.choice('SIGN_UP', {
    choices: signUpModes,
    fallback: 'off',
    meaning:
      'Who may create an account by a link in a mail: no address, addresses that are invited to an app, or also others (address). It needs SMTP_URL, except in the all-in-one service.',
  })
  const names = env.list('SIGN_UP_DOMAINS', {
    meaning:
      'With SIGN_UP=address, the only domains of e-mail addresses that may sign up without an invitation. Subdomains are not included.',
  })
  const domains = names.map((name) => normalizeDomain(name)).filter((name) => name !== null)
  if (domains.length < names.length)
    env.problem('SIGN_UP_DOMAINS must hold domains such as example.com, separated by commas')
  if (names.length > 0 && mode !== 'address') env.problem('SIGN_UP_DOMAINS needs SIGN_UP=address')
  return { mode, domains: names.length === 0 ? null : new Set(domains) }
}

function readPlatformAppId(env: EnvReader): string | null {
  const id = env.optional('PLATFORM_APP_ID', {
    meaning:
      'Client id (app_…) of the platform app, whose end users are the owners of apps; core creates one at its first start. When not set again, the app in use stays.',
  })
  if (id !== undefined && !isClientId(id))
    env.problem('PLATFORM_APP_ID must be the client id of an app, app_ and 24 hexadecimal digits')
  return id ?? null
}

const readRegistrations = (env: EnvReader) => ({
  registrationsPerApp: env.integer('REGISTRATIONS_PER_APP', {
    fallback: '1000',
    min: 0,
    max: 1_000_000,
    meaning: 'Most clients that may register themselves with one app.',
  }),
  registrationUnusedDays: env.integer('REGISTRATION_UNUSED_DAYS', {
    fallback: '90',
    min: 1,
    max: 3_650,
    meaning: 'Days without use after which a client that registered itself is deleted.',
  }),
})

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
