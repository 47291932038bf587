import {
  type JSONWebKeySet,
  type JWTVerifyGetKey,
  createLocalJWKSet,
  createRemoteJWKSet,
  errors,
} from 'jose'
import { parseObject, textOf } from '../../core/lib/json.ts'
import { fetchText } from '../../core/lib/text/fetch.ts'
import { withoutFinalSlashes } from '../../core/lib/text/urls.ts'
import type { Now } from '../../core/lib/time.ts'

const cooldownMs = 10_000
const maxAgeMs = 300_000
// Discovery, keys and access one after the other stay below two seconds, our promise to the signer.
const foreignTimeoutMs = 500
const documentMaxBytes = 262_144

interface KeySet {
  readonly find: JWTVerifyGetKey
  readonly at: number
}

/**
 * The keys of our own issuer, loaded from core. An unknown `kid` reloads them, at most every ten
 * seconds and once at a time. Throws when a key is not among them and they cannot be loaded, so that
 * an outage of core does not count against the token.
 */
export function createOwnKeys({
  load,
  now,
}: {
  load: () => Promise<JSONWebKeySet>
  now: Now
}): JWTVerifyGetKey {
  let latest: KeySet | null = null
  let loading: Promise<KeySet> | null = null

  function reload(): Promise<KeySet> {
    loading ??= load()
      .then((keys) => (latest = { find: createLocalJWKSet(keys), at: now().getTime() }))
      .finally(() => void (loading = null))
    return loading
  }

  /** Keys no older than `ageMs`. */
  async function keys(ageMs: number): Promise<KeySet> {
    const known = latest
    return known && now().getTime() - known.at < ageMs ? known : reload()
  }

  return async (header, token) => {
    // Older ones, too, while core does not answer: a key that was published once stays good.
    const older = latest
    const known = await keys(maxAgeMs).catch((error: unknown) => {
      if (older) return older
      throw error
    })
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
  let discovery: Promise<string> | null = null
  return async (header, token) => {
    if (!known) {
      discovery ??= discoverJwks(issuer).finally(() => void (discovery = null))
      known = createRemoteJWKSet(new URL(await discovery), options)
    }
    return known(header, token)
  }
}

async function discoverJwks(issuer: string): Promise<string> {
  const text = await fetchText(`${issuer}/.well-known/openid-configuration`, {
    timeoutMs: foreignTimeoutMs,
    maxBytes: documentMaxBytes,
  })
  const document = parseObject(text)
  const url = textOf(document?.['jwks_uri'])
  if (withoutFinalSlashes(textOf(document?.['issuer'])) !== issuer || !URL.canParse(url)) {
    throw new Error('the discovery document of JWT_ISSUER is not usable')
  }
  return url
}
