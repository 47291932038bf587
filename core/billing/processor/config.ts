import type { EnvReader } from '../../lib/env.ts'
import { type Reloadable, currentValue } from '../../lib/settings/reloadable.ts'
import type { Plane } from './port.ts'

const processorKinds = ['none', 'simulated', 'stripe'] as const
export type ProcessorKind = (typeof processorKinds)[number]

export interface StripePlaneConfig {
  readonly secretKey: Reloadable<string>
  readonly webhookSecrets: Reloadable<readonly string[]>
}

export interface StripeConfig {
  readonly live: StripePlaneConfig | null
  readonly test: StripePlaneConfig | null
  /** Without a trailing slash; null for Stripe's own. */
  readonly apiUrl: string | null
  /** Limit of one attempt; a request has at most two. */
  readonly timeoutMs: number
}

export type ProcessorConfig =
  | { readonly kind: 'none' | 'simulated' }
  | { readonly kind: 'stripe'; readonly stripe: StripeConfig }

/** Declares and reads the settings of the payment processor (decision 68). */
export function readProcessorConfig(env: EnvReader): ProcessorConfig {
  const stripe = readStripeConfig(env)
  const kind = env.choice('PAYMENT_PROCESSOR', {
    choices: processorKinds,
    fallback: stripe.live !== null ? 'stripe' : env.isEmbedded ? 'simulated' : 'none',
    meaning:
      'Payment processor: none, stripe (the default where STRIPE_SECRET_KEY is set), or simulated, which moves no money and runs only in the all-in-one service, where it is the default. Changing it does not move cards or accounts.',
  })
  if (kind === 'simulated' && !env.isEmbedded)
    env.problem(
      'PAYMENT_PROCESSOR=simulated runs only in the all-in-one service, because it takes no real money',
    )
  if (kind !== 'stripe') {
    if (stripe.test !== null && stripe.live === null)
      env.warning('STRIPE_TEST_SECRET_KEY has no effect without PAYMENT_PROCESSOR=stripe')
    return { kind }
  }
  if (stripe.live === null && stripe.test === null && env.problems.length === 0)
    env.problem('PAYMENT_PROCESSOR=stripe needs STRIPE_SECRET_KEY, STRIPE_TEST_SECRET_KEY, or both')
  warnOfMissingSecrets(env, stripe)
  return { kind, stripe }
}

const settings = {
  live: {
    key: 'STRIPE_SECRET_KEY',
    secrets: 'STRIPE_WEBHOOK_SECRETS',
    prefixes: ['sk_live_', 'rk_live_'],
    otherPrefixes: ['sk_test_', 'rk_test_'],
  },
  test: {
    key: 'STRIPE_TEST_SECRET_KEY',
    secrets: 'STRIPE_TEST_WEBHOOK_SECRETS',
    prefixes: ['sk_test_', 'rk_test_'],
    otherPrefixes: ['sk_live_', 'rk_live_'],
  },
} as const

function readStripeConfig(env: EnvReader): StripeConfig {
  const live = readPlane(env, 'live', {
    key: "Stripe's secret (sk_live_) or restricted (rk_live_) key, for real payments.",
    secrets:
      "Signing secrets (whsec_) of Stripe's webhook endpoints for live events, comma separated: one for the own account's events, one for connected accounts', and old ones during rotation.",
  })
  const test = readPlane(env, 'test', {
    key: "Stripe's secret key of test mode or of a sandbox (sk_test_, rk_test_). Test apps use it, and no others.",
    secrets: "Signing secrets of Stripe's webhook endpoints for test events, comma separated.",
  })
  const timeoutMs = env.integer('STRIPE_TIMEOUT_MS', {
    fallback: '10000',
    min: 100,
    // A charge is over before it is looked for: `firstCheckSeconds` of collection/attempts.ts.
    max: 25_000,
    meaning:
      'How long one attempt of a request to Stripe may take, in milliseconds. A request has at most two.',
  })
  return { live, test, apiUrl: readApiUrl(env), timeoutMs }
}

function readPlane(
  env: EnvReader,
  plane: Plane,
  meanings: { readonly key: string; readonly secrets: string },
): StripePlaneConfig | null {
  const { secrets } = settings[plane]
  const secretKey = env.live(() => readSecretKey(env, plane, meanings.key), Boolean)
  const webhookSecrets = env.live(() => readWebhookSecrets(env, secrets, meanings.secrets))
  return secretKey() === '' ? null : { secretKey, webhookSecrets }
}

/** Returns the secret key of a plane; empty if it is not set. */
function readSecretKey(env: EnvReader, plane: Plane, meaning: string): string {
  const { key, prefixes, otherPrefixes } = settings[plane]
  const secretKey = env.optional(key, { secret: true, meaning }) ?? ''
  if (secretKey === '') return ''
  if (otherPrefixes.some((prefix) => secretKey.startsWith(prefix)))
    env.problem(
      `${key} holds a key of the ${plane === 'live' ? 'test' : 'live'} plane: ${plane} payments need a key that starts with ${prefixes.join(' or ')}`,
    )
  else if (!prefixes.some((prefix) => secretKey.startsWith(prefix)) || /\s/.test(secretKey))
    env.problem(`${key} must be a key of Stripe that starts with ${prefixes.join(' or ')}`)
  return secretKey
}

function readWebhookSecrets(env: EnvReader, name: string, meaning: string): readonly string[] {
  const secrets = env.list(name, { secret: true, meaning })
  if (secrets.some((secret) => !/^whsec_\S{8,}$/.test(secret)))
    env.problem(`${name} must hold signing secrets, which start with whsec_, separated by commas`)
  return secrets
}

function readApiUrl(env: EnvReader): string | null {
  const url = env.url('STRIPE_API_URL', {
    schemes: ['https', 'http'],
    meaning:
      "Address of Stripe's API, for a proxy or a test double: a host, with a port if needed. http only on this machine.",
  })
  if (url === undefined) return null
  const { protocol, hostname, pathname, search, hash, username, password } = new URL(url)
  if (pathname !== '/' || search !== '' || hash !== '' || username !== '' || password !== '')
    env.problem('STRIPE_API_URL must be a host and a port, without path, query and credentials')
  if (protocol === 'http:' && !['127.0.0.1', 'localhost', '[::1]'].includes(hostname))
    env.problem(
      'STRIPE_API_URL must start with https:// unless it is on this machine, because requests carry the secret key',
    )
  return url
}

function warnOfMissingSecrets(env: EnvReader, stripe: StripeConfig): void {
  for (const plane of ['live', 'test'] as const) {
    if (currentValue(stripe[plane]?.webhookSecrets)?.length === 0)
      env.warning(
        `${settings[plane].secrets} is not set, so events of ${plane} payments are refused and payments are seen only by the sweep`,
      )
  }
}
