import { describe, expect, it } from 'vitest'
import { type VerifiedIdentity, bindIdentity } from '../../../sidecar/identity/bound-identity.ts'

const key: VerifiedIdentity = {
  issuer: 'http://localhost:8080/api/v1/oidc',
  clientId: 'acme',
  externalUserId: 'alice',
  keyId: '01a2b3c4-0000-7000-8000-000000000001',
  grants: ['key:01a2b3c4-0000-7000-8000-000000000001', 'user-alice', 'acme'],
  issuedAt: null,
  expiresAt: null,
  keepUntil: 0,
}

function bind(identity: VerifiedIdentity) {
  const bound = bindIdentity(identity, 0)
  if (!('authId' in bound)) throw new Error(bound.code)
  return bound
}

describe('bindIdentity', () => {
  it('finds the API key of a key and of a token exchanged for it, and ignores similar grants', () => {
    expect(bind(key).apiKeyId).toBe(key.keyId)
    const exchanged = { keyId: 'a-jti', issuedAt: 1, grants: ['a-jti', 'key:' + key.keyId] }
    expect(bind({ ...key, ...exchanged }).apiKeyId).toBe(key.keyId)
    for (const grants of [[], ['a-jti', String(key.keyId)], ['key:session-1'], ['monkey:1']])
      expect(bind({ ...key, grants }).apiKeyId).toBe('')
  })

  it("uses the identity's own id as the only grant when a custom verifier returns no others", () => {
    const { grants: _, ...own } = key
    expect(bind(own).grants).toEqual([key.keyId])
    expect(bind({ ...own, keyId: null }).grants).toEqual([])
  })
})
