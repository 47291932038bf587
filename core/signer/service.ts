import { DomainError } from '../../proto/errors.ts'
import { Scope } from '../../proto/scopes.ts'
import type { Ledger } from '../balances/ledger/ledger.ts'
import type { Fault } from '../identity/issuers/verification.ts'
import type { ForeignTokens } from '../identity/issuers/foreign-tokens.ts'
import type { Users } from '../identity/users/users.ts'
import type { User } from '../identity/types.ts'
import { type AppId, type UserId, authId, isUuid } from '../shared/ids.ts'
import type { Shared } from '../shared/shared.ts'
import type { Keys } from '../keys/keys.ts'
import type { EthRate } from '../lib/money.ts'
import { isReadable } from '../lib/text/readable.ts'
import { toSeconds } from '../lib/time.ts'
import { createBatchLoader } from '../lib/concurrency.ts'
import type { TokensApi } from '../tokens/module.ts'
import type { SignerSessions } from '../tokens/sessions/signer-sessions.ts'

type Deps = Shared & {
  readonly ledger: Ledger
  readonly users: Users
  readonly keys: Keys
  readonly sessions: SignerSessions
  readonly foreignTokens: ForeignTokens
  /** Returns the newest rate that may still price a ticket now. */
  readonly usableRate: () => Promise<EthRate | null>
  /** True for a JWT that is revoked or descends from something that has ended. */
  readonly isVoidToken: TokensApi['isVoidToken']
}

const keysMax = 200
const rateMs = 1_000
// A sidecar waits 800 ms in total. Keys that arrive later are used for the next token.
const foreignKeysMs = 500

/** Maps each fault to its name in decisions (docs/signer-answers.md). */
const foreignFaults: Readonly<Record<Fault, string>> = {
  form: 'token_form',
  typ: 'token_form',
  alg: 'token_form',
  issuer: 'token_issuer',
  audience: 'token_audience',
  client: 'token_client',
  user: 'invalid_identity',
  expiry: 'token_expired',
  signature: 'token_signature',
  scope: 'insufficient_scope',
  unavailable: 'issuer_unavailable',
}

const refused = (fault: string) => ({
  identity: undefined,
  access: undefined,
  issuedAt: 0n,
  expiresAt: 0n,
  issuer: '',
  fault,
})
const noRate = { at: -Infinity, value: Promise.resolve<EthRate | null>(null) }

/** The fields of a JWT that a sidecar has read. */
interface TokenIds {
  readonly jti: string
  readonly loginId: string
  readonly grants: readonly string[]
  /** Unix seconds. */
  readonly issuedAt: bigint
}

// Above the number in any token of ours.
const tokenGrantsMax = 32

interface Subject {
  readonly appId: AppId
  readonly userId: UserId
}

/**
 * Verifies credentials for sidecars before a call is signed: returns the identity behind a
 * credential, and its user's access.
 */
export function createSigner({
  pool,
  ledger,
  users,
  keys,
  sessions,
  foreignTokens,
  usableRate,
  isVoidToken,
  now,
}: Deps) {
  let rate = noRate

  async function verifyApiKey(presented: string) {
    const verified = await findOwner(presented)
    if (!verified.identity) throw new DomainError('TOKEN_INVALID', 'the API key is not valid')
    return verified
  }

  /** Returns one result per key, in order. An invalid key has no identity. */
  async function verifyApiKeys(presented: readonly string[]) {
    if (presented.length > keysMax)
      throw new DomainError('REQUEST_INVALID', `at most ${keysMax} keys at once`)
    return Promise.all(presented.map(findOwner))
  }

  async function findOwner(presented: string) {
    const owner = await keys.verifySigning(presented)
    if (!owner) return { identity: undefined, access: undefined }
    const access = await accessOf({ ...owner, id: owner.userId, status: 'active' })
    return { identity: owner, access }
  }

  async function verifySession(token: string) {
    const session = await sessions.verify(token)
    const user = session && (await users.findById(session.appId, session.userId))
    if (!session || !user)
      throw new DomainError('TOKEN_INVALID', 'the signer session is not valid, or has expired')
    return {
      identity: { ...session, keyId: session.id },
      access: await accessOf(user),
      expiresAt: BigInt(toSeconds(session.expiresAt)),
      scope: session.scope,
    }
  }

  /**
   * Returns a fault for an invalid token or a problem of its issuer, which is not an outage of
   * ours. Provisions an unknown user, because signing does.
   */
  async function verifyForeign(token: string) {
    const subject = await foreignTokens.verify(token, { waitMs: foreignKeysMs })
    if ('fault' in subject) return refused(foreignFaults[subject.fault])
    const { trust, externalUserId, grant } = subject
    if (!subject.publicScopes.includes(Scope.signJob)) return refused('insufficient_scope')
    const user = await foreignTokens.provision(subject)
    if (!user) return refused('invalid_identity')
    const { clientId, issuer } = trust
    return {
      identity: { clientId, externalUserId, userId: user.id, keyId: '', grants: [grant] },
      access: await accessOf(user),
      issuedAt: BigInt(subject.issuedAt),
      expiresAt: BigInt(subject.expiresAt),
      issuer,
      fault: '',
    }
  }

  /**
   * Provisions an unknown user of a known app, because signing does. Throws NOT_FOUND for an
   * unknown app, and the gate's reason when the gate rejects the user.
   */
  async function access(clientId: string, externalUserId: string) {
    const subjects = await users.admitForeignSubjects([{ clientId, externalUserId }])
    const subject = subjects.get(authId(clientId, externalUserId))
    const user = subject && (await users.findById(subject.appId, subject.userId))
    if (!user) throw new DomainError('NOT_FOUND', 'no such app or user')
    return accessOf(user)
  }

  const readAccount = createBatchLoader((users: readonly Subject[]) =>
    ledger.readMany(pool, users, now()),
  )
  const readSpending = ledger.batchSpending(pool, now)

  // At most a second old: the rate changes once a minute, and sidecars only estimate with it.
  async function recentRate(): Promise<EthRate | null> {
    const at = now().getTime()
    if (at - rate.at >= rateMs) rate = { at, value: usableRate() }
    rate.value.catch(() => {
      rate = noRate
    })
    return rate.value
  }

  async function accessOf(user: Pick<User, 'appId' | 'id' | 'status' | 'tokensValidAfter'>) {
    const at = now()
    const [account, usable] = await Promise.all([
      readAccount({ appId: user.appId, userId: user.id }),
      recentRate(),
    ])
    const { canSpend, refusal } = await readSpending(account)
    return {
      active: user.status === 'active',
      tokensValidAfter: BigInt(user.tokensValidAfter ? toSeconds(user.tokensValidAfter) : 0),
      remainingUsdAttos: ledger.spendable(account, at).toString(),
      canSpend,
      spendRefusal: refusal ?? '',
      usdAttosPerEth: usable?.toString(),
      userId: user.id,
      consumedUsdAttos: account.consumed.toString(),
    }
  }

  // We never issue a token with an id that is not a UUID, or with an unreadable grant.
  const isRevoked = async (token: TokenIds): Promise<boolean> =>
    !isUuid(token.jti) ||
    (token.loginId !== '' && !isUuid(token.loginId)) ||
    !token.grants.every(isReadable) ||
    isVoidToken({
      ids: [token.jti, token.loginId, ...token.grants.slice(0, tokenGrantsMax)],
      familyId: token.loginId === '' ? null : token.loginId,
      issuedAt: new Date(Number(token.issuedAt) * 1000),
    })

  return { verifyApiKey, verifyApiKeys, verifySession, verifyForeign, access, isRevoked }
}

export type Signer = ReturnType<typeof createSigner>
