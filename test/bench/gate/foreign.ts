import { generateKeyPair, SignJWT } from 'jose'
import type { CoreDouble } from '../../fakes/sidecar-core.ts'
import type { Bench, Finding } from '../row.ts'
import { clientId, openGate, requestsOf } from './parts.ts'
import { alternate, measure, processorFinding } from './rounds.ts'
import { newTokens } from './tokens.ts'

const tokenCount = 1_000
const issuer = 'https://idp.example'

/**
 * Compares decisions about tokens of a trusted issuer, after their first use, with decisions about
 * our own tokens.
 */
export async function authorizeForeign(bench: Bench): Promise<Finding[]> {
  const gate = await openGate(bench)
  const sidecar = await gate.sidecar({
    IDENTITY_TTL_SECONDS: '3600',
    REVOCATION_BOUND_SECONDS: '3660',
  })
  const { core, load } = gate
  const own = await newTokens(core, tokenCount)
  const foreign = await newForeignTokens(core, tokenCount)
  const count = bench.quick ? 10_000 : 30_000
  const measureOf = (tokens: readonly string[]) => async () => {
    await load.ask(requestsOf(tokens))
    // Our own tokens are cached for only a minute, so each round begins with a look-up of each.
    await measure({ load, server: sidecar, count: tokens.length })
    return measure({ load, server: sidecar, count })
  }
  for (const tokens of [own, foreign]) await measureOf(tokens)()
  const calls = core.calls.verifyForeignToken
  const pair = await alternate(bench.quick ? 5 : 8, measureOf(own), measureOf(foreign))
  const again = core.calls.verifyForeignToken - calls
  const name = 'authorize-foreign, seen token of a trusted issuer'
  if (again > 0) throw new Error(`${name}: ${again} look-ups of tokens that were seen`)
  return [processorFinding(pair, { name, atLeast: 0.9, beside: 'our own JWT' })]
}

/**
 * Creates one token for each of `count` users. `core` accepts them as tokens of a trusted issuer.
 */
async function newForeignTokens(core: CoreDouble, count: number): Promise<string[]> {
  const { privateKey } = await generateKeyPair('RS256')
  const at = Math.floor(Date.now() / 1000)
  const newToken = async (i: number): Promise<string> => {
    const user = `foreign-${String(i).padStart(5, '0')}`
    const token = await new SignJWT({ iss: issuer, sub: user, azp: 'web', iat: at, exp: at + 3600 })
      .setProtectedHeader({ alg: 'RS256', kid: 'bench', typ: 'JWT' })
      .sign(privateKey)
    const ids = { clientId, externalUserId: user, userId: `user-of-${clientId}:${user}`, keyId: '' }
    core.users.set(`${clientId}:${user}`, { micros: 10n ** 12n })
    core.foreign.set(token, {
      identity: { ...ids, grants: [`issuer:0198c2a4-7d1e-7b3a-9c5f-00000000000${i % 10}:1`] },
      issuedAt: BigInt(at),
      expiresAt: BigInt(at + 3600),
      issuer,
    })
    return token
  }
  return Promise.all(Array.from({ length: count }, (_, i) => newToken(i)))
}
