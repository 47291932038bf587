import type { ProcessorAccount } from '../../../core/billing/processor/port.ts'
import { type CardChoice, type Emit, type Money, type PayoutChoice, addCard } from './money.ts'
import { addIntent, expireSession } from './routes.ts'
import type {
  CardBehaviour,
  FakeAccount,
  FakeIntent,
  FakePaymentMethod,
  FakeSession,
  World,
} from './world.ts'

interface ControlDeps {
  readonly worldOf: (at: ProcessorAccount) => World
  readonly accounts: Map<string, FakeAccount>
  readonly money: Money
  readonly emit: Emit
}

/**
 * What happens on the pay page: the user pays, the card is declined, the bank wants a confirmation
 * that has not come yet, or the payment is decided later (`settleCheckout`).
 */
export type PayOutcome = 'paid' | 'declined' | 'action_required' | 'processing'

export interface PayOptions extends CardChoice {
  readonly outcome?: PayOutcome
  /** A card that the customer has, instead of a new one. */
  readonly method?: string
}

/** What users, owners and banks do, for tests. */
export function createControl({ worldOf, accounts, money, emit }: ControlDeps) {
  function payCheckout(at: ProcessorAccount, id: string, options: PayOptions = {}): FakeSession {
    const world = worldOf(at)
    const session = world.get('checkout.session', id)
    if (session.status !== 'open') throw new Error(`the session is ${session.status}`)
    const { outcome = 'paid', method = addCard(world, session.customer, options).id } = options
    if (session.mode === 'setup') return keepCard(world, session, { outcome, method })
    const intent = intentOf(world, session, method)
    if (outcome === 'declined') money.fail(world, intent, 'card_declined')
    else if (outcome === 'action_required') {
      intent.status = 'requires_action'
      emit(world, 'payment_intent.requires_action', intent)
    } else {
      money.attempt(world, intent, outcome === 'paid' ? 'good' : 'processing')
      complete(world, session, outcome)
    }
    return session
  }

  /** The intent of the session, which the first attempt creates. */
  function intentOf(world: World, session: FakeSession, method: string): FakeIntent {
    if (session.payment_intent === null) {
      const { customer, amount_total } = session
      const rest = world.pending.get(session.id)
      if (amount_total === null || !rest) throw new Error('not a session for a payment')
      const intent = addIntent(world, { amount: amount_total, customer, method, ...rest })
      session.payment_intent = intent.id
      world.pending.delete(session.id)
      return intent
    }
    const intent = world.get('payment_intent', session.payment_intent)
    intent.payment_method = method
    return intent
  }

  function complete(world: World, session: FakeSession, outcome: 'paid' | 'processing'): void {
    session.status = 'complete'
    session.url = null
    if (outcome === 'paid' && session.mode === 'payment') session.payment_status = 'paid'
    emit(world, 'checkout.session.completed', session)
  }

  function keepCard(
    world: World,
    session: FakeSession,
    { outcome, method }: { outcome: PayOutcome; method: string },
  ): FakeSession {
    const setup = world.get('setup_intent', session.setup_intent ?? '')
    if (outcome !== 'paid') return session
    setup.payment_method = method
    setup.status = 'succeeded'
    emit(world, 'payment_method.attached', world.get('payment_method', method))
    complete(world, session, outcome)
    return session
  }

  return {
    world: worldOf,
    payCheckout,
    /** Decides a payment that was `processing`. */
    settleCheckout: (at: ProcessorAccount, id: string, outcome: 'paid' | 'failed'): void => {
      const world = worldOf(at)
      const session = world.get('checkout.session', id)
      settle(world, world.get('payment_intent', session.payment_intent ?? ''), outcome)
      if (outcome === 'paid') session.payment_status = 'paid'
      const word = outcome === 'paid' ? 'succeeded' : 'failed'
      emit(world, `checkout.session.async_payment_${word}`, session)
    },
    /** Decides a payment that was `processing`, without a session. */
    settlePayment: (at: ProcessorAccount, id: string, outcome: 'paid' | 'failed'): void =>
      settle(worldOf(at), worldOf(at).get('payment_intent', id), outcome),
    /** A day passes: the session can no longer be paid. */
    expireCheckout: (at: ProcessorAccount, id: string): void => {
      const world = worldOf(at)
      const session = world.get('checkout.session', id)
      expireSession(session)
      emit(world, 'checkout.session.expired', session)
    },
    /** Adds a card to a customer and makes it the default. */
    addCard: (
      at: ProcessorAccount,
      customer: string,
      choice: CardChoice = {},
    ): FakePaymentMethod => {
      const world = worldOf(at)
      const method = addCard(world, customer, choice)
      const owner = world.get('customer', customer)
      owner.invoice_settings.default_payment_method = method.id
      emit(world, 'payment_method.attached', method)
      emit(world, 'customer.updated', owner)
      return method
    },
    /** Changes how a card behaves from now on. */
    setCard: (at: ProcessorAccount, method: string, behaviour: CardBehaviour): void =>
      void worldOf(at).behaviours.set(method, behaviour),
    removeCard: (at: ProcessorAccount, id: string): void => {
      const world = worldOf(at)
      const method = world.get('payment_method', id)
      const { customer } = method
      method.customer = null
      if (customer !== null) {
        const settings = world.get('customer', customer).invoice_settings
        if (settings.default_payment_method === id) settings.default_payment_method = null
      }
      emit(world, { name: 'payment_method.detached', previous: { customer } }, method)
    },
    /** Deletes a customer, as in Stripe's dashboard. Its cards are detached without events. */
    deleteCustomer: (at: ProcessorAccount, id: string): void => {
      const world = worldOf(at)
      const customer = world.get('customer', id)
      for (const method of world.list('payment_method'))
        if (method.customer === id) method.customer = null
      customer.invoice_settings.default_payment_method = null
      customer.deleted = true
      emit(world, 'customer.deleted', customer)
    },
    refundPayment: (at: ProcessorAccount, payment: string, amount: number | null = null) =>
      money.refund(worldOf(at), { payment, amount, metadata: {}, returnsFee: false }),
    /** The platform returns its fee of a payment. */
    refundFee: (at: ProcessorAccount, payment: string): void =>
      money.refundFee(worldOf(at), payment),
    failRefund: (at: ProcessorAccount, id: string): void => money.failRefund(worldOf(at), id),
    dispute: (
      at: ProcessorAccount,
      payment: string,
      status: 'needs_response' | 'warning_needs_response' = 'needs_response',
    ) => money.dispute(worldOf(at), payment, status),
    closeDispute: (at: ProcessorAccount, id: string, status: 'won' | 'lost'): void =>
      money.closeDispute(worldOf(at), id, status),
    payOut: (at: ProcessorAccount, choice: PayoutChoice): void => money.payout(worldOf(at), choice),
    /** The owner finishes the account, or Stripe changes what it may do. */
    onboard: (
      id: string,
      flags: Partial<
        Pick<FakeAccount, 'charges_enabled' | 'payouts_enabled' | 'details_submitted'>
      > = {},
    ): void => {
      const account = requireKnown(id)
      const all = { charges_enabled: true, payouts_enabled: true, details_submitted: true }
      Object.assign(account, all, flags)
      emit(worldOf(placeOf(account)), 'account.updated', account)
    },
    /** The owner ends the connection. */
    deauthorize: (id: string): void => {
      const account = requireKnown(id)
      accounts.delete(id)
      emit(worldOf(placeOf(account)), 'account.application.deauthorized', {
        id: 'ca_platform',
        object: 'application',
      })
    },
  }

  function settle(world: World, intent: FakeIntent, outcome: 'paid' | 'failed'): void {
    if (outcome === 'paid') money.succeed(world, intent)
    else money.fail(world, intent, 'card_declined')
  }

  function requireKnown(id: string): FakeAccount {
    const account = accounts.get(id)
    if (!account) throw new Error(`no account ${id}`)
    return account
  }
}

const placeOf = ({ id, livemode }: FakeAccount): ProcessorAccount => ({
  plane: livemode ? 'live' : 'test',
  account: id,
})
