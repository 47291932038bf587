import { DomainError } from '../../proto/errors.ts'
import type { Ledger } from '../allowances/ledger.ts'
import type { Users } from '../identity/users/users.ts'
import type { User } from '../identity/types.ts'
import { type AppId, type UserId, authId, isUuid } from '../platform/ids.ts'
import type { Keys } from '../keys/keys.ts'
import type { EthRate } from '../lib/money.ts'
import type { Pool } from '../lib/sql.ts'
import { type Now, secondsOf } from '../lib/time.ts'
import { createBatchLoader } from '../lib/concurrency.ts'
import type { SignerSessions } from '../tokens/sessions/signer-sessions.ts'

export interface SignerDeps {
  readonly pool: Pool
  readonly ledger: Ledger
  readonly users: Users
  readonly keys: Keys
  readonly sessions: SignerSessions
  /** The newest observation that may still price a ticket now. */
  readonly usableRate: () => Promise<EthRate | null>
  /** True for a JWT that was revoked, or whose login has ended. */
  readonly isVoidToken: (token: { jti: string; familyId: string | null }) => Promise<boolean>
  readonly now: Now
}

const rateMs = 1_000
const noRate = { at: -Infinity, found: Promise.resolve<EthRate | null>(null) }

interface Subject {
  readonly appId: AppId
  readonly userId: UserId
}

/** What a sidecar asks before the signer signs: who is this, and may they spend? */
export function createSigner({
  pool,
  ledger,
  users,
  keys,
  sessions,
  usableRate,
  isVoidToken,
  now,
}: SignerDeps) {
  let rate = noRate

  async function verifyApiKey(presented: string) {
    const owner = await keys.verify(presented)
    if (!owner) throw new DomainError('TOKEN_INVALID', 'the API key is not valid')
    return {
      identity: owner,
      access: await accessOf({ ...owner, id: owner.userId, status: 'active' }),
    }
  }

  async function verifySession(token: string) {
    const found = await sessions.verify(token)
    const user = found && (await users.findById(found.appId, found.userId))
    if (!found || !user)
      throw new DomainError('TOKEN_INVALID', 'the signer session is not valid, or has expired')
    return {
      identity: { ...found, keyId: found.id },
      access: await accessOf(user),
      expiresAt: BigInt(secondsOf(found.expiresAt)),
      scope: found.scope,
    }
  }

  /** Provisions an unknown user of a known app: signing does. NOT_FOUND for an unknown app. */
  async function access(clientId: string, externalUserId: string) {
    const subjects = await users.resolveSubjects([{ clientId, externalUserId }])
    const subject = subjects.get(authId(clientId, externalUserId))
    const user = subject && (await users.findById(subject.appId, subject.userId))
    if (!user) throw new DomainError('NOT_FOUND', 'no such app or user')
    return accessOf(user)
  }

  const readAccount = createBatchLoader((users: readonly Subject[]) =>
    ledger.readMany(pool, users, now()),
  )

  // It changes once a minute and is an estimate here, which sidecars use for seconds.
  async function recentRate(): Promise<EthRate | null> {
    const at = now().getTime()
    if (at - rate.at >= rateMs) rate = { at, found: usableRate() }
    rate.found.catch(() => {
      rate = noRate
    })
    return rate.found
  }

  async function accessOf(user: Pick<User, 'appId' | 'id' | 'status' | 'tokensValidAfter'>) {
    const at = now()
    const [account, usable] = await Promise.all([
      readAccount({ appId: user.appId, userId: user.id }),
      recentRate(),
    ])
    return {
      active: user.status === 'active',
      tokensValidAfter: BigInt(user.tokensValidAfter ? secondsOf(user.tokensValidAfter) : 0),
      remainingUsdAttos: ledger.spendable(account, at).toString(),
      usdAttosPerEth: usable?.toString(),
      userId: user.id,
      consumedUsdAttos: account.consumed.toString(),
    }
  }

  // What is no id of ours cannot have been issued.
  const isRevoked = async (jti: string, loginId: string): Promise<boolean> =>
    !isUuid(jti) ||
    (loginId !== '' && !isUuid(loginId)) ||
    isVoidToken({ jti, familyId: loginId === '' ? null : loginId })

  return { verifyApiKey, verifySession, access, isRevoked }
}

export type Signer = ReturnType<typeof createSigner>
