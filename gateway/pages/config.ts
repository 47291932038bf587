import type { EnvReader } from '../../core/lib/env.ts'
import type { Reloadable } from '../../core/lib/settings/reloadable.ts'
import { readAllowedLogins } from '../../core/lib/settings/shared.ts'

const loopbackHosts = new Set(['localhost', '127.0.0.1', '[::1]'])

/** An external OpenID provider through which people can log in. */
export interface LoginProviderConfig {
  readonly issuer: string
  readonly clientId: string
  readonly clientSecret: Reloadable<string>
  /** The name shown on the login page. */
  readonly name: string
}

/**
 * Returns the provider's settings, undefined if no setting is present. Reports a problem if some
 * are missing or no login is allowed.
 */
export function readLoginProvider(env: EnvReader): LoginProviderConfig | undefined {
  const issuer = env.url('LOGIN_OIDC_ISSUER', {
    meaning:
      'Issuer of an external OpenID provider for logins: https, or http on loopback. Its redirect URI is {PUBLIC_URL}/login/provider/callback.',
    schemes: ['https', 'http'],
  })
  if (issuer !== undefined && !isProtected(new URL(issuer)))
    env.problem(
      'LOGIN_OIDC_ISSUER must start with https://; http:// is only for localhost, 127.0.0.1 and [::1]',
    )
  const clientId = env.optional('LOGIN_OIDC_CLIENT_ID', {
    meaning: 'Our client id at that provider.',
  })
  const clientSecret = env.live(
    () =>
      env.optional('LOGIN_OIDC_CLIENT_SECRET', {
        meaning: 'Our client secret at that provider.',
        secret: true,
      }) ?? '',
    Boolean,
  )
  const hasSecret = clientSecret() !== ''
  const name = env.text('LOGIN_OIDC_NAME', {
    meaning: 'Name of that provider on the login page.',
    fallback: 'single sign-on',
  })
  const allowed = readAllowedLogins(env)
  if (issuer === undefined && clientId === undefined && !hasSecret) return undefined
  if (issuer === undefined || clientId === undefined || !hasSecret) {
    env.problem(
      'LOGIN_OIDC_ISSUER, LOGIN_OIDC_CLIENT_ID and LOGIN_OIDC_CLIENT_SECRET must be set together',
    )
    return undefined
  }
  if (!allowed.anybody && allowed.domains.size + allowed.emails.size === 0)
    env.problem(
      'LOGIN_OIDC_ALLOWED_DOMAINS or LOGIN_OIDC_ALLOWED_EMAILS must list who may log in through LOGIN_OIDC_ISSUER, such as example.com; * allows every account of that provider',
    )
  return { issuer, clientId, clientSecret, name }
}

// The client secret and the person's identity cross this connection.
const isProtected = ({ protocol, hostname }: URL): boolean =>
  protocol === 'https:' || loopbackHosts.has(hostname)
