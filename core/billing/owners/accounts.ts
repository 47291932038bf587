import { DomainError } from '../../../proto/errors.ts'
import type { Ledger } from '../../balances/ledger/ledger.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { normalizeEmail } from '../../lib/text/email.ts'
import type { Author, Change } from '../../plans/subscriptions/change.ts'
import type { ChangeRequest } from '../../plans/subscriptions/changes.ts'
import type { PlanChoice, ScheduledPlan } from '../../plans/subscriptions/choices.ts'
import type { MemberCaller } from '../../rpc/callers.ts'
import { findClientId } from '../../shared/clients.ts'
import { type AppId, type UserKey, ownerAccountSubject } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { type OwnerPeriod, findPeriod } from '../summary/store.ts'
import * as store from './store.ts'

export interface OwnerAccountsDeps extends Pick<Shared, 'pool' | 'now'> {
  readonly ledger: Pick<Ledger, 'read' | 'spendable'>
  readonly owners: {
    /** Returns the owner's account user, created at first need. */
    readonly ownerOf: (
      db: Db,
      apps: readonly AppId[],
    ) => Promise<ReadonlyMap<AppId, UserKey | null>>
    readonly findPlatformApp: (db: Db) => Promise<AppId | null>
    readonly findUser: (app: AppId, externalUserId: string) => Promise<UserKey | null>
  }
  /** Plans of the platform app. */
  readonly plans: {
    /** Moves a user to another plan. */
    readonly changePlan: (app: AppId, request: ChangeRequest, by: Author) => Promise<Change>
    readonly listChoices: (app: AppId) => Promise<PlanChoice[]>
    readonly findScheduled: (user: UserKey) => Promise<ScheduledPlan | null>
  }
}

export interface OwnerAccount {
  readonly email: string
  readonly externalUserId: string
  readonly platformClientId: string
  readonly balance: UsdAttos
  readonly overage: UsdAttos
  /** Null before the first charge. */
  readonly period: OwnerPeriod | null
  /** Owner charges of the period. */
  readonly charges: readonly store.AppCharge[]
  /** Null without a scheduled change of plan. */
  readonly scheduled: ScheduledPlan | null
}

export type OwnerPlanRequest = Omit<ChangeRequest, 'externalUserId'>

/** Accounts of owners in the platform app: what they used, and their owner plans (decision 58). */
export function createOwnerAccountService({ pool, ledger, owners, plans, now }: OwnerAccountsDeps) {
  /** Throws NOT_FOUND for an unknown account. */
  async function readByEmail(text: string): Promise<OwnerAccount> {
    const email = normalizeEmail(text)
    const owner = email && (await store.findByEmail(pool, email))
    if (!owner) throw new DomainError('NOT_FOUND', 'there is no account with this e-mail address')
    return readAccount(owner)
  }

  const readOwn = async (caller: MemberCaller): Promise<OwnerAccount> =>
    readAccount(await requirePayer(caller))

  async function readAccount({ accountId, email }: store.OwnerName): Promise<OwnerAccount> {
    const platformApp = await requirePlatformApp()
    const externalUserId = ownerAccountSubject(accountId)
    const user = await owners.findUser(platformApp, externalUserId)
    const platformClientId = await findClientId(pool, platformApp)
    const names = { email, externalUserId, platformClientId }
    const none = { balance: usdAttos(0n), overage: usdAttos(0n), period: null, charges: [] }
    if (user === null) return { ...names, ...none, scheduled: null }
    const at = now()
    const account = await ledger.read(pool, user, at)
    return {
      ...names,
      balance: ledger.spendable(account, at),
      overage: account.overage,
      period: await findPeriod(pool, user, at),
      charges: await store.chargesByApp(pool, user, account.periodStart),
      scheduled: await plans.findScheduled(user),
    }
  }

  /** Lists the plans to which the account that pays for the caller's app can move. */
  async function listPlans(caller: MemberCaller): Promise<PlanChoice[]> {
    await requirePayer(caller)
    return plans.listChoices(await requirePlatformApp())
  }

  /**
   * Moves the account that pays for the caller's app to a plan of the platform app. If the plan
   * needs a card that the owner lacks, the result has a checkout URL, and nothing changes. Throws
   * CONFLICT for a platform-owned app, EDIT_FORBIDDEN if another account pays.
   */
  async function updatePlan(
    caller: MemberCaller,
    request: OwnerPlanRequest,
    correlationId: string,
  ): Promise<Change> {
    const { accountId } = await requirePayer(caller)
    const account = await tx(pool, async (db) =>
      (await owners.ownerOf(db, [caller.appId])).get(caller.appId),
    )
    if (!account) throw ownedByPlatform()
    const externalUserId = ownerAccountSubject(accountId)
    const author = { name: accountId, correlationId, isOperator: false }
    const { appId: openedBy } = caller
    return plans.changePlan(account.appId, { ...request, externalUserId, openedBy }, author)
  }

  async function requirePlatformApp(): Promise<AppId> {
    const platformApp = await owners.findPlatformApp(pool)
    if (platformApp === null) throw new DomainError('UNAVAILABLE', 'the platform app is missing')
    return platformApp
  }

  // A platform admin is an owner of every app, but must not spend another person's money.
  async function requirePayer({ appId, accountId }: MemberCaller): Promise<store.OwnerName> {
    const payer = await store.findPayer(pool, appId)
    if (payer === null) throw ownedByPlatform()
    if (payer.accountId === accountId) return payer
    throw new DomainError(
      'EDIT_FORBIDDEN',
      'only the owner whose account pays for the app may do this',
    )
  }

  return { readByEmail, readOwn, listPlans, updatePlan }
}

export type OwnerAccountService = ReturnType<typeof createOwnerAccountService>

const ownedByPlatform = (): DomainError =>
  new DomainError(
    'CONFLICT',
    'the app belongs to the platform or has no owner, so no owner pays for it',
  )
