import { describe, expect, it } from 'vitest'
import { openToken } from '../../../core/lib/foreign-tokens/form.ts'
import { createIssuerKeys, readKeySet } from '../../../core/lib/foreign-tokens/issuer-keys.ts'
import { type ForeignKey, newForeignKey, signForeign } from '../../support/web/foreign-issuer.ts'

const one = await newForeignKey('k1')
const two = await newForeignKey('k2')
const elliptic = await newForeignKey('e1', 'ES256')
const source = { issuer: 'https://idp.example', jwksUri: 'https://idp.example/keys' }

/** Keys of a provider. The test controls its responses and the clock. */
function start(first: readonly ForeignKey[]) {
  const state = {
    keys: first.map(({ jwk }) => jwk) as unknown[],
    at: Date.parse('2026-03-10T12:00:00Z'),
    loads: 0,
    answer: null as null | (() => Promise<string>),
  }
  const keys = createIssuerKeys({
    fetchText: async () => {
      state.loads++
      return state.answer ? state.answer() : JSON.stringify({ keys: state.keys })
    },
    now: () => new Date(state.at),
  })
  const isSignedBy = async (
    key: ForeignKey,
    header: Record<string, unknown> = {},
    from = source,
  ) => {
    const token = openToken(await signForeign(key, { sub: 'ada' }, header))
    if (!token) throw new Error('no token')
    return keys.isSignedBy(from, token, 200)
  }
  return { state, isSignedBy }
}

const settled = () => new Promise((resolve) => setImmediate(resolve))

describe('createIssuerKeys', () => {
  it('verifies RS256 and ES256 by kid, or with the only key of the algorithm', async () => {
    const { isSignedBy } = start([one, elliptic])
    expect(await isSignedBy(one)).toBe(true)
    expect(await isSignedBy(elliptic)).toBe(true)
    expect(await isSignedBy(one, { kid: undefined })).toBe(true)
    expect(await isSignedBy(one, { kid: 'e1' })).toBe(false)
    const ambiguous = start([one, two])
    expect(await ambiguous.isSignedBy(one, { kid: undefined })).toBe(false)
  })

  it('loads once for concurrent tokens, and once in ten seconds for unknown kids', async () => {
    const { state, isSignedBy } = start([one])
    await Promise.all(Array.from({ length: 20 }, () => isSignedBy(one)))
    expect(state.loads).toBe(1)
    for (let i = 0; i < 50; i++) expect(await isSignedBy(one, { kid: `made-up-${i}` })).toBe(false)
    expect(state.loads).toBe(1)
    state.at += 10_000
    await Promise.all(Array.from({ length: 50 }, (_, i) => isSignedBy(one, { kid: `other-${i}` })))
    expect(state.loads).toBe(2)
  })

  it('follows a rotation', async () => {
    const { state, isSignedBy } = start([one])
    expect(await isSignedBy(one)).toBe(true)
    state.keys = [two.jwk]
    state.at += 10_000
    expect(await isSignedBy(two)).toBe(true)
    expect(await isSignedBy(one)).toBe(false)
  })

  it('accepts withdrawn keys for five minutes without requests', async () => {
    const { state, isSignedBy } = start([one])
    expect(await isSignedBy(one)).toBe(true)
    state.keys = [two.jwk]
    state.at += 299_999
    expect(await isSignedBy(one)).toBe(true)
    state.at += 1
    expect(await isSignedBy(one)).toBe(false)
    expect(state.loads).toBe(2)
  })

  it('refreshes keys in the background during the fifth minute', async () => {
    const { state, isSignedBy } = start([one])
    expect(await isSignedBy(one)).toBe(true)
    state.at += 239_999
    expect(await isSignedBy(one)).toBe(true)
    expect(state.loads).toBe(1)
    const { promise, resolve } = Promise.withResolvers<string>()
    state.answer = () => promise
    state.at += 1
    for (let i = 0; i < 3; i++) expect(await isSignedBy(one)).toBe(true)
    expect(state.loads).toBe(2)
    resolve(JSON.stringify({ keys: [two.jwk] }))
    await settled()
    state.at += 60_001
    expect([await isSignedBy(one), await isSignedBy(two)]).toEqual([false, true])
    expect(state.loads).toBe(3)
  })

  it('uses the old keys while new ones do not arrive in time', async () => {
    const { state, isSignedBy } = start([one])
    expect(await isSignedBy(one)).toBe(true)
    state.answer = () => new Promise(() => undefined)
    state.at += 300_000
    expect(await isSignedBy(one)).toBe(true)
  })

  it('reloads after five minutes, and keeps keys for an hour while the provider is unavailable', async () => {
    const { state, isSignedBy } = start([one])
    expect(await isSignedBy(one)).toBe(true)
    state.answer = () => Promise.reject(new Error('cannot be reached'))
    state.at += 300_000
    expect(await isSignedBy(one)).toBe(true)
    await settled()
    expect(state.loads).toBe(2)
    state.at += 3_299_000
    expect(await isSignedBy(one)).toBe(true)
    state.at += 1_000
    await expect(isSignedBy(one)).rejects.toThrow('cannot be reached')
    state.answer = null
    await expect(isSignedBy(one)).rejects.toThrow('cannot be reached')
    state.at += 10_000
    expect(await isSignedBy(one)).toBe(true)
  })

  it.each([
    ['not JSON', 'ok'],
    ['a list', '[]'],
    ['an object without keys', '{}'],
    ['an object whose keys are not a list', '{"keys":{}}'],
  ])('keeps its keys when the response is %s', async (_what, text) => {
    const { state, isSignedBy } = start([one])
    expect(await isSignedBy(one)).toBe(true)
    state.answer = () => Promise.resolve(text)
    state.at += 300_000
    expect(await isSignedBy(one)).toBe(true)
    await settled()
    expect(await isSignedBy(one)).toBe(true)
    await expect(start([]).isSignedBy(one)).resolves.toBe(false)
  })

  it('delays only the tokens of a provider that hangs, for a limited time', async () => {
    const { state, isSignedBy } = start([one])
    state.answer = () => new Promise(() => undefined)
    const hanging = isSignedBy(one).catch((error: unknown) => String(error))
    await expect.poll(() => state.loads).toBe(1)
    state.answer = null
    const other = { issuer: 'https://other.example', jwksUri: 'https://other.example/keys' }
    expect(await isSignedBy(one, {}, other)).toBe(true)
    expect(await hanging).toContain('in time')
  })
})

describe('readKeySet', () => {
  it('skips keys that may not verify, and keeps the others', async () => {
    const { jwk } = one
    const weak = { kty: 'RSA', n: 'uJ3YvL1xkzU', e: 'AQAB', kid: 'weak' }
    const others = [
      { ...jwk, use: 'enc' },
      { ...jwk, key_ops: ['encrypt'] },
      { ...jwk, alg: 'PS256' },
      { ...jwk, alg: 'RS512' },
      { kty: 'oct', k: 'c2VjcmV0', kid: 'k1' },
      { ...elliptic.jwk, crv: 'P-384' },
      weak,
      null,
      'key',
      {},
    ]
    expect(readKeySet(JSON.stringify({ keys: others }))).toEqual([])
    expect(readKeySet(JSON.stringify({ keys: [...others, jwk] }))).toHaveLength(1)
    const bare = { kty: 'RSA', n: jwk['n'], e: jwk['e'] }
    expect(readKeySet(JSON.stringify({ keys: [bare] }))).toMatchObject([
      { kid: null, alg: 'RS256' },
    ])
  })
})
