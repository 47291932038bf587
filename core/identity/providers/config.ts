import type { EnvReader } from '../../lib/env.ts'
import { type Reloadable, currentValue } from '../../lib/settings/reloadable.ts'

export interface Auth0Config {
  /** Origin of the Auth0 tenant, without a trailing slash. */
  readonly url: string
  readonly clientId: string
  readonly clientSecret: Reloadable<string>
  /** Audience of the Management API. */
  readonly audience: string
  /** Connections in which users may be created. The first is the default. Never empty. */
  readonly connections: readonly [string, ...string[]]
}

export type UserProviderConfig =
  { readonly name: 'local' } | { readonly name: 'auth0'; readonly auth0: Auth0Config }

/** Declares and reads where the users of the builder API are created (decision 17). */
export function readUserProvider(env: EnvReader): UserProviderConfig {
  const name = env.choice('USER_PROVIDER', {
    choices: ['local', 'auth0'],
    fallback: 'local',
    meaning:
      'Identity provider at which the builder API also creates end users: local (no provider, only our own tables) or auth0.',
  })
  const auth0 = readAuth0(env)
  if (name === 'local') return { name }
  if (auth0.url === '' || auth0.clientId === '' || currentValue(auth0.clientSecret) === '')
    env.problem(
      'AUTH0_DOMAIN, AUTH0_CLIENT_ID and AUTH0_CLIENT_SECRET are required when USER_PROVIDER is auth0',
    )
  return { name, auth0 }
}

function readAuth0(env: EnvReader): Auth0Config {
  const url = readDomain(env)
  const clientId = env.optional('AUTH0_CLIENT_ID', {
    meaning:
      'Machine-to-machine client at Auth0 with create:users, read:users, update:users and read:connections on its Management API.',
  })
  const clientSecret = env.live(
    () =>
      env.optional('AUTH0_CLIENT_SECRET', {
        secret: true,
        meaning: 'Secret of AUTH0_CLIENT_ID.',
      }) ?? '',
    Boolean,
  )
  const [first = 'Username-Password-Authentication', ...others] = env.list('AUTH0_CONNECTION', {
    meaning:
      'Auth0 connections in which users may be created, separated by commas; the first is the default. Username-Password-Authentication when not set.',
  })
  const audience = env.optional('AUTH0_MANAGEMENT_AUDIENCE', {
    meaning:
      "Audience of Auth0's Management API; https://{AUTH0_DOMAIN}/api/v2/ when not set. Set it if AUTH0_DOMAIN is a custom domain.",
  })
  return {
    url,
    clientId: clientId ?? '',
    clientSecret,
    audience: audience ?? `${url}/api/v2/`,
    connections: [first, ...others],
  }
}

const loopbackHosts = new Set(['localhost', '127.0.0.1', '[::1]'])

// Requires https, except on loopback, because the client secret is sent over this connection.
function readDomain(env: EnvReader): string {
  const text = env.optional('AUTH0_DOMAIN', {
    meaning: 'Domain of the Auth0 tenant, such as example.eu.auth0.com.',
  })
  if (text === undefined) return ''
  const address = text.includes('://') ? text : `https://${text}`
  const url = URL.canParse(address) ? new URL(address) : null
  const isDomain = url !== null && url.href === `${url.origin}/`
  if (isDomain && (url.protocol === 'https:' || loopbackHosts.has(url.hostname))) return url.origin
  env.problem('AUTH0_DOMAIN must be a host name such as example.eu.auth0.com')
  return ''
}
