import { DomainError } from '../../proto/errors.ts'
import { type AuditEntry, auditAll } from '../platform/audit.ts'
import { createBatchWriter } from '../platform/batch-writer.ts'
import type { Idempotency, Repeatable } from '../platform/idempotency.ts'
import type { Users } from '../identity/users/users.ts'
import type { Actor } from '../platform/audit.ts'
import type { User } from '../identity/types.ts'
import { type Clocks, realTime } from '../platform/clocks/clocks.ts'
import type { AppId, UserId } from '../platform/ids.ts'
import type { Invalidations } from '../platform/invalidations.ts'
import { createBatchLoader } from '../lib/concurrency.ts'
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
import { type Db, type Pool, tx } from '../lib/sql.ts'
import { type Now, parseInstant } from '../lib/time.ts'
import {
  type Account,
  type Credit,
  type CreditSource,
  activeAt,
  creditSources,
  boundAt,
  spendableAt,
  toAppTime,
  unheldAt,
} from './account.ts'
import type { EmitCredits } from '../metering/backend/emit.ts'
import type { Ledger } from './ledger.ts'
import type { CreditQuota } from './quota.ts'
import * as store from './store.ts'

/** A billion dollars: far above any allowance, far below the column's limit. */
const amountMax = 10n ** 15n

export interface AllowancesDeps {
  readonly pool: Pool
  readonly ledger: Ledger
  readonly users: Users
  readonly idempotency: Idempotency
  readonly invalidations: Invalidations
  readonly quota: Pick<CreditQuota, 'count'>
  /** Returns the number of the user's tickets that wait for a rate. */
  readonly countUnpriced: (user: UserKey) => Promise<bigint>
  /** Throws FEATURE_UNKNOWN unless the app's catalogue has the feature. */
  readonly requireFeature: (app: AppId, featureKey: string) => Promise<void>
  /** Queues credits for the metering backend. Absent without a backend. */
  readonly emitCredits?: EmitCredits | undefined
  readonly clocks?: Clocks
  readonly log: Log
  readonly now: Now
}

interface UserKey {
  readonly appId: AppId
  readonly userId: UserId
}

/** A user as identified in the API. */
interface UserName {
  readonly appId: AppId
  readonly externalUserId: string
}

/** The actor who gives credit, and the app. */
export interface Giver {
  readonly appId: AppId
  readonly actor: Actor
  /** Scope in which an idempotency key identifies one request. */
  readonly idempotencyScope: string
}

export interface CreditRequest {
  readonly externalUserId: string
  readonly amountUsdMicros: string
  readonly source: string
  readonly featureKey: string | undefined
  readonly idempotencyKey: string | undefined
}

interface NewGrant extends Repeatable {
  readonly user: User
  readonly amount: UsdMicros
  readonly source: CreditSource
  readonly featureKey: string | null
  readonly actor: Actor
}

interface GrantReply {
  readonly allowance: ReturnType<typeof renderAllowance>
  readonly grant: ReturnType<typeof renderCredit>
}

/** Allowances of users, in USD micros as in the API. Only credits add to an allowance. */
export function createAllowances({
  pool,
  ledger,
  users,
  idempotency,
  invalidations,
  requireFeature,
  quota,
  countUnpriced,
  emitCredits,
  clocks = realTime,
  log,
  now,
}: AllowancesDeps) {
  const accountOf = createBatchLoader(async (keys: readonly UserKey[]) =>
    ledger.readMany(pool, keys, now()),
  )
  const readAccount = async (key: UserKey): Promise<Account> => accountOf(key)

  async function read(app: AppId, externalUserId: string) {
    return detail(await users.get(app, externalUserId))
  }

  async function detail(user: User) {
    const at = now()
    const account = await readAccount(keyOf(user))
    return renderAllowance(user, account, toAppTime(account, at))
  }

  const creditInBatch = createBatchWriter<NewGrant, GrantReply>(pool, (db, requests) =>
    idempotency.each(db, requests, (fresh) => creditAll(db, fresh)),
  )

  /**
   * Adds a credit to an allowance. Credits are immutable: a mistake is corrected by another entry.
   */
  async function credit({ appId: app, idempotencyScope, actor }: Giver, request: CreditRequest) {
    const amount = parseAmount(request.amountUsdMicros)
    const source = parseSource(request.source)
    const featureKey = request.featureKey?.trim() || null
    if (featureKey !== null) await requireFeature(app, featureKey)
    const user = await users.get(app, request.externalUserId)
    const result = await creditInBatch({
      idempotency: {
        scope: idempotencyScope,
        key: request.idempotencyKey,
        body: { user: user.id, amount: amount.toString(), source, featureKey },
      },
      user,
      amount,
      source,
      featureKey,
      actor,
    })
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

  // Sorts by app to prevent deadlocks, because each app's row stays locked until commit.
  async function countAll(db: Db, requests: readonly NewGrant[]): Promise<void> {
    const byApp = Map.groupBy(requests, ({ user }) => user.appId)
    for (const [app, grants] of [...byApp].toSorted(([a], [b]) => (a < b ? -1 : 1))) {
      const sum = grants.reduce((total: bigint, { amount }) => total + microsToAttos(amount), 0n)
      await quota.count(db, app, usdAttos(sum))
    }
  }

  async function creditAll(db: Db, requests: readonly NewGrant[]): Promise<GrantReply[]> {
    const at = now()
    const keys = new Map(requests.map(({ user }) => [user.id, keyOf(user)]))
    const locked = await ledger.lock(db, [...keys.values()], at)
    const accounts = new Map(locked.map((account) => [account.userId, account]))
    const replies = requests.map(({ user, amount, source, featureKey }) => {
      const account = accounts.get(user.id)
      if (!account) throw new Error(`user ${user.id} has no account`)
      const own = toAppTime(account, at)
      const added = ledger.credit(
        account,
        { amount: microsToAttos(amount), source, featureKey },
        own,
      )
      return { allowance: renderAllowance(user, account, own), grant: renderCredit(added) }
    })
    await ledger.save(db, locked, at)
    await emitCredits?.(
      db,
      requests.map(({ user, amount, source, featureKey }, i) => ({
        ...keyOf(user),
        externalUserId: user.externalUserId,
        id: replies[i]?.grant.id ?? '',
        amountMicros: amount,
        source,
        featureKey,
      })),
      at,
    )
    await auditAll(
      db,
      requests.map((request, index) => entryOf(request, replies[index]?.grant.id ?? '', at)),
    )
    await countAll(db, requests)
    return replies
  }

  /** Returns the current balance, or with `asOf` a past one (see `balanceAsOf`). */
  async function balance({ appId, externalUserId }: UserName, asOf?: string) {
    const user = await users.get(appId, externalUserId)
    return asOf === undefined ? balanceNow(user, now()) : balanceAsOf(user, asOf)
  }

  async function balanceNow(user: User, at: Date) {
    const key = keyOf(user)
    const [figures, unpriced] = await Promise.all([balanceOf(key, at), countUnpriced(key)])
    return {
      externalUserId: user.externalUserId,
      ...figures,
      unpricedTickets: unpriced.toString(),
    }
  }

  /**
   * Returns the balance at `at`, without the number of tickets that wait for a rate. The caller
   * must have just read the user.
   */
  async function balanceOf(user: UserKey, at = now()) {
    const account = await readAccount(user)
    const own = toAppTime(account, at)
    const { balance: left, remaining, featureBalances } = figuresOf(account, own)
    return {
      balanceUsdMicros: left.toString(),
      remainingUsdMicros: remaining.toString(),
      consumedUsdMicros: microsUp(account.periodConsumed).toString(),
      lifetimeGrantedUsdMicros: lifetimeGranted(account, own).toString(),
      hasAccess: remaining > 0n,
      featureBalances,
    }
  }

  /**
   * Returns the balance at `asOf` (ISO 8601) by booking time: what was known then, which never
   * changes. For the present instant, returns the live balance. Throws REQUEST_INVALID for an
   * invalid or future instant, NOT_FOUND for an instant before the user was created.
   */
  async function balanceAsOf(user: User, asOf: string) {
    const at = parseInstant(asOf)
    if (!at)
      throw new DomainError(
        'REQUEST_INVALID',
        'asOf must be an ISO 8601 instant with a zone, such as 2026-01-31T12:00:00Z',
      )
    const real = now()
    const present = await clocks.timeOf(pool, user.appId, real)
    if (at > present) throw new DomainError('REQUEST_INVALID', 'asOf must not be in the future')
    const of = { ...keyOf(user), at }
    const since = await store.userSince(pool, of)
    if (!since || since > at)
      throw new DomainError('NOT_FOUND', 'the user did not exist at that time')
    if (at.getTime() === present.getTime())
      return { ...(await balanceNow(user, real)), asOf: at.toISOString() }
    const past = await tx(pool, async (db) => {
      await store.closePast(db, of)
      return store.balanceAt(db, of)
    })
    const remaining = microsDown(past.balance)
    return {
      externalUserId: user.externalUserId,
      balanceUsdMicros: remaining.toString(),
      remainingUsdMicros: remaining.toString(),
      consumedUsdMicros: microsUp(past.consumed).toString(),
      lifetimeGrantedUsdMicros: microsDown(past.granted).toString(),
      hasAccess: remaining > 0n,
      unpricedTickets: past.unpriced.toString(),
      featureBalances: past.bound.map(({ featureKey, remaining: left }) => ({
        featureKey,
        balanceUsdMicros: microsDown(left).toString(),
      })),
      asOf: at.toISOString(),
    }
  }

  return { read, credit, balance, balanceOf }
}

export type Allowances = ReturnType<typeof createAllowances>

const keyOf = (user: User): UserKey => ({
  appId: user.appId,
  userId: user.id,
})

const entryOf = (
  { user, amount, source, actor }: NewGrant,
  grantId: string,
  at: Date,
): AuditEntry => ({
  appId: user.appId,
  actor: actor.name,
  action: 'allowance_granted',
  status: 'success',
  at,
  correlationId: actor.context?.correlationId,
  details: { grantId, userId: user.id, amountUsdMicros: amount.toString(), source },
})

/** Included usage of the running period, plus every other credit ever granted (docs/usage.md). */
function lifetimeGranted(account: Account, at: Date): UsdMicros {
  const included = activeAt(account.credits, at).filter(({ kind }) => kind === 'included')
  return microsDown(
    usdAttos(included.reduce((sum: bigint, { amount }) => sum + amount, account.topup)),
  )
}

function renderAllowance(user: { externalUserId: string }, account: Account, at: Date) {
  const active = activeAt(account.credits, at)
  const { balance, remaining, featureBalances } = figuresOf(account, at)
  return {
    externalUserId: user.externalUserId,
    balanceUsdMicros: balance.toString(),
    consumedUsdMicros: microsUp(account.periodConsumed).toString(),
    lifetimeGrantedUsdMicros: lifetimeGranted(account, at).toString(),
    grants: active
      .toSorted((a, b) => a.createdAt.getTime() - b.createdAt.getTime() || (a.id < b.id ? -1 : 1))
      .map(renderCredit),
    remainingUsdMicros: remaining.toString(),
    hasAccess: remaining > 0n,
    featureBalances,
  }
}

/**
 * Returns the money that pays for any call, its unheld part, and the money bound to features
 * (decisions 34, 45, 57).
 */
const figuresOf = (account: Account, at: Date) => ({
  balance: microsDown(spendableAt(account.credits, at)),
  remaining: microsDown(unheldAt(account, at)),
  featureBalances: boundAt(account.credits, at).map(({ featureKey, remaining }) => ({
    featureKey,
    balanceUsdMicros: microsDown(remaining).toString(),
  })),
})

const renderCredit = (credit: Credit) => ({
  id: credit.id,
  amountUsdMicros: microsDown(credit.amount).toString(),
  source: credit.source,
  createdAt: credit.createdAt.toISOString(),
  featureKey: credit.featureKey ?? undefined,
  expiresAt: credit.expiresAt?.toISOString(),
  remainingUsdMicros: microsDown(credit.remaining).toString(),
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

function parseSource(text: string): CreditSource {
  const source = creditSources.find((known) => known === text)
  if (!source)
    throw new DomainError('REQUEST_INVALID', `source must be one of: ${creditSources.join(', ')}`)
  return source
}
