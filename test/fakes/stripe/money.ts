import { StripeFault } from './faults.ts'
import type {
  CardBehaviour,
  FakeCharge,
  FakeDispute,
  FakeFeeRefund,
  FakeIntent,
  FakePaymentMethod,
  FakePayout,
  FakeRefund,
  IntentError,
  World,
} from './world.ts'

/** Emits an event of a type, with the fields that changed where Stripe sends them. */
export type Emit = (world: World, type: EventType, object: object) => void
export type EventType = string | { readonly name: string; readonly previous: object }

const disputeFee = 1_500

/** Stripe's usual price: 2.9 % and 30 cents. */
const stripeFee = (amount: number): number => Math.round(amount * 0.029) + 30

/** What charges, refunds and disputes do to balances, with their events. */
export function createMoney({
  emit,
  platformOf,
}: {
  emit: Emit
  /** The platform's own world in the plane of `world`. */
  platformOf: (world: World) => World
}) {
  /** Charges the method, or fails as its behaviour demands. */
  function attempt(world: World, intent: FakeIntent, behaviour: CardBehaviour): void {
    if (behaviour === 'good') succeed(world, intent)
    else if (behaviour === 'processing') {
      intent.status = 'processing'
      emit(world, 'payment_intent.processing', intent)
    } else fail(world, intent, behaviour)
  }

  function succeed(world: World, intent: FakeIntent): void {
    const charge = addCharge(world, intent, 'succeeded')
    intent.status = 'succeeded'
    intent.last_payment_error = null
    const share = intent.application_fee_amount ?? 0
    book(world, { source: charge, amount: intent.amount, fee: stripeFee(intent.amount), share })
    if (share > 0) {
      const platform = platformOf(world)
      const head = platform.head('application_fee')
      const { currency } = intent
      const money = { amount: share, amount_refunded: 0, currency }
      const fee = platform.add({ ...head, ...money, charge: charge.id })
      book(platform, { source: fee, amount: share, fee: 0 })
    }
    emit(world, 'charge.succeeded', charge)
    emit(world, 'payment_intent.succeeded', intent)
  }

  function fail(world: World, intent: FakeIntent, behaviour: CardBehaviour): void {
    addCharge(world, intent, 'failed')
    intent.status = 'requires_payment_method'
    intent.last_payment_error = errorOf(behaviour)
    emit(world, 'payment_intent.payment_failed', intent)
  }

  function addCharge(world: World, intent: FakeIntent, status: FakeCharge['status']): FakeCharge {
    const { amount, currency, application_fee_amount, metadata } = intent
    const charge = world.add<FakeCharge>({
      ...world.head('charge'),
      amount,
      currency,
      payment_intent: intent.id,
      application_fee_amount,
      metadata,
      status,
      amount_refunded: 0,
      disputed: false,
    })
    intent.latest_charge = charge.id
    return charge
  }

  function refund(
    world: World,
    request: {
      readonly payment: string
      readonly amount: number | null
      readonly metadata: Record<string, string>
      readonly returnsFee: boolean
    },
  ): FakeRefund {
    const intent = world.get('payment_intent', request.payment, 'payment_intent')
    const charge = chargeOf(world, intent)
    const rest = charge.amount - charge.amount_refunded
    if (rest === 0)
      throw StripeFault.invalid('The charge has been refunded.', {
        code: 'charge_already_refunded',
      })
    const amount = request.amount ?? rest
    if (amount <= 0 || amount > rest)
      throw StripeFault.invalid('The refund is greater than the rest of the charge.', {
        param: 'amount',
      })
    const share = request.returnsFee ? returnFee(platformOf(world), charge, amount) : 0
    charge.amount_refunded += amount
    const refund = world.add<FakeRefund>({
      ...world.head('refund'),
      amount,
      currency: charge.currency,
      charge: charge.id,
      payment_intent: intent.id,
      metadata: request.metadata,
      status: 'succeeded',
    })
    book(world, { source: refund, amount: -amount, fee: 0, share: -share })
    emit(world, 'charge.refunded', charge)
    emit(world, 'refund.created', refund)
    return refund
  }

  function refundFee(world: World, payment: string): void {
    const charge = chargeOf(world, world.get('payment_intent', payment))
    returnFee(platformOf(world), charge, charge.amount)
  }

  /** The bank returns a refund: the money is back in the account. */
  function failRefund(world: World, id: string): void {
    const refund = world.get('refund', id)
    refund.status = 'failed'
    world.get('charge', refund.charge).amount_refunded -= refund.amount
    book(world, { source: refund, amount: refund.amount, fee: 0, category: 'refund_failure' })
    emit(world, 'refund.failed', refund)
  }

  function dispute(world: World, payment: string, status: FakeDispute['status']): FakeDispute {
    const intent = world.get('payment_intent', payment)
    const charge = chargeOf(world, intent)
    charge.disputed = true
    const dispute = world.add<FakeDispute>({
      ...world.head('dispute'),
      amount: charge.amount,
      currency: charge.currency,
      charge: charge.id,
      payment_intent: intent.id,
      status,
    })
    emit(world, 'charge.dispute.created', dispute)
    if (status === 'needs_response') {
      book(world, { source: dispute, amount: -dispute.amount, fee: disputeFee })
      emit(world, 'charge.dispute.funds_withdrawn', dispute)
    }
    return dispute
  }

  function closeDispute(world: World, id: string, status: 'won' | 'lost'): void {
    const dispute = world.get('dispute', id)
    dispute.status = status
    emit(world, 'charge.dispute.closed', dispute)
    if (status === 'lost') return
    const { amount } = dispute
    book(world, { source: dispute, amount, fee: 0, category: 'dispute_reversal' })
    emit(world, 'charge.dispute.funds_reinstated', dispute)
  }

  /** Pays out, in two days. A payout that fails moves no money. */
  function payout(world: World, { amount, ...fields }: PayoutChoice): void {
    const head = world.head('payout')
    const payout = world.add<FakePayout>({
      ...head,
      amount,
      currency: 'usd',
      status: 'paid',
      arrival_date: head.created + 2 * 86_400,
      failure_code: null,
      ...fields,
    })
    if (payout.status === 'failed') return
    book(world, { source: payout, amount: -amount, fee: 0 })
    emit(world, 'payout.paid', payout)
  }

  return { attempt, succeed, fail, refund, refundFee, failRefund, dispute, closeDispute, payout }
}

/** Returns the platform's fee of the refunded part, once at most. */
function returnFee(platform: World, charge: FakeCharge, amount: number): number {
  const fee = [...platform.list('application_fee')].find((item) => item.charge === charge.id)
  if (!fee || fee.amount_refunded === fee.amount)
    throw StripeFault.invalid('The charge has no application fee that can be refunded.', {
      param: 'refund_application_fee',
    })
  const share = Math.round((fee.amount * amount) / charge.amount)
  const returned = Math.min(share, fee.amount - fee.amount_refunded)
  fee.amount_refunded += returned
  const source = platform.add<FakeFeeRefund>({
    ...platform.head('fee_refund'),
    amount: returned,
    currency: fee.currency,
    fee: fee.id,
  })
  book(platform, { source, amount: -returned, fee: 0 })
  return returned
}

export type Money = ReturnType<typeof createMoney>

const categories = {
  charge: ['charge', 'charge'],
  refund: ['refund', 'refund'],
  dispute: ['adjustment', 'dispute'],
  payout: ['payout', 'payout'],
  application_fee: ['application_fee', 'platform_earning'],
  fee_refund: ['application_fee_refund', 'platform_earning_refund'],
} as const

interface Booking {
  readonly source: {
    readonly id: string
    readonly object: keyof typeof categories
    readonly currency: string
  }
  readonly amount: number
  /** Stripe's own fee. */
  readonly fee: number
  /** The platform's fee. */
  readonly share?: number
  readonly category?: string
}

function book(world: World, { source, amount, fee: ownFee, share = 0, category }: Booking): void {
  const [type, usual] = categories[source.object]
  const fee = ownFee + share
  const fee_details = [
    { type: 'stripe_fee', amount: ownFee },
    { type: 'application_fee', amount: share },
  ].filter((detail) => detail.amount !== 0)
  world.add({
    ...world.head('balance_transaction'),
    amount,
    currency: source.currency,
    fee,
    net: amount - fee,
    fee_details,
    type,
    reporting_category: category ?? usual,
    source: source.id,
  })
}

function chargeOf(world: World, { id, latest_charge, status }: FakeIntent): FakeCharge {
  if (latest_charge === null || status !== 'succeeded')
    throw StripeFault.invalid(`The PaymentIntent ${id} does not have a successful charge.`)
  return world.get('charge', latest_charge)
}

function errorOf(behaviour: CardBehaviour): IntentError {
  const type = 'card_error'
  if (behaviour === 'authentication_required' || behaviour === 'expired_card')
    return { type, code: behaviour, message: `The card needs something: ${behaviour}.` }
  const decline_code = behaviour === 'card_declined' ? 'generic_decline' : behaviour
  return { type, code: 'card_declined', decline_code, message: 'Your card was declined.' }
}

export interface PayoutChoice extends Partial<
  Pick<FakePayout, 'currency' | 'status' | 'failure_code'>
> {
  readonly amount: number
}

/** Creates a card that belongs to `customer`. */
export function addCard(
  world: World,
  customer: string,
  { behaviour = 'good', brand = 'visa', last4 = '4242', month = 12, year = 2099 }: CardChoice,
): FakePaymentMethod {
  const method = world.add<FakePaymentMethod>({
    ...world.head('payment_method'),
    type: 'card',
    customer: world.get('customer', customer, 'customer').id,
    card: { brand, last4, exp_month: month, exp_year: year },
  })
  world.behaviours.set(method.id, behaviour)
  return method
}

export interface CardChoice {
  readonly behaviour?: CardBehaviour
  readonly brand?: string
  readonly last4?: string
  readonly month?: number
  readonly year?: number
}
