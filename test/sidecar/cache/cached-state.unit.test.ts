import { describe, expect, it } from 'vitest'
import { silentLog } from '../../../core/lib/log.ts'
import { createAccounts } from '../../../sidecar/wallets/accounts.ts'
import { createBoundedMap, createVersions } from '../../../sidecar/cache/cached-state.ts'
import { createIdentities } from '../../../sidecar/identity/identities.ts'
import type { Verdict } from '../../../sidecar/identity/verifiers/verifier.ts'

const now = () => new Date(1_000_000)

describe('a bounded map', () => {
  it('evicts the entries set longest ago', () => {
    const map = createBoundedMap<number>({ max: 3 })
    for (const [name, value] of [
      ['a', 1],
      ['b', 2],
      ['c', 3],
      ['a', 4],
      ['d', 5],
    ] as const)
      map.set(name, value)
    expect(['a', 'b', 'c', 'd'].map(map.get)).toEqual([4, undefined, 3, 5])
    expect(map.size()).toBe(3)
    map.remove('a')
    expect([map.get('a'), map.size()]).toEqual([undefined, 2])
  })

  it('stays below its limit, but close to it', () => {
    const map = createBoundedMap<number>({ max: 100 })
    for (let i = 0; i < 10_000; i++) {
      map.set(`k${i}`, i)
      expect(map.size()).toBeLessThanOrEqual(100)
    }
    expect(map.size()).toBeGreaterThan(90)
    expect(map.get('k9999')).toBe(9_999)
  })
})

describe('an evicted account', () => {
  const versions = createVersions({ max: 10 })
  const accounts = createAccounts({ versions, ttlSeconds: 10, max: 2, mono: () => 0 })

  it('is replaced before an identity that still refers to it may spend', async () => {
    let verified = 0
    const verify = async (): Promise<Verdict> => {
      verified++
      const user = {
        issuer: 'i',
        clientId: 'acme',
        externalUserId: 'alice',
        userId: 'u',
        keyId: 'k',
      }
      const identity = { ...user, issuedAt: null, expiresAt: null, keepUntil: Infinity }
      return { kind: 'yes', identity, source: 'core' }
    }
    const identities = createIdentities({
      verify,
      usesHeadersOnly: () => false,
      mayReadHeaders: false,
      accounts,
      versions,
      max: 10,
      log: silentLog(),
      now,
    })
    const presentation = { credential: { kind: 'given', text: 'key' }, headers: null } as const
    const find = async () => {
      const resolution = await identities.resolve(presentation, 1_000_000)
      return 'account' in resolution ? resolution.account : null
    }
    const account = await find()
    expect([await find(), verified]).toEqual([account, 1])
    for (const other of ['acme:bob', 'acme:carol']) accounts.accountOf(other)
    expect(account?.evicted).toBe(true)
    const anew = await find()
    expect([anew === account, anew === accounts.accountOf('acme:alice'), verified]).toEqual([
      false,
      true,
      2,
    ])
  })

  it('never has a lease, which a second account could spend again', () => {
    const alice = accounts.accountOf('acme:alice')
    alice.returning = 1
    for (const other of ['acme:bob', 'acme:carol', 'acme:dave']) accounts.accountOf(other)
    expect(alice.evicted).toBe(false)
    expect(accounts.accountOf('acme:alice')).toBe(alice)
  })
})
