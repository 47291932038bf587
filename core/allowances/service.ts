import { DomainError } from '../../proto/errors.ts'
import { audit } from '../platform/audit.ts'
import type { M2mCaller } from '../rpc/callers.ts'
import type { Idempotency } from '../platform/idempotency.ts'
import type { Actor, Users } from '../identity/users/users.ts'
import type { User } from '../identity/types.ts'
import type { AppId, UserId } from '../platform/ids.ts'
import type { Invalidations } from '../platform/invalidations.ts'
import type { Log } from '../lib/log.ts'
import {
  type UsdMicros,
  microsDown,
  microsToAttos,
  microsUp,
  parseInteger,
  usdAttos,
  usdMicros,
} from '../lib/money.ts'
import type { Pool } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import { activeAt, remainingAt } from './account.ts'
import { createHistory } from './history.ts'
import type { Ledger } from './ledger.ts'
import { type Account, type Grant, type GrantSource, grantSources } from './types.ts'

/** A billion dollars: far above any allowance, far below any limit of ours. */
const amountMax = 10n ** 15n
const featureKeySyntax = /^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$/

export interface AllowancesDeps {
  readonly pool: Pool
  readonly ledger: Ledger
  readonly users: Users
  readonly idempotency: Idempotency
  readonly invalidations: Invalidations
  readonly countUnpriced: (app: AppId, user: UserId) => Promise<bigint>
  readonly log: Log
  readonly now: Now
}

export interface NewGrantRequest {
  readonly externalUserId: string
  readonly amountUsdMicros: string
  readonly source: string
  readonly featureKey: string | undefined
  readonly idempotencyKey: string | undefined
}

/** What users may still spend: read as figures of the edge, in micros; changed only by grants. */
export function createAllowances({
  pool,
  ledger,
  users,
  idempotency,
  invalidations,
  countUnpriced,
  log,
  now,
}: AllowancesDeps) {
  async function read(caller: M2mCaller, externalUserId: string) {
    return detail(await users.get(caller.appId, externalUserId))
  }

  async function detail(user: User) {
    const at = now()
    const account = await ledger.read(pool, { appId: user.appId, userId: user.id }, at)
    return renderAllowance(user, account, at)
  }

  /** Adds to an allowance. Grants are immutable: a mistake is corrected by another entry. */
  async function grant(caller: M2mCaller, request: NewGrantRequest, actor: Actor) {
    const amount = parseAmount(request.amountUsdMicros)
    const source = parseSource(request.source)
    const featureKey = parseFeatureKey(request.featureKey)
    const user = await users.get(caller.appId, request.externalUserId)
    const result = await idempotency.once(
      {
        scope: `${caller.m2mClientId}:grants`,
        key: request.idempotencyKey,
        body: { user: user.id, amount: amount.toString(), source, featureKey },
      },
      async (db) => {
        const at = now()
        const made = await ledger.grant(
          db,
          {
            appId: user.appId,
            userId: user.id,
            amount: microsToAttos(amount),
            source,
            featureKey,
          },
          at,
        )
        await audit(db, {
          appId: user.appId,
          actor: actor.name,
          action: 'allowance_granted',
          status: 'success',
          at,
          correlationId: actor.context?.correlationId,
          details: {
            grantId: made.grant.id,
            userId: user.id,
            amountUsdMicros: amount.toString(),
            source,
          },
        })
        return {
          allowance: renderAllowance(user, made.account, at),
          grant: renderGrant(made.grant),
        }
      },
    )
    log.info(
      {
        appId: user.appId,
        userId: user.id,
        grantId: result.grant.id,
        amountUsdMicros: amount.toString(),
      },
      'grant created',
    )
    await invalidations.publish({ kind: 'access', id: user.id })
    return result
  }

  const history = createHistory({ pool, now })

  /** Now, or as it stood at the instant `asOf`; REQUEST_INVALID when that is none, NOT_FOUND before the user was there. */
  async function balance(
    user: { appId: AppId; userId: UserId; externalUserId: string },
    asOf?: string,
  ) {
    if (asOf !== undefined) return history.balance(user, asOf)
    const at = now()
    const account = await ledger.read(pool, user, at)
    const left = microsDown(remainingAt(account.grants, at))
    return {
      externalUserId: user.externalUserId,
      balanceUsdMicros: left.toString(),
      remainingUsdMicros: left.toString(),
      consumedUsdMicros: microsUp(account.periodConsumed).toString(),
      lifetimeGrantedUsdMicros: lifetimeGranted(account, at).toString(),
      hasAccess: left > 0n,
      unpricedTickets: (await countUnpriced(user.appId, user.userId)).toString(),
    }
  }

  async function balanceOf(caller: M2mCaller, externalUserId: string, asOf?: string) {
    const user = await users.get(caller.appId, externalUserId)
    return balance(
      { appId: user.appId, userId: user.id, externalUserId: user.externalUserId },
      asOf,
    )
  }

  return { read, grant, balance, balanceOf }
}

export type Allowances = ReturnType<typeof createAllowances>

/** Included usage of the running period plus everything else that was ever granted (billing facts, section 8). */
function lifetimeGranted(account: Account, at: Date): UsdMicros {
  const included = activeAt(account.grants, at).filter((grant) => grant.kind === 'included')
  return microsDown(
    usdAttos(included.reduce((sum: bigint, grant) => sum + grant.amount, account.topup)),
  )
}

function renderAllowance(user: { externalUserId: string }, account: Account, at: Date) {
  const active = activeAt(account.grants, at)
  const left = microsDown(remainingAt(account.grants, at))
  return {
    externalUserId: user.externalUserId,
    balanceUsdMicros: left.toString(),
    consumedUsdMicros: microsUp(account.periodConsumed).toString(),
    lifetimeGrantedUsdMicros: lifetimeGranted(account, at).toString(),
    grants: active
      .toSorted((a, b) => a.createdAt.getTime() - b.createdAt.getTime() || (a.id < b.id ? -1 : 1))
      .map(renderGrant),
    remainingUsdMicros: left.toString(),
    hasAccess: left > 0n,
  }
}

const renderGrant = (grant: Grant) => ({
  id: grant.id,
  amountUsdMicros: microsDown(grant.amount).toString(),
  source: grant.source,
  createdAt: grant.createdAt.toISOString(),
  featureKey: grant.featureKey ?? undefined,
  expiresAt: grant.expiresAt?.toISOString(),
  remainingUsdMicros: microsDown(grant.remaining).toString(),
})

function parseAmount(text: string): UsdMicros {
  const value = parseInteger(text)
  if (value === null || value <= 0n) {
    throw new DomainError(
      'AMOUNT_INVALID',
      'amountUsdMicros must be a positive integer string, such as "5000000" for 5 USD',
    )
  }
  if (value > amountMax)
    throw new DomainError('AMOUNT_INVALID', `amountUsdMicros must be at most ${amountMax}`)
  return usdMicros(value)
}

function parseSource(text: string): GrantSource {
  const source = grantSources.find((known) => known === text)
  if (!source)
    throw new DomainError('REQUEST_INVALID', `source must be one of: ${grantSources.join(', ')}`)
  return source
}

function parseFeatureKey(text: string | undefined): string | null {
  if (text === undefined || text.trim() === '') return null
  if (!featureKeySyntax.test(text)) {
    throw new DomainError(
      'REQUEST_INVALID',
      'featureKey must be 1 to 128 letters, digits, dots, colons, slashes, dashes or underscores',
    )
  }
  return text
}
