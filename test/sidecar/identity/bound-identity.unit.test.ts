import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  type VerifiedIdentity,
  toAnswer,
  bindIdentity,
} from '../../../sidecar/identity/bound-identity.ts'

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

describe('toAnswer', () => {
  it('renders the JSON of its members, with the right length', () => {
    const names = fc.oneof(fc.string({ minLength: 1 }), fc.string({ minLength: 1, unit: 'binary' }))
    const ceilings = fc.constantFrom(
      '',
      ',"maxPrice":{"price":7,"currency":"wei","unit":"seconds"}',
    )
    fc.assert(
      fc.property(names, fc.nat(), ceilings, (externalUserId, expiry, maxPrice) => {
        const bound = bindIdentity({ ...key, externalUserId }, 0)
        fc.pre('authId' in bound)
        const { body, bytes } = toAnswer(bound, expiry, maxPrice)
        const identity = {
          issuer: key.issuer,
          client_id: 'acme',
          usage_subject: externalUserId,
          usage_subject_type: 'external_user_id',
        }
        const members = { status: 200, auth_id: `acme:${externalUserId}`, externalUserId, expiry }
        const plain = JSON.stringify({ ...members, identity }).slice(0, -1)
        expect(body).toBe(`${plain}${maxPrice}}`)
        expect(bytes).toBe(Buffer.byteLength(body))
      }),
    )
  })
})

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
