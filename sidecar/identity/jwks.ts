import {
  type JSONWebKeySet,
  type JWTVerifyGetKey,
  createLocalJWKSet,
  createRemoteJWKSet,
  errors,
} from 'jose'
import type { Now } from '../../core/lib/time.ts'
import { isObject, textOf } from '../http/json.ts'

const cooldownMs = 10_000
const maxAgeMs = 300_000
// Discovery, keys and access one after the other stay below the two seconds the signer is promised.
const foreignTimeoutMs = 500

interface Loaded {
  readonly find: JWTVerifyGetKey
  readonly at: number
}

/**
 * The keys of our own issuer, as core gives them. An unknown `kid` makes it ask again, at most
 * every ten seconds and once at a time. Throws when they were never loaded and cannot be: a
 * dependency's fault is not the token's.
 */
export function createOwnKeys({
  load,
  now,
}: {
  load: () => Promise<JSONWebKeySet>
  now: Now
}): JWTVerifyGetKey {
  let loaded: Loaded | null = null
  let loading: Promise<Loaded> | null = null

  function reload(): Promise<Loaded> {
    loading ??= load()
      .then((keys) => (loaded = { find: createLocalJWKSet(keys), at: now().getTime() }))
      .finally(() => void (loading = null))
    return loading
  }

  /** Keys no older than `ageMs`; older ones stay good while core is away. */
  async function keys(ageMs: number): Promise<Loaded> {
    const known = loaded
    if (!known) return reload()
    return now().getTime() - known.at < ageMs ? known : reload().catch(() => known)
  }

  return async (header, token) => {
    const known = await keys(maxAgeMs)
    try {
      return await known.find(header, token)
    } catch (error) {
      const newer = error instanceof errors.JWKSNoMatchingKey ? await keys(cooldownMs) : known
      if (newer === known) throw error
      return newer.find(header, token)
    }
  }
}

/**
 * The keys of a foreign issuer, found through its discovery document unless `jwksUrl` names
 * them.
 */
export function createForeignKeys({
  issuer,
  jwksUrl,
}: {
  issuer: string
  jwksUrl: string | undefined
}): JWTVerifyGetKey {
  const options = {
    timeoutDuration: foreignTimeoutMs,
    cooldownDuration: cooldownMs,
    cacheMaxAge: maxAgeMs,
  }
  let known = jwksUrl === undefined ? null : createRemoteJWKSet(new URL(jwksUrl), options)
  let finding: Promise<string> | null = null
  return async (header, token) => {
    if (!known) {
      finding ??= discoverJwks(issuer).finally(() => void (finding = null))
      known = createRemoteJWKSet(new URL(await finding), options)
    }
    return known(header, token)
  }
}

async function discoverJwks(issuer: string): Promise<string> {
  const response = await fetch(`${issuer}/.well-known/openid-configuration`, {
    signal: AbortSignal.timeout(foreignTimeoutMs),
    redirect: 'error',
  })
  const document: unknown = await response.json()
  const found = isObject(document) ? document : {}
  const url = textOf(found['jwks_uri'])
  if (
    !response.ok ||
    textOf(found['issuer']).replace(/\/+$/, '') !== issuer ||
    !URL.canParse(url)
  ) {
    throw new Error('the discovery document of JWT_ISSUER is not usable')
  }
  return url
}
