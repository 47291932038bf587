/**
 * The port of the payment processor. An adapter translates to one product and keeps no state of
 * ours. Amounts are whole cents of US dollars (decision 65).
 *
 * Every function throws PROCESSOR_UNREACHABLE if the processor does not answer or its answer is
 * unclear, and PROCESSOR_REFUSED with a safe text if it rejects the request. Callers never take a
 * failure for zero or false. PROCESSOR_REFUSED means that nothing happened. After
 * PROCESSOR_UNREACHABLE, anything may have happened.
 *
 * A function with an idempotency `key` may be repeated with the same arguments: the processor acts
 * once and returns the first result. It remembers keys for a day, and some of its faults as long as
 * their keys. So before an attempt is repeated later than that or given up, `findPayment` or
 * `listRefunds` must show its result.
 */

/** The processor's separate worlds: `test` never moves real money. Test apps use it, others never. */
export type Plane = 'live' | 'test'

/**
 * Where an object of the processor lives: in a connected app's account, or in the platform's own
 * (`account` null).
 */
export interface ProcessorAccount {
  readonly plane: Plane
  readonly account: string | null
}

/** Whole cents of US dollars. */
declare const unit: unique symbol
export type UsdCents = bigint & { readonly [unit]: 'usd-cents' }
export const usdCents = (value: bigint): UsdCents => value as UsdCents

/** A connected account as the processor reports it. */
export interface AccountState {
  readonly chargesEnabled: boolean
  readonly payoutsEnabled: boolean
  readonly detailsSubmitted: boolean
}

/** A payment method that the processor can charge without the user. */
export interface Card {
  readonly id: string
  /** Lower case, for example `visa`. */
  readonly brand: string
  readonly last4: string
  readonly expiresMonth: number
  readonly expiresYear: number
}

export interface NewCheckout {
  readonly customer: string
  /** `payment` takes the amount and keeps the card; `card` only keeps the card. */
  readonly mode: 'payment' | 'card'
  /** Null in mode `card`. */
  readonly amount: UsdCents | null
  /** The platform's share of the payment; zero in the platform's own account. */
  readonly fee: UsdCents
  /** Text on the pay page and the receipt. */
  readonly description: string
  readonly successUrl: string
  readonly cancelUrl: string
  /** Our id of the checkout, which the processor returns with it. */
  readonly reference: string
}

export interface OpenCheckout {
  readonly id: string
  readonly url: string
  readonly expiresAt: Date
}

export interface Checkout {
  readonly id: string
  readonly reference: string | null
  readonly customer: string | null
  readonly mode: 'payment' | 'card'
  /**
   * `open`: the user may still pay. `processing`: the user finished, and the payment is not decided
   * yet. `paid`: the money arrived, or in mode `card`, the card is kept.
   */
  readonly state: 'open' | 'processing' | 'paid' | 'failed' | 'expired'
  /** The processor's total and currency in lower case; null in mode `card`. */
  readonly amount: UsdCents | null
  readonly currency: string | null
  /** The payment, once there is one. */
  readonly payment: string | null
}

/** Identifies a payment whose answer was lost. */
export interface LostPayment {
  readonly customer: string
  readonly reference: string
  /** Time before the first attempt. */
  readonly since: Date
}

export interface NewPayment {
  readonly customer: string
  /** The id of the card. */
  readonly card: string
  readonly amount: UsdCents
  readonly fee: UsdCents
  readonly description: string
  /** Our id of the collection, which the processor returns with it. */
  readonly reference: string
}

export interface Payment {
  readonly id: string
  readonly reference: string | null
  readonly customer: string | null
  /**
   * `processing`: not decided yet. `action_required`: the bank wants the user's confirmation; a
   * payment without the user will not complete any more, so open a checkout instead. `failed`: the
   * last attempt failed; a payment of an open checkout may still succeed with another card.
   */
  readonly state: 'processing' | 'succeeded' | 'action_required' | 'failed' | 'canceled'
  readonly amount: UsdCents
  readonly currency: string
  readonly refunded: UsdCents
  /** The processor's code of a failure, for example `card_declined`; null otherwise. */
  readonly failure: string | null
  /** Withdrawn for disputes that are open or lost. */
  readonly disputed: UsdCents
}

export interface NewRefund {
  readonly payment: string
  readonly amount: UsdCents
  readonly reference: string
  /**
   * Whether the platform returns the fee of the refunded part to the account. Default is no. Allowed
   * only if the payment has a fee, and no part of the fee was returned before.
   */
  readonly returnsFee?: boolean
}

/** A refund by core or by the owner at the processor. */
export interface Refund {
  readonly id: string
  readonly payment: string
  /** Null for a refund that was made at the processor. */
  readonly reference: string | null
  readonly amount: UsdCents
  readonly state: 'pending' | 'succeeded' | 'failed'
}

/** The object that an event is about. Its content is read again, never taken from the event. */
export type EventSubject = 'checkout' | 'payment' | 'refund' | 'dispute' | 'account' | 'customer'

export interface ProcessorEvent {
  readonly id: string
  readonly at: ProcessorAccount
  /** Null for a type that is ignored. */
  readonly subject: EventSubject | null
  /** The processor's name of the type, for logs. */
  readonly type: string
  readonly objectId: string
  /** For a refund or a dispute: its payment. */
  readonly payment: string | null
  /** True if the owner ended the connection at the processor. */
  readonly isDeauthorization: boolean
}

/** A movement in an account's balance, for reconciliation. */
export interface Movement {
  readonly id: string
  readonly kind: 'payment' | 'refund' | 'dispute' | 'fee' | 'payout' | 'other'
  /** In the smallest unit of the currency. Signed: money that leaves is negative. */
  readonly amount: bigint
  readonly currency: string
  /** Withheld from the amount for the platform; 0 unless it is a payment to a connected account. */
  readonly platformFee: bigint
  /** The currency of the account's balance. */
  readonly feeCurrency: string
  /** Of a payment, refund or dispute: the payment. */
  readonly payment: string | null
  /** Of a payment that core requested: our reference. */
  readonly reference: string | null
  /**
   * The same text on a payment with a platform fee and on the movements that give this fee to the
   * platform and back; null on all others.
   */
  readonly feeReference: string | null
  readonly createdAt: Date
}

/** What an account holds in one currency. Negative if it owes. */
export interface Balance {
  /** ISO code in lower case. */
  readonly currency: string
  /** Digits after the point; amounts count the smallest unit. */
  readonly decimals: number
  /** Can be paid out. */
  readonly available: bigint
  /** Taken, but not available yet. */
  readonly pending: bigint
}

/** A payment of the processor to the owner's bank. Negative if the bank was debited. */
export interface Payout {
  readonly id: string
  readonly amount: bigint
  readonly currency: string
  readonly decimals: number
  /** `pending`: not sent to the bank yet. A paid one may still fail within days. */
  readonly state: 'pending' | 'in_transit' | 'paid' | 'failed' | 'canceled'
  /** The day on which the bank has it, or should have it. */
  readonly arrivesAt: Date
  readonly createdAt: Date
  /** The processor's code of a failure, for example `account_closed`; null otherwise. */
  readonly failure: string | null
}

export interface PayoutPage {
  readonly payouts: readonly Payout[]
  readonly hasMore: boolean
}

export interface PaymentProcessor {
  readonly kind: 'simulated' | 'stripe'
  /** The planes that have credentials. */
  readonly planes: readonly Plane[]

  /** Creates an account that an owner completes at the processor. `reference` is the app's id. */
  createAccount(
    plane: Plane,
    account: { readonly reference: string; readonly email: string | null },
    key: string,
  ): Promise<{ readonly id: string }>
  /** Returns a short-lived address where the owner completes the account. */
  createOnboardingUrl(
    at: ProcessorAccount,
    urls: { readonly returnUrl: string; readonly refreshUrl: string },
  ): Promise<{ readonly url: string }>
  /** Returns null if the account is unknown or its owner ended the connection. */
  readAccount(at: ProcessorAccount): Promise<AccountState | null>
  /** Reads what the account holds, by currency. */
  readBalance(at: ProcessorAccount): Promise<readonly Balance[]>
  /**
   * Lists payouts, newest first, at most 50 at a time. `after` is the id of the last payout of the
   * page before. Returns null if the account has no such payout.
   */
  listPayouts(
    at: ProcessorAccount,
    page: { readonly limit: number; readonly after: string | null },
  ): Promise<PayoutPage | null>

  /** Creates the processor's record of a payer. `reference` is our id of the user. */
  createCustomer(
    at: ProcessorAccount,
    customer: { readonly reference: string; readonly description: string },
    key: string,
  ): Promise<{ readonly id: string }>
  /** Returns the customer's default card; null if there is none that can be charged. */
  readCard(at: ProcessorAccount, customer: string): Promise<Card | null>
  /** Returns false if the customer is unknown or was deleted at the processor. */
  hasCustomer(at: ProcessorAccount, customer: string): Promise<boolean>

  openCheckout(at: ProcessorAccount, checkout: NewCheckout, key: string): Promise<OpenCheckout>
  /**
   * Returns null for an unknown checkout. The card of a paid one becomes the customer's default
   * card, unless a later checkout has set it.
   */
  readCheckout(at: ProcessorAccount, id: string): Promise<Checkout | null>
  /** Ends an open checkout, so that it can no longer be paid. Does nothing if it has ended. */
  expireCheckout(at: ProcessorAccount, id: string): Promise<void>

  /** Charges a card without the user. A decline is a result (`failed`), not an error. */
  pay(at: ProcessorAccount, payment: NewPayment, key: string): Promise<Payment>
  /** Returns null for an unknown payment. */
  readPayment(at: ProcessorAccount, id: string): Promise<Payment | null>
  /** Searches for the payment of a `pay` without an answer; null if the processor has none. */
  findPayment(at: ProcessorAccount, lost: LostPayment): Promise<Payment | null>
  refund(at: ProcessorAccount, refund: NewRefund, key: string): Promise<Refund>
  /** Lists all refunds of a payment, at most 1,000, newest first. */
  listRefunds(at: ProcessorAccount, payment: string): Promise<readonly Refund[]>

  /**
   * Verifies the signature over the raw bytes with each secret of each plane, and returns the
   * event with the plane of the secret that fits. An event of the other plane has no subject: Stripe
   * sends a live endpoint the test events of connected accounts, too. Throws SIGNATURE_INVALID if
   * no secret fits or the timestamp differs from `at` by more than 300 s, and REQUEST_INVALID if
   * the body is no event.
   */
  verifyEvent(body: Uint8Array, signature: string, at: Date): ProcessorEvent
  /** Lists the movements of `[from, to)`, newest first, a page of at most 100 at a time. */
  listMovements(
    at: ProcessorAccount,
    range: { readonly from: Date; readonly to: Date; readonly after: string | null },
  ): Promise<{ readonly movements: readonly Movement[]; readonly after: string | null }>
}
