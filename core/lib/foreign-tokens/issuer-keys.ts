import { type KeyObject, createPublicKey } from 'node:crypto'
import { compactVerify, errors } from 'jose'
import { LRUCache } from 'lru-cache'
import { isObject, parseObject, readText } from '../json.ts'
import { withoutFinalSlashes } from '../text/urls.ts'
import type { Now } from '../time.ts'
import { type ForeignAlgorithm, type UnprovedToken, readAlgorithm, readKid } from './form.ts'

/** Location of an issuer's keys: `jwksUri`, or the discovery document if that is null. */
export interface KeySource {
  readonly issuer: string
  readonly jwksUri: string | null
}

export interface IssuerKeysOptions {
  readonly fetchText: (url: string) => Promise<string>
  readonly now: Now
  /** Maximum number of cached sources. */
  readonly max?: number
}

/** The keys of an issuer cannot be loaded. The token itself may be valid. */
export class IssuerUnavailable extends Error {}

interface PublicKey {
  readonly kid: string | null
  readonly alg: ForeignAlgorithm
  readonly key: KeyObject
}

interface Source {
  keys: readonly PublicKey[] | null
  loadedAt: number
  triedAt: number
  loading: Promise<readonly PublicKey[]> | null
  failure: string
}

// After `aheadMs`, keys are refreshed in the background; after `freshMs`, before use. After
// `staleMs`, old keys are not used.
const aheadMs = 240_000
const freshMs = 300_000
const staleMs = 3_600_000
/** Minimum time between loads after an unknown `kid` or a failure. */
const cooldownMs = 10_000
const keysMax = 64
const smallestRsaBits = 2_048

/** Limits for a discovery document and for a key set. */
export const providerBounds = { timeoutMs: 10_000, maxBytes: 64 * 1024 } as const

/**
 * Caches the public keys of foreign issuers. Each source has at most one load in progress. Keys are
 * refreshed in the background after four minutes and before use after five, and stay usable for an
 * hour while the provider is unavailable. A flood of unknown `kid`s causes one load in ten seconds.
 * Sources never wait for each other.
 */
export function createIssuerKeys({ fetchText, now, max = 2_000 }: IssuerKeysOptions) {
  const sources = new LRUCache<string, Source>({ max })

  /**
   * Whether one of the issuer's keys signed the token. Throws IssuerUnavailable if no keys are
   * available within `waitMs`; the load then continues for the next token.
   */
  async function isSignedBy(
    source: KeySource,
    token: UnprovedToken,
    waitMs: number,
  ): Promise<boolean> {
    const key = await findKey(source, token, waitMs)
    return key !== null && verifySignature(token.text, key)
  }

  /**
   * The issuer's key for a token header; null if there is no such key. Throws IssuerUnavailable
   * like `isSignedBy`.
   */
  async function findKey(
    source: KeySource,
    token: Pick<UnprovedToken, 'header'>,
    waitMs: number,
  ): Promise<PublicKey | null> {
    const alg = readAlgorithm(token)
    const kid = readKid(token)
    if (alg === null || kid === undefined) return null
    const state = stateOf(source)
    const begin = now().getTime()
    const key = pick(await currentKeys(source, state, waitMs), { alg, kid })
    const restMs = waitMs - (now().getTime() - begin)
    return key ?? newerKey(source, state, { alg, kid, waitMs: restMs })
  }

  function stateOf({ issuer, jwksUri }: KeySource): Source {
    const name = `${issuer} ${jwksUri ?? ''}`
    const known = sources.get(name)
    if (known) return known
    const state: Source = { keys: null, loadedAt: 0, triedAt: 0, loading: null, failure: '' }
    sources.set(name, state)
    return state
  }

  async function currentKeys(
    source: KeySource,
    state: Source,
    waitMs: number,
  ): Promise<readonly PublicKey[]> {
    const age = now().getTime() - state.loadedAt
    const old = age < staleMs ? state.keys : null
    if (old && age < freshMs) {
      // Refresh in the background.
      if (age >= aheadMs) reload(source, state)?.catch(() => undefined)
      return old
    }
    const loading = reload(source, state)
    if (!loading) {
      if (old) return old
      throw new IssuerUnavailable(state.failure)
    }
    const loaded = bounded(loading, waitMs)
    return old ? loaded.catch(() => old) : loaded
  }

  /** The key after a reload; null if the last load was too recent. */
  async function newerKey(
    source: KeySource,
    state: Source,
    { alg, kid, waitMs }: { alg: ForeignAlgorithm; kid: string | null; waitMs: number },
  ): Promise<PublicKey | null> {
    const loading = reload(source, state)
    if (!loading) return null
    // If this load fails, the cached keys still apply, so the token has an unknown key and the
    // issuer counts as available.
    const keys = await bounded(loading, waitMs).catch(() => [])
    return pick(keys, { alg, kid })
  }

  /** The load in progress, or a new one; null while the last attempt is too recent. */
  function reload(source: KeySource, state: Source): Promise<readonly PublicKey[]> | null {
    if (state.loading) return state.loading
    const at = now().getTime()
    if (at - state.triedAt < cooldownMs) return null
    state.triedAt = at
    state.loading = load(source)
      .then((keys) => {
        Object.assign(state, { keys, loadedAt: now().getTime(), failure: '' })
        return keys
      })
      .catch((error: unknown) => {
        state.failure = error instanceof Error ? error.message : 'cannot be loaded'
        throw new IssuerUnavailable(state.failure, { cause: error })
      })
      .finally(() => void (state.loading = null))
    return state.loading
  }

  async function load({ issuer, jwksUri }: KeySource): Promise<readonly PublicKey[]> {
    const url = jwksUri ?? (await discover(issuer))
    const text = await fetchText(url).catch(explain('the key set'))
    return readKeySet(text)
  }

  /** OpenID Connect Discovery 1.0 section 4.3: the document must name the same issuer. */
  async function discover(issuer: string): Promise<string> {
    const url = `${issuer}/.well-known/openid-configuration`
    const document = parseObject(await fetchText(url).catch(explain('the discovery document')))
    if (!document) throw new Error('the discovery document is not a JSON object')
    if (withoutFinalSlashes(readText(document['issuer'])) !== issuer)
      throw new Error('the discovery document names another issuer')
    const jwksUri = readText(document['jwks_uri'])
    if (jwksUri === '') throw new Error('the discovery document has no jwks_uri')
    return jwksUri
  }

  return { isSignedBy, findKey }
}

export type IssuerKeys = ReturnType<typeof createIssuerKeys>

const explain =
  (what: string) =>
  (error: unknown): never => {
    const why = error instanceof Error ? error.message : 'cannot be loaded'
    throw new Error(`${what} ${why}`, { cause: error })
  }

async function bounded<T>(work: Promise<T>, waitMs: number): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(
    () => reject(new IssuerUnavailable('the keys of the issuer did not arrive in time')),
    waitMs,
  )
  work.catch(() => undefined)
  try {
    return await Promise.race([work, promise])
  } finally {
    clearTimeout(timer)
  }
}

/**
 * Returns the only matching key. Returns null if there are several, because the choice would be
 * ambiguous.
 */
function pick(
  keys: readonly PublicKey[],
  { alg, kid }: { alg: ForeignAlgorithm; kid: string | null },
): PublicKey | null {
  const fitting = keys.filter((key) => key.alg === alg && (kid === null || key.kid === kid))
  return fitting.length === 1 ? (fitting[0] ?? null) : null
}

/**
 * The keys of a JWK Set (RFC 7517) that may verify signatures; other keys are skipped. Throws if
 * the text is not a JWK Set.
 */
export function readKeySet(text: string): PublicKey[] {
  const members = parseObject(text)?.['keys']
  if (!Array.isArray(members)) throw new Error('the key set is not a JWK Set')
  return members.slice(0, keysMax).flatMap((member) => {
    const key = isObject(member) ? readKey(member) : null
    return key ? [key] : []
  })
}

function readKey(jwk: Readonly<Record<string, unknown>>): PublicKey | null {
  const { kty, kid, n, e, crv, x, y } = jwk
  const alg = algorithmOfKey(jwk)
  if (alg === null || !mayVerify(jwk)) return null
  const members: Record<string, unknown> = alg === 'RS256' ? { kty, n, e } : { kty, crv, x, y }
  try {
    const key = createPublicKey({ key: members, format: 'jwk' })
    const bits = key.asymmetricKeyDetails?.modulusLength ?? 0
    if (alg === 'RS256' && bits < smallestRsaBits) return null
    return { kid: typeof kid === 'string' ? kid : null, alg, key }
  } catch {
    return null
  }
}

/** Whether the key may verify signatures (RFC 7517 sections 4.2 and 4.3). */
const mayVerify = ({ use, key_ops: operations }: Readonly<Record<string, unknown>>): boolean =>
  (use === undefined || use === 'sig') &&
  (operations === undefined || (Array.isArray(operations) && operations.includes('verify')))

/** The key's algorithm by its type and its `alg`; null if we do not support it. */
function algorithmOfKey({
  kty,
  crv,
  alg,
}: Readonly<Record<string, unknown>>): ForeignAlgorithm | null {
  const fitting = kty === 'RSA' ? 'RS256' : kty === 'EC' && crv === 'P-256' ? 'ES256' : null
  return alg === undefined || alg === fitting ? fitting : null
}

async function verifySignature(text: string, { alg, key }: PublicKey): Promise<boolean> {
  try {
    await compactVerify(text, key, { algorithms: [alg] })
    return true
  } catch (error) {
    if (error instanceof errors.JOSEError) return false
    throw error
  }
}
