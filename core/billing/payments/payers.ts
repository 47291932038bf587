import { DomainError } from '../../../proto/errors.ts'
import type { Users } from '../../identity/users/users.ts'
import type { Pool } from '../../lib/sql.ts'
import {
  type AppOperatorCaller,
  type M2mCaller,
  type MemberCaller,
  type SelfCaller,
  requestedUser,
} from '../../rpc/callers.ts'
import { type AppId, type UserKey, ownerAccountSubject } from '../../shared/ids.ts'
import type { PaymentProcessor, Plane } from '../processor/port.ts'
import { findPlane } from '../processor/store.ts'
import { type BillingMode, findSettings, isPlatformApp } from '../store.ts'
import { notConfigured } from './checkouts.ts'
import type { Payer } from './customers.ts'

/** The app's owner as an end user of the platform app (decision 58). */
export interface OwnerAccount extends UserKey {
  readonly externalUserId: string
}

export interface PayersDeps {
  readonly pool: Pool
  readonly users: Pick<Users, 'get'>
  readonly processor: Pick<PaymentProcessor, 'planes'> | null
  /**
   * Returns the app's account at the processor, ready to take payments. Throws
   * STRIPE_CONNECT_REQUIRED or STRIPE_CONNECT_PENDING without one.
   */
  readonly requireAccount: (app: AppId) => Promise<string>
  /** Returns the owner's account; null if the platform owns the app. */
  readonly findOwnerAccount: (app: AppId) => Promise<OwnerAccount | null>
}

/** The members of a request that name the payer. */
export interface PayerRequest {
  readonly externalUserId?: string | undefined
  /** `owner`: the app's owner in any billing mode. */
  readonly payer?: string | undefined
}

/** Who may send such a request. */
export type PayerCaller = M2mCaller | MemberCaller | SelfCaller | AppOperatorCaller

export interface FoundPayer {
  readonly billingMode: BillingMode
  readonly user: UserKey & { readonly externalUserId: string }
  /** The app that gets the money; null for the platform. */
  readonly payee: AppId | null
  readonly plane: Plane
}

/** Finds who pays for an app's usage, and where (docs/payments.md). */
export function createPayers({
  pool,
  users,
  processor,
  requireAccount,
  findOwnerAccount,
}: PayersDeps) {
  /**
   * Returns the payer: the named user in billing mode merchant, else the app's owner. Throws
   * REQUEST_INVALID without a user in merchant mode, NOT_FOUND for an unknown one, CONFLICT for an
   * app that the platform pays for.
   */
  async function find(app: AppId, externalUserId: string | undefined): Promise<FoundPayer> {
    const { billingMode } = await findSettings(pool, app)
    // Users of the platform app pay to the platform's own account.
    const isOwn = await isPlatformApp(pool, app)
    if (billingMode === 'merchant' || isOwn) {
      if (externalUserId === undefined || externalUserId.trim() === '')
        throw new DomainError(
          'REQUEST_INVALID',
          'externalUserId is required when billingMode is merchant',
        )
      const { id: userId, externalUserId: external } = await users.get(app, externalUserId)
      const user = { appId: app, userId, externalUserId: external }
      return { billingMode, user, payee: isOwn ? null : app, plane: await findPlane(pool, app) }
    }
    return ownerOf(app, billingMode)
  }

  async function ownerOf(app: AppId, billingMode: BillingMode): Promise<FoundPayer> {
    const owner = await findOwnerAccount(app)
    if (owner === null)
      throw new DomainError(
        'CONFLICT',
        'the platform pays for this app itself, so it has no wallet; a platform admin can give it to a customer',
      )
    // The plane of the owner's account, not of the app: a test app's card must not fund real money.
    const plane = await findPlane(pool, owner.appId)
    return { billingMode, user: owner, payee: null, plane }
  }

  /**
   * Returns the payer that a request names, who is the caller itself on a person's own routes.
   * Throws like `find`, and EDIT_FORBIDDEN if the caller names the owner and is not that account.
   */
  async function findRequested(caller: PayerCaller, request: PayerRequest): Promise<FoundPayer> {
    if (request.payer !== undefined) return findOwner(caller, request)
    const payer = await find(caller.appId, requestedUser(caller, request))
    requireOwnPayer(caller, payer.user.externalUserId)
    return payer
  }

  /**
   * Returns the user whose ledger a request names: with payer `user`, the named one in any billing
   * mode, otherwise the payer. A person reads its own only where it pays.
   */
  async function findLedger(caller: PayerCaller, request: PayerRequest): Promise<UserKey> {
    const { payer, externalUserId } = request
    if (payer !== undefined && payer !== 'owner' && payer !== 'user')
      throw new DomainError('REQUEST_INVALID', 'payer must be owner, user, or absent')
    if (payer !== 'user' || caller.kind === 'self')
      return (await findRequested(caller, request)).user
    if (externalUserId === undefined || externalUserId.trim() === '')
      throw new DomainError('REQUEST_INVALID', 'externalUserId is required with payer user')
    return { appId: caller.appId, userId: (await users.get(caller.appId, externalUserId)).id }
  }

  /** The account that pays for all apps of an owner is for its own session only (docs/payments.md). */
  async function findOwner(
    caller: PayerCaller,
    { payer, externalUserId }: PayerRequest,
  ): Promise<FoundPayer> {
    if (payer !== 'owner')
      throw new DomainError('REQUEST_INVALID', 'payer must be owner, or absent')
    if (externalUserId !== undefined)
      throw new DomainError('REQUEST_INVALID', 'send payer or externalUserId, not both')
    if (caller.kind !== 'member' || caller.role !== 'owner') throw notOwner()
    const { billingMode } = await findSettings(pool, caller.appId)
    const owner = await ownerOf(caller.appId, billingMode)
    // A platform admin is an owner of every app, but must not spend another person's money.
    if (owner.user.externalUserId !== ownerAccountSubject(caller.accountId)) throw notOwner()
    return owner
  }

  /** Like `findRequested`, with the processor's account that takes the money. Throws if it cannot. */
  async function resolve(caller: PayerCaller, request: PayerRequest): Promise<Payer> {
    return place(await findRequested(caller, request))
  }

  /** Returns the account of the processor that takes a payer's money. */
  async function place({ user, payee, plane }: FoundPayer): Promise<Payer> {
    if (processor === null || !processor.planes.includes(plane)) throw notConfigured()
    const account = payee === null ? null : await requireAccount(payee)
    return { ...user, at: { plane, account } }
  }

  return { findRequested, findLedger, resolve, place }
}

/**
 * Throws CONFLICT unless the payer is the person who asks: in other billing modes the app's owner
 * pays, whose account its users must not see or change.
 */
function requireOwnPayer(caller: PayerCaller, externalUserId: string): void {
  if (caller.kind === 'self' && caller.externalUserId !== externalUserId)
    throw new DomainError('CONFLICT', 'this app pays for its users, so you have nothing to pay')
}

const notOwner = (): DomainError =>
  new DomainError(
    'EDIT_FORBIDDEN',
    'payer owner needs a session of the account that pays for the app as its owner',
  )

export type Payers = ReturnType<typeof createPayers>

const unplaceable: ReadonlySet<string> = new Set([
  'PROCESSOR_NOT_CONFIGURED',
  'STRIPE_CONNECT_REQUIRED',
  'STRIPE_CONNECT_PENDING',
])

/** Whether `place` failed because no account can take the payer's money now. */
export const isUnplaceable = (error: unknown): error is DomainError =>
  error instanceof DomainError && unplaceable.has(error.reason)
