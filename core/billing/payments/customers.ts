import { type Db, type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { auditSuccess } from '../../shared/audit.ts'
import type { UserKey } from '../../shared/ids.ts'
import type { Card, PaymentProcessor, ProcessorAccount } from '../processor/port.ts'
import * as store from './customer-store.ts'
import type { Customer } from './customer-store.ts'

/** A user as a payer: who pays, and in which account of the processor. */
export interface Payer extends UserKey {
  readonly externalUserId: string
  readonly at: ProcessorAccount
}

export interface CustomersDeps {
  readonly pool: Pool
  readonly processor: Pick<PaymentProcessor, 'kind' | 'createCustomer' | 'readCard' | 'hasCustomer'>
  /** Called after a card was read, at least once for each change. */
  readonly onCardRead?: (user: UserKey, card: Card | null) => Promise<void>
  readonly now: Now
}

/** The processor's records of users who pay, with their cards. */
export function createCustomers({ pool, processor, onCardRead, now }: CustomersDeps) {
  /**
   * Returns the payer's customer, created at first need and again after the processor has deleted
   * it. `attempt` names the call: a repetition under the same name creates no second customer at the
   * processor.
   */
  async function ensure(payer: Payer, attempt: string): Promise<Customer> {
    const { appId, userId, at } = payer
    const place = { at, processor: processor.kind }
    const existing = await store.findCustomer(pool, payer, place)
    if (existing?.isGone === false) return existing
    const former = existing === null ? '' : `:${existing.customerId}`
    const { id } = await processor.createCustomer(
      at,
      { reference: `${appId}/${userId}`, description: payer.externalUserId },
      `${at.plane}:${appId}:customer:${userId}:${attempt}${former}`,
    )
    await store.insertCustomer(pool, { appId, userId, ...place, customerId: id, createdAt: now() })
    const created = await store.findCustomer(pool, payer, place)
    if (!created) throw new Error(`user ${userId} has no customer after it was created`)
    return created
  }

  /** Reads the customer's default card from the processor and stores it. */
  async function refresh(customer: Customer): Promise<Customer> {
    if (customer.isGone) return customer
    const readAt = now()
    const card = await processor.readCard(customer.at, customer.customerId)
    const isGone = card === null && !(await processor.hasCustomer(customer.at, customer.customerId))
    if (isGone) await forget(customer)
    else await store.saveCard(pool, customer, { card, readAt })
    await onCardRead?.(customer, card)
    return { ...customer, card, isGone }
  }

  /** A customer that the processor has deleted can neither pay nor come back. */
  async function forget(customer: Customer): Promise<void> {
    const { appId, userId, customerId, at } = customer
    const goneAt = now()
    await tx(pool, async (db) => {
      if (!(await store.saveGone(db, customer, goneAt))) return
      await auditSuccess(db, {
        appId,
        actor: { name: 'payment processor' },
        action: 'processor_customer_gone',
        details: { userId, customerId, plane: at.plane, account: at.account },
        at: goneAt,
      })
    })
  }

  /** Refreshes the customer with the processor's id. Does nothing for a customer of others. */
  async function refreshById(customerId: string, at: ProcessorAccount): Promise<Customer | null> {
    const place = { at, processor: processor.kind }
    const customer = await store.findByCustomerId(pool, customerId, place)
    return customer && refresh(customer)
  }

  /** Returns the card on file that can be charged at `instant`, as last read; null without one. */
  async function findCard(
    { appId, userId, at }: Pick<Payer, 'appId' | 'userId' | 'at'>,
    instant: Date,
  ): Promise<{ readonly customer: Customer; readonly card: Card } | null> {
    const place = { at, processor: processor.kind }
    const customer = await store.findCustomer(pool, { appId, userId }, place)
    const card = customer?.card
    return customer && card && isChargeable(card, instant) ? { customer, card } : null
  }

  /**
   * Whether the card on file can be charged at `instant` and is not the one with this id. The card on
   * file does not change until the transaction ends.
   */
  async function hasOtherCard(
    db: Db,
    { appId, userId, at }: Pick<Payer, 'appId' | 'userId' | 'at'>,
    { cardId, instant }: { readonly cardId: string | null; readonly instant: Date },
  ): Promise<boolean> {
    const place = { at, processor: processor.kind }
    const customer = await store.holdCustomer(db, { appId, userId }, place)
    const card = customer?.card ?? null
    return card !== null && card.id !== cardId && isChargeable(card, instant)
  }

  return { ensure, refresh, refreshById, findCard, hasOtherCard }
}

export type Customers = ReturnType<typeof createCustomers>

/** A card can be charged until the end of the month in which it expires. */
export const isChargeable = (
  { expiresYear, expiresMonth }: Pick<Card, 'expiresYear' | 'expiresMonth'>,
  at: Date,
): boolean => at.getTime() < Date.UTC(expiresYear, expiresMonth)
