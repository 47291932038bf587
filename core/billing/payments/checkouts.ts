import { createHash } from 'node:crypto'
import { DomainError } from '../../../proto/errors.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { type Pool, tx } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import { auditSuccess } from '../../shared/audit.ts'
import type { Actor } from '../../shared/audit.ts'
import type { AppId } from '../../shared/ids.ts'
import { type PaymentProcessor, type UsdCents, usdCents } from '../processor/port.ts'
import * as store from './checkout-store.ts'
import type { CheckoutPurpose, StoredCheckout } from './checkout-store.ts'
import type { Customer } from './customer-store.ts'
import type { Customers, Payer } from './customers.ts'
import { returnUrl } from './urls.ts'

export interface CheckoutsDeps {
  readonly pool: Pool
  readonly processor: Pick<PaymentProcessor, 'kind' | 'openCheckout'>
  readonly customers: Pick<Customers, 'ensure' | 'refresh'>
  readonly publicUrl: string
  readonly now: Now
}

export interface CheckoutRequest {
  /** Of what the checkout pays for, if that has a row of its own; then a repetition finds it. */
  readonly id?: string | undefined
  readonly payer: Payer
  /** The app whose caller opens it. */
  readonly openedBy: AppId
  readonly purpose: CheckoutPurpose
  /** Null for a card alone. */
  readonly amount: UsdCents | null
  readonly planId?: string | undefined
  /** Shown on the pay page and the receipt. */
  readonly description: string
  readonly successUrl: string | undefined
  readonly cancelUrl: string | undefined
  readonly idempotencyKey: string | undefined
  readonly actor: Actor
}

/** An address of the processor's pay page, and our id of the visit. */
export interface OpenedCheckout {
  readonly checkoutId: string
  readonly checkoutUrl: string
}

interface PageOptions {
  readonly customer: Customer
  readonly attempt: number
  readonly description: string
}

/** The processor answers within seconds; then a checkout is checked for the first time. */
const firstCheckSeconds = 60

/** Our reference of a checkout at the processor: it names the app, so that events find the row. */
export const formatReference = ({ appId, id }: Pick<StoredCheckout, 'appId' | 'id'>): string =>
  `${appId}/${id}`

/** Opens the processor's pay page for a user: to top up, to leave a card, or to take a plan. */
export function createCheckouts({ pool, processor, customers, publicUrl, now }: CheckoutsDeps) {
  /**
   * Opens a checkout. Nothing else changes before the processor reports that the user has paid. A
   * repetition with the same key gets the same checkout; the row itself remembers it. Throws
   * IDEMPOTENCY_CONFLICT for another request with the key.
   */
  async function open(request: CheckoutRequest): Promise<OpenedCheckout> {
    const { payer, openedBy, idempotencyKey: key, actor } = request
    const name = key === undefined ? null : `${actor.name}:${openedBy}:checkout ${key}`
    const checkout = newCheckout(request, name)
    const stored = await store.insertCheckout(pool, checkout)
    requireSame(stored, checkout)
    if (stored.url !== null) return toOpened(stored)
    await call(stored, payer, request.description)
    return tx(pool, async (db) => {
      const opened = await store.lockCheckout(db, stored)
      if (opened === null) throw new Error(`checkout ${stored.id} is gone`)
      await auditSuccess(db, {
        appId: openedBy,
        actor,
        action: 'checkout_opened',
        details: detailsOf(opened),
        at: now(),
      })
      return toOpened(opened)
    })
  }

  function newCheckout(request: CheckoutRequest, name: string | null): StoredCheckout {
    const createdAt = now()
    const { payer, openedBy, purpose, amount, planId = null, successUrl, cancelUrl } = request
    return {
      appId: payer.appId,
      userId: payer.userId,
      id: request.id ?? (name === null ? uuidV7(createdAt.getTime()) : hashToUuid(name)),
      openedBy,
      purpose,
      amount,
      fee: usdCents(0n),
      planId,
      at: payer.at,
      processor: processor.kind,
      successUrl: returnUrl(successUrl, `${publicUrl}/pay/done`),
      cancelUrl: returnUrl(cancelUrl, `${publicUrl}/pay/canceled`),
      processorId: null,
      url: null,
      state: 'opening',
      problem: null,
      createdAt,
      checkAt: addSeconds(createdAt, firstCheckSeconds),
    }
  }

  /**
   * Calls the processor for a stored checkout, again with a new customer if the processor has deleted
   * the first one.
   */
  async function call(checkout: StoredCheckout, payer: Payer, description: string): Promise<void> {
    const refused = await tryPage(checkout, payer, description)
    if (refused === null) return
    const read = await customers.refresh(refused.used).catch(() => null)
    if (read?.isGone !== true) throw refused.error
    const again = await tryPage(checkout, payer, description)
    if (again !== null) throw again.error
  }

  /** Returns null after success, and a refusal of the processor with the customer that was used. */
  async function tryPage(
    checkout: StoredCheckout,
    payer: Payer,
    description: string,
  ): Promise<{ readonly used: Customer; readonly error: DomainError } | null> {
    const attempt = await store.countAttempt(pool, checkout)
    const used = await customers.ensure(payer, `${checkout.id}:${attempt}`)
    try {
      await openPage(checkout, { customer: used, attempt, description })
      return null
    } catch (error) {
      if (error instanceof DomainError && error.reason === 'PROCESSOR_REFUSED')
        return { used, error }
      throw error
    }
  }

  /**
   * Opens the pay page. Each attempt has its own keys, because the processor repeats its faults as
   * long as their keys. An unused customer or page costs nothing.
   */
  async function openPage(
    checkout: StoredCheckout,
    { customer, attempt, description }: PageOptions,
  ): Promise<void> {
    const { appId, id, at, amount, fee, successUrl, cancelUrl } = checkout
    const opened = await processor.openCheckout(
      at,
      {
        customer: customer.customerId,
        mode: amount === null ? 'card' : 'payment',
        amount,
        fee,
        description,
        successUrl,
        cancelUrl,
        reference: formatReference(checkout),
      },
      `${at.plane}:${appId}:checkout:${id}:${attempt}`,
    )
    await store.saveOpened(pool, checkout, {
      processorId: opened.id,
      url: opened.url,
      checkAt: addSeconds(now(), firstCheckSeconds),
    })
  }

  return { open }
}

export type Checkouts = ReturnType<typeof createCheckouts>

const toOpened = ({ id, url }: StoredCheckout): OpenedCheckout => {
  if (url === null) throw new Error(`checkout ${id} has no address`)
  return { checkoutId: id, checkoutUrl: url }
}

const detailsOf = ({ id, userId, purpose, amount, planId }: StoredCheckout) => ({
  checkoutId: id,
  userId,
  purpose,
  amountCents: amount === null ? null : String(amount),
  planId,
})

function requireSame(stored: StoredCheckout, requested: StoredCheckout): void {
  const isSame =
    stored.userId === requested.userId &&
    stored.purpose === requested.purpose &&
    stored.amount === requested.amount &&
    stored.planId === requested.planId &&
    stored.successUrl === requested.successUrl &&
    stored.cancelUrl === requested.cancelUrl &&
    stored.at.plane === requested.at.plane &&
    stored.at.account === requested.at.account &&
    (stored.processor === null || stored.processor === requested.processor)
  if (!isSame)
    throw new DomainError(
      'IDEMPOTENCY_CONFLICT',
      'this Idempotency-Key was used with another request; use a new key',
    )
}

/** A UUID of a repeatable request, so that a repetition after a crash continues the same checkout. */
export function hashToUuid(name: string): string {
  const bytes = createHash('sha256').update(name).digest().subarray(0, 16)
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x80, 6)
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8)
  const hex = bytes.toString('hex')
  return [
    hex.slice(0, 8),
    hex.slice(8, 12),
    hex.slice(12, 16),
    hex.slice(16, 20),
    hex.slice(20),
  ].join('-')
}

/** Parses a reference of ours that the processor returned; null for any other text. */
export function parseReference(
  text: string | null,
): { readonly appId: string; readonly id: string } | null {
  const [, appId, id] = /^([0-9a-f-]{36})\/([0-9a-f-]{36})$/.exec(text ?? '') ?? []
  return appId === undefined || id === undefined ? null : { appId, id }
}

export const notConfigured = (): DomainError =>
  new DomainError(
    'PROCESSOR_NOT_CONFIGURED',
    'this deployment has no payment processor, so nothing can be paid here',
  )
