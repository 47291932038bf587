import { type KeyObject, createPublicKey, verify as verifyBytes } from 'node:crypto'
import { promisify } from 'node:util'
import { LRUCache } from 'lru-cache'
import { isObject, parseObject, textOf } from '../json.ts'
import { withoutFinalSlashes } from '../text/urls.ts'
import type { Now } from '../time.ts'
import { type ForeignAlgorithm, type UnprovedToken, algorithmOf, kidOf } from './form.ts'

/** Where an issuer's keys are: behind its discovery document, or at an address of their own. */
export interface KeySource {
  readonly issuer: string
  readonly jwksUri: string | null
}

export interface IssuerKeysOptions {
  readonly fetchText: (url: string) => Promise<string>
  readonly now: Now
  /** How many sources are remembered. */
  readonly max?: number
}

/** Why the keys of an issuer are not there. It says nothing about the token. */
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

// From the first age on keys are loaded anew beside their use, from the second before it; beyond the third old ones are not used.
const aheadMs = 240_000
const freshMs = 300_000
const staleMs = 3_600_000
/** An unknown `kid`, or a failure, loads again at most this often. */
const cooldownMs = 10_000
const keysMax = 64
const smallestRsaBits = 2_048

/** Of a discovery document, and of a key set. */
export const providerBounds = { timeoutMs: 10_000, maxBytes: 64 * 1024 } as const

/**
 * The public keys of foreign issuers: loaded once at a time for each source, anew beside the tokens that come after four
 * minutes and before those after five, good for an hour while the provider does not answer. A flood of unknown `kid`s loads
 * once in ten seconds. One source never waits for another.
 */
export function createIssuerKeys({ fetchText, now, max = 2_000 }: IssuerKeysOptions) {
  const sources = new LRUCache<string, Source>({ max })

  /**
   * Whether one of the issuer's keys signed the token. IssuerUnavailable when they cannot be had within `waitMs`; what is
   * under way then goes on, for the next token.
   */
  async function isSignedBy(
    source: KeySource,
    token: UnprovedToken,
    waitMs: number,
  ): Promise<boolean> {
    const key = await findKey(source, token, waitMs)
    return key !== null && verifySignature(token.text, key)
  }

  /** The issuer's key that a header names; null when it has none such. IssuerUnavailable as `isSignedBy`. */
  async function findKey(
    source: KeySource,
    token: Pick<UnprovedToken, 'header'>,
    waitMs: number,
  ): Promise<PublicKey | null> {
    const alg = algorithmOf(token)
    const kid = kidOf(token)
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
      // Nobody waits for these.
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

  /** The key after a reload, where the last one is long enough ago. */
  async function newerKey(
    source: KeySource,
    state: Source,
    { alg, kid, waitMs }: { alg: ForeignAlgorithm; kid: string | null; waitMs: number },
  ): Promise<PublicKey | null> {
    const loading = reload(source, state)
    if (!loading) return null
    // The keys that are there are good: a provider that fails now does not make the token's fault its own.
    const keys = await bounded(loading, waitMs).catch(() => [])
    return pick(keys, { alg, kid })
  }

  /** The load that is under way, or a new one; null while the last try is too recent. */
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

  /** OpenID Connect Discovery 1.0 section 4.3: the document is the issuer's own. */
  async function discover(issuer: string): Promise<string> {
    const url = `${issuer}/.well-known/openid-configuration`
    const document = parseObject(await fetchText(url).catch(explain('the discovery document')))
    if (!document) throw new Error('the discovery document is no JSON object')
    if (withoutFinalSlashes(textOf(document['issuer'])) !== issuer)
      throw new Error('the discovery document is of another issuer')
    const jwksUri = textOf(document['jwks_uri'])
    if (jwksUri === '') throw new Error('the discovery document names no jwks_uri')
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
    () => reject(new IssuerUnavailable('the keys of the issuer did not come in time')),
    waitMs,
  )
  work.catch(() => undefined)
  try {
    return await Promise.race([work, promise])
  } finally {
    clearTimeout(timer)
  }
}

/** One key, or none: of two that could be meant, neither is. */
function pick(
  keys: readonly PublicKey[],
  { alg, kid }: { alg: ForeignAlgorithm; kid: string | null },
): PublicKey | null {
  const fitting = keys.filter((key) => key.alg === alg && (kid === null || key.kid === kid))
  return fitting.length === 1 ? (fitting[0] ?? null) : null
}

/** The keys of a JWK Set (RFC 7517) that may verify signatures; others are passed over. Throws when it is none. */
export function readKeySet(text: string): PublicKey[] {
  const members = parseObject(text)?.['keys']
  if (!Array.isArray(members)) throw new Error('the key set is no JWK Set')
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

/** RFC 7517 sections 4.2 and 4.3. */
const mayVerify = ({ use, key_ops: operations }: Readonly<Record<string, unknown>>): boolean =>
  (use === undefined || use === 'sig') &&
  (operations === undefined || (Array.isArray(operations) && operations.includes('verify')))

/** The algorithm that a key is for, by its kind and by its own word; null for one that is not among ours. */
function algorithmOfKey({
  kty,
  crv,
  alg,
}: Readonly<Record<string, unknown>>): ForeignAlgorithm | null {
  const fitting = kty === 'RSA' ? 'RS256' : kty === 'EC' && crv === 'P-256' ? 'ES256' : null
  return alg === undefined || alg === fitting ? fitting : null
}

const verifyAsync = promisify<
  string,
  NodeJS.ArrayBufferView,
  Parameters<typeof verifyBytes>[2],
  NodeJS.ArrayBufferView,
  boolean
>(verifyBytes)

/** RFC 7518 sections 3.3 and 3.4, in the thread pool. */
async function verifySignature(text: string, { alg, key }: PublicKey): Promise<boolean> {
  const end = text.lastIndexOf('.')
  const signature = Buffer.from(text.slice(end + 1), 'base64url')
  if (signature.length === 0) return false
  const input = Buffer.from(text.slice(0, end))
  return verifyAsync(
    'sha256',
    input,
    alg === 'RS256' ? key : { key, dsaEncoding: 'ieee-p1363' },
    signature,
  )
}
