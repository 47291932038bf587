import { randomUUID } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { createRevokedTokens } from '../../../sidecar/identity/revoked-tokens.ts'
import { laterCall } from '../signer-bodies.ts'
import { type Harness, startHarness, until, vectorNow } from '../support.ts'
import { newSigningKey, sign } from './tokens.ts'

const key = await newSigningKey('k1')

async function withKey(env: Record<string, string> = {}): Promise<Harness> {
  const harness = await startHarness({ env })
  harness.core.script.jwks = { keys: [key.jwk] }
  return harness
}

const status = async ({ authorize }: Harness, token: string) =>
  (await authorize(laterCall(token, { AuthID: '' }))).json['status']

/** Resolves once the sidecar receives invalidations, with core's `checkToken` counter reset. */
async function listening(env: Record<string, string> = {}): Promise<Harness> {
  const harness = await withKey(env)
  const jti = randomUUID()
  const token = await sign(key, { jti })
  await until(async () => {
    harness.core.invalidate('token', jti)
    return (await status(harness, token)) === 401
  })
  harness.core.calls.checkToken = 0
  return harness
}

describe('a revoked token', () => {
  it.each(['jti', 'sid', 'descends_from'])(
    'is refused at once when its %s is revoked, and others are not',
    async (claim) => {
      const harness = await withKey()
      const id = randomUUID()
      const value = claim === 'descends_from' ? [randomUUID(), id] : id
      const token = await sign(key, { jti: randomUUID(), [claim]: value })
      const other = await sign(key, { jti: randomUUID(), sid: randomUUID() })
      expect([await status(harness, token), await status(harness, other)]).toEqual([200, 200])
      harness.core.invalidate('token', id)
      await until(async () => (await status(harness, token)) === 401)
      expect(await status(harness, other)).toBe(200)
    },
  )

  it('is refused by a sidecar that missed the revocation, which asks core', async () => {
    const harness = await withKey()
    const [jti, sid] = [randomUUID(), randomUUID()]
    harness.core.revoked.add(sid)
    expect(await status(harness, await sign(key, { jti, sid }))).toBe(401)
    expect(await status(harness, await sign(key, { jti }))).toBe(200)
    expect(harness.core.calls.checkToken).toBe(2)
  })

  it.each(['the client', 'the scope'])(
    'is refused when %s ended after its issue, and a later one is not',
    async (what) => {
      const harness = await listening()
      const older = await sign(key, { jti: randomUUID(), iat: vectorNow - 10 })
      const later = await sign(key, { jti: randomUUID(), iat: vectorNow })
      expect([await status(harness, older), await status(harness, later)]).toEqual([200, 200])
      const id = what === 'the client' ? 'tenant_a' : 'tenant_a:sign:job'
      harness.core.invalidate('token', id, (vectorNow - 1) * 1000)
      await until(async () => (await status(harness, older)) === 401)
      expect(await status(harness, later)).toBe(200)
    },
  )

  it('is a fault, not a refusal, when core must be asked and does not answer', async () => {
    const harness = await withKey()
    await status(harness, await sign(key, { jti: randomUUID() }))
    harness.core.script.failing = true
    expect(await status(harness, await sign(key, { jti: randomUUID() }))).toBe(503)
  })

  it('is checked at core again when it is too old to decide locally', async () => {
    const harness = await listening({ ACCESS_TTL_SECONDS: '60' })
    harness.clock.seconds = vectorNow + 600
    const jti = randomUUID()
    const token = await sign(key, { jti, iat: vectorNow + 550, exp: vectorNow + 3600 })
    expect([await status(harness, token), await status(harness, token)]).toEqual([200, 200])
    expect(harness.core.calls.checkToken).toBe(0)
    // The invalidation of its end is lost.
    harness.core.revoked.add(jti)
    harness.clock.seconds += 310
    expect(await status(harness, token)).toBe(401)
  })
})

describe('a token issued while invalidations are received', () => {
  it('needs no call to core', async () => {
    const harness = await listening()
    harness.clock.seconds = vectorNow + 120
    const iat = vectorNow + 119
    expect(await status(harness, await sign(key, { jti: randomUUID(), iat }))).toBe(200)
    expect(harness.core.calls.checkToken).toBe(0)
  })
})

describe('the list of revoked tokens', () => {
  it('has bounded memory, and asks core after an eviction', async () => {
    const lookups: string[] = []
    const core = { checkToken: async ({ jti }: { jti: string }) => lookups.push(jti) > 0 }
    let at = vectorNow
    const now = () => new Date(at * 1000)
    const tokens = createRevokedTokens({ core, ttlSeconds: 300, max: 2, now })
    tokens.restart()
    at += 100
    const token = (jti: string) =>
      tokens.isRevoked({ jti, loginId: null, grants: [jti], issuedAt: vectorNow + 90 })
    for (const id of ['a', 'b']) tokens.revoke(id)
    expect([await token('a'), await token('b'), await token('c'), lookups.length]).toEqual([
      true,
      true,
      false,
      0,
    ])
    tokens.revoke('d')
    expect([await token('a'), await token('d'), lookups]).toEqual([true, true, ['a']])
  })
})
