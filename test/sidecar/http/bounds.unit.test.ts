import { describe, expect, it } from 'vitest'
import { silentLog } from '../../../core/lib/log.ts'
import { createAccessBook } from '../../../sidecar/accounts/access.ts'
import { createBoundedMap } from '../../../sidecar/identity/bounded-map.ts'
import { createIdentities } from '../../../sidecar/identity/identities.ts'
import { createMarks } from '../../../sidecar/identity/versions.ts'
import type { Verdict } from '../../../sidecar/identity/verifiers/types.ts'

const now = () => new Date(1_000_000)

describe('a bounded map', () => {
  it('forgets what was set longest ago, and tells of it', () => {
    const told: number[] = []
    const map = createBoundedMap<number>({ max: 3, forgotten: (value) => void told.push(value) })
    for (const [name, value] of [
      ['a', 1],
      ['b', 2],
      ['c', 3],
      ['a', 4],
      ['d', 5],
    ] as const)
      map.set(name, value)
    expect(['a', 'b', 'c', 'd'].map(map.get)).toEqual([4, undefined, 3, 5])
    expect([told, map.size()]).toEqual([[2], 3])
    map.remove('a')
    expect([map.get('a'), map.size(), told]).toEqual([undefined, 2, [2]])
  })

  it('never holds more than it may, and most of what it may', () => {
    const map = createBoundedMap<number>({ max: 100 })
    for (let i = 0; i < 10_000; i++) {
      map.set(`k${i}`, i)
      expect(map.size()).toBeLessThanOrEqual(100)
    }
    expect(map.size()).toBeGreaterThan(90)
    expect(map.get('k9999')).toBe(9_999)
  })
})

describe('an account that was forgotten', () => {
  const marks = createMarks({ max: 10 })
  const core = { getAccess: () => Promise.reject(new Error('not asked here')) }
  const limits = { ttlSeconds: 10, minimum: 1_000, lagSeconds: 20, max: 2 }
  const access = createAccessBook({ core, marks, now, ...limits })

  it('is not spent from by an identity that still leads to it', async () => {
    let verified = 0
    const verify = async (): Promise<Verdict> => {
      verified++
      const who = {
        issuer: 'i',
        clientId: 'acme',
        externalUserId: 'alice',
        userId: 'u',
        keyId: 'k',
      }
      const identity = { ...who, issuedAt: null, expiresAt: null, keepUntil: Infinity }
      return { kind: 'yes', identity, source: 'core' }
    }
    const identities = createIdentities({ verify, access, marks, max: 10, log: silentLog(), now })
    const presented = { credential: { kind: 'given', text: 'key' }, headers: null } as const
    const find = async () => {
      const found = await identities.find(presented, 1_000_000)
      return 'account' in found ? found.account : null
    }
    const account = await find()
    expect([await find(), verified]).toEqual([account, 1])
    for (const other of ['acme:bob', 'acme:carol']) access.accountOf(other)
    expect(account?.forgotten).toBe(true)
    const anew = await find()
    expect([anew === account, anew === access.accountOf('acme:alice'), verified]).toEqual([
      false,
      true,
      2,
    ])
  })
})
