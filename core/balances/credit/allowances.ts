import { DomainError } from '../../../proto/errors.ts'
import { type AuditEntry, auditAll } from '../../shared/audit.ts'
import { createBatchWriter } from '../../shared/batch-writer.ts'
import type { Repeatable } from '../../shared/idempotency.ts'
import type { Users } from '../../identity/users/users.ts'
import type { Actor } from '../../shared/audit.ts'
import type { User } from '../../identity/types.ts'
import { type Clocks, realTime } from '../../shared/clocks/clocks.ts'
import type { AppId, UserKey } from '../../shared/ids.ts'
import { createBatchLoader } from '../../lib/concurrency.ts'
import {
  type UsdMicros,
  microsDown,
  microsToAttos,
  microsUp,
  parseInteger,
  usdAttos,
  usdMicros,
} from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import { type Account, toAppTime } from '../accounts/account.ts'
import { type Credit, type CreditSource, activeAt, creditSources } from '../accounts/credits.ts'
import type { Spending } from '../accounts/spending.ts'
import type { EmitCredits } from '../../metering/backend/emit.ts'
import type { Ledger } from '../ledger/ledger.ts'
import type { Shared } from '../../shared/shared.ts'
import type { CreditQuota } from './quota.ts'
import {
  createBalances,
  computeFigures,
  toUserKey,
  lifetimeGranted,
  renderSpending,
} from './balances.ts'

/** A billion dollars: far above any allowance, far below the column's limit. */
const amountMax = 10n ** 15n

export interface AllowancesDeps extends Pick<
  Shared,
  'pool' | 'idempotency' | 'invalidations' | 'log' | 'now'
> {
  readonly ledger: Ledger
  readonly users: Users
  readonly quota: Pick<CreditQuota, 'count'>
  /** Returns the number of the user's tickets that wait for a rate. */
  readonly countUnpriced: (user: UserKey) => Promise<bigint>
  /** Throws FEATURE_UNKNOWN unless the app's catalogue has the feature. */
  readonly requireFeature: (app: AppId, featureKey: string) => Promise<void>
  /** Queues credits for the metering backend. Absent without a backend. */
  readonly emitCredits?: EmitCredits | undefined
  readonly clocks?: Clocks
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
  emitCredits,
  countUnpriced,
  clocks = realTime,
  log,
  now,
}: AllowancesDeps) {
  const accountOf = createBatchLoader(async (keys: readonly UserKey[]) =>
    ledger.readMany(pool, keys, now()),
  )
  const readAccount = async (key: UserKey): Promise<Account> => accountOf(key)
  const spending = ledger.batchSpending(pool, now)
  const reads = { pool, users, clocks, countUnpriced, readAccount, spending, now }
  const balances = createBalances(reads)

  async function read(app: AppId, externalUserId: string) {
    return detail(await users.get(app, externalUserId))
  }

  async function detail(user: User) {
    const at = now()
    const account = await readAccount(toUserKey(user))
    const state = { at: toAppTime(account, at), spending: await spending(account) }
    return renderAllowance(user, account, state)
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
    const keys = new Map(requests.map(({ user }) => [user.id, toUserKey(user)]))
    const locked = await ledger.lock(db, [...keys.values()], at)
    const accounts = new Map(locked.map((account) => [account.userId, account]))
    const spendingOf = await ledger.spendingIn(
      db,
      locked.map(({ appId }) => appId),
      at,
    )
    const replies = requests.map(({ user, amount, source, featureKey }) => {
      const account = accounts.get(user.id)
      if (!account) throw new Error(`user ${user.id} has no account`)
      const own = toAppTime(account, at)
      const added = ledger.credit(
        account,
        { amount: microsToAttos(amount), source, featureKey },
        own,
      )
      const state = { at: own, spending: spendingOf(account) }
      return { allowance: renderAllowance(user, account, state), grant: renderCredit(added) }
    })
    await ledger.save(db, locked, at)
    await emitCredits?.(
      db,
      requests.map(({ user, amount, source, featureKey }, i) => ({
        ...toUserKey(user),
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

  return { read, credit, ...balances }
}

export type Allowances = ReturnType<typeof createAllowances>

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

function renderAllowance(
  user: { externalUserId: string },
  account: Account,
  { at, spending }: { readonly at: Date; readonly spending: Spending },
) {
  const active = activeAt(account.credits, at)
  const { balance, remaining, featureBalances } = computeFigures(account, at)
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
    ...renderSpending(spending),
    featureBalances,
  }
}

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
