import { StripeFault } from './faults.ts'
import { type Form, readForm, recordOf } from './form.ts'
import type { Money } from './money.ts'
import type { FakeAccount, FakeIntent, FakeSession, World } from './world.ts'

export interface Call {
  readonly world: World
  /** The account of an id in the path of `/v1/accounts/:id`. */
  readonly accounts: Accounts
  readonly id: string
  readonly form: Form
  readonly money: Money
  readonly payUrl: string
  readonly emit: (type: string, object: object) => void
}

export interface Accounts {
  readonly create: (fields: Pick<FakeAccount, 'email' | 'metadata'>) => FakeAccount
  /** Throws Stripe's error without access. */
  readonly get: (id: string) => FakeAccount
  readonly own: () => FakeAccount
}

type Handler = (call: Call) => object

const amountMin = 50
const amountMax = 99_999_999

/** Stripe's routes that this project uses, by `METHOD path`. */
export const routes: Readonly<Record<string, Handler>> = {
  'POST /v1/accounts': ({ form, accounts }) => {
    const read = readForm(form)
    read.only('controller', 'email', 'metadata')
    return accounts.create({ email: read.text('email'), metadata: recordOf(read.form('metadata')) })
  },
  'GET /v1/accounts/:id': ({ accounts, id }) => accounts.get(id),
  'GET /v1/account': ({ accounts }) => accounts.own(),
  'POST /v1/account_links': ({ form, accounts, world, payUrl }) => {
    const read = readForm(form)
    read.only('account', 'type', 'return_url', 'refresh_url')
    const { id } = accounts.get(read.required('account'))
    read.required('type')
    const { created } = world.head('customer')
    const expires_at = created + 300
    return { object: 'account_link', created, expires_at, url: `${payUrl}/setup/${id}` }
  },
  'POST /v1/customers': ({ form, world }) => {
    const read = readForm(form)
    read.only('description', 'metadata')
    return world.add({
      ...world.head('customer'),
      description: read.text('description'),
      metadata: recordOf(read.form('metadata')),
      invoice_settings: { default_payment_method: null },
    })
  },
  'GET /v1/customers/:id': ({ world, id }) => {
    const customer = world.find(id)
    return customer !== undefined && 'deleted' in customer ? customer : world.get('customer', id)
  },
  'POST /v1/customers/:id': updateCustomer,
  'POST /v1/checkout/sessions': openSession,
  'GET /v1/checkout/sessions/:id': ({ world, id }) => world.get('checkout.session', id),
  'POST /v1/checkout/sessions/:id/expire': ({ world, id, emit }) => {
    const session = world.get('checkout.session', id)
    if (session.status !== 'open')
      throw StripeFault.invalid(
        `Only Checkout Sessions with a status in ["open"] can be expired. This one is ${session.status}.`,
      )
    expireSession(session)
    emit('checkout.session.expired', session)
    return session
  },
  'POST /v1/payment_intents': pay,
  'GET /v1/payment_intents': ({ world, form }) => {
    const read = readForm(form)
    const customer = read.text('customer')
    const isWanted = createdIn(read.form('created'))
    return page(
      world.list('payment_intent'),
      form,
      (intent) => isWanted(intent) && (customer === null || intent.customer === customer),
    )
  },
  'GET /v1/payment_intents/:id': ({ world, id }) => world.get('payment_intent', id),
  'POST /v1/refunds': ({ form, world, money }) => {
    const read = readForm(form)
    read.only('payment_intent', 'amount', 'metadata', 'refund_application_fee')
    return money.refund(world, {
      payment: read.required('payment_intent'),
      amount: read.cents('amount'),
      returnsFee: read.text('refund_application_fee') === 'true',
      metadata: recordOf(read.form('metadata')),
    })
  },
  'GET /v1/refunds': ({ world, form }) => {
    const payment = readForm(form).text('payment_intent')
    return page(world.list('refund'), form, ({ payment_intent }) => payment_intent === payment)
  },
  'GET /v1/disputes': ({ world, form }) => {
    const payment = readForm(form).text('payment_intent')
    return page(world.list('dispute'), form, ({ payment_intent }) => payment_intent === payment)
  },
  'GET /v1/application_fees/:id': ({ world, id }) => world.get('application_fee', id),
  'GET /v1/balance': ({ world, form }) => {
    readForm(form).only()
    return { object: 'balance', ...balanceOf(world) }
  },
  'GET /v1/payouts': ({ world, form }) => {
    const read = readForm(form)
    read.only('limit', 'starting_after')
    const after = read.text('starting_after')
    if (after !== null) world.get('payout', after, 'starting_after')
    return page(world.list('payout'), form, () => true)
  },
  'GET /v1/balance_transactions': ({ world, form }) =>
    page(world.list('balance_transaction'), form, createdIn(readForm(form).form('created'))),
}

/** Money of payments is pending for two days; other movements count at once. */
function balanceOf(world: World): object {
  const { created: now } = world.head('balance_transaction')
  const totals = { available: new Map<string, number>(), pending: new Map<string, number>() }
  for (const { currency, net, type, created } of [
    ...world.list('balance_transaction'),
  ].toReversed()) {
    const isPending = type === 'charge' && created > now - 2 * 86_400
    const sums = isPending ? totals.pending : totals.available
    sums.set(currency, (sums.get(currency) ?? 0) + net)
  }
  const toList = (sums: ReadonlyMap<string, number>) =>
    [...sums].map(([currency, amount]) => ({ currency, amount }))
  return { available: toList(totals.available), pending: toList(totals.pending) }
}

function updateCustomer({ form, world, id, emit }: Call): object {
  const customer = world.get('customer', id)
  const read = readForm(form)
  read.only('invoice_settings', 'metadata', 'description')
  const card = readForm(read.form('invoice_settings')).text('default_payment_method')
  if (card !== null) {
    requireOwn(world, card, id)
    customer.invoice_settings.default_payment_method = card
  }
  Object.assign(customer.metadata, recordOf(read.form('metadata')))
  emit('customer.updated', customer)
  return customer
}

function requireOwn(world: World, method: string, customer: string): void {
  if (world.get('payment_method', method, 'payment_method').customer === customer) return
  throw StripeFault.invalid(`The PaymentMethod ${method} does not belong to the Customer.`, {
    param: 'payment_method',
  })
}

const sessionFields = [
  'mode',
  'customer',
  'client_reference_id',
  'metadata',
  'success_url',
  'cancel_url',
  'allowed_payment_method_types',
  'currency',
  'line_items',
  'adaptive_pricing',
  'payment_intent_data',
  'setup_intent_data',
]

function openSession({ form, world, payUrl }: Call): FakeSession {
  const read = readForm(form)
  read.only(...sessionFields)
  const mode = read.required('mode') === 'setup' ? 'setup' : 'payment'
  const customer = world.get('customer', read.required('customer'), 'customer').id
  const head = world.head('checkout.session')
  const data = readForm(read.form('payment_intent_data'))
  const amount = mode === 'setup' ? null : totalOf(read.list('line_items'))
  if (amount !== null) checkAmounts(world, amount, data.cents('application_fee_amount'))
  const session = world.add<FakeSession>({
    ...head,
    mode,
    customer,
    client_reference_id: read.text('client_reference_id'),
    metadata: recordOf(read.form('metadata')),
    amount_total: amount,
    currency: 'usd',
    status: 'open',
    payment_status: mode === 'setup' ? 'no_payment_required' : 'unpaid',
    payment_intent: null,
    setup_intent: null,
    url: `${payUrl}/pay/${head.id}`,
    expires_at: head.created + 24 * 3_600,
    success_url: read.required('success_url'),
    cancel_url: read.text('cancel_url'),
  })
  if (mode === 'setup') {
    const setup = { customer, payment_method: null, status: 'requires_payment_method' } as const
    session.setup_intent = world.add({ ...world.head('setup_intent'), ...setup }).id
  }
  world.pending.set(session.id, {
    description: data.text('description'),
    metadata: recordOf(data.form('metadata')),
    application_fee_amount: data.cents('application_fee_amount'),
  })
  return session
}

function totalOf(items: readonly unknown[]): number {
  let total = 0
  for (const item of items) {
    if (typeof item !== 'object' || item === null) continue
    const line = readForm({ ...item })
    const price = readForm(line.form('price_data'))
    if (price.required('currency') !== 'usd') throw StripeFault.invalid('Only usd here')
    total += (price.cents('unit_amount') ?? 0) * (line.cents('quantity') ?? 1)
  }
  return total
}

export function expireSession(session: FakeSession): void {
  session.status = 'expired'
  session.url = null
}

function checkAmounts(world: World, amount: number, fee: number | null): void {
  if (amount < amountMin)
    throw StripeFault.invalid('Amount must be at least $0.50 usd', { code: 'amount_too_small' })
  if (amount > amountMax)
    throw StripeFault.invalid('Amount must be no more than $999,999.99', {
      code: 'amount_too_large',
    })
  if (fee === null) return
  if (world.account === null)
    throw StripeFault.invalid('Application fees need a connected account.', {
      code: 'application_fees_not_allowed',
      param: 'application_fee_amount',
    })
  if (fee > amount)
    throw StripeFault.invalid('The application fee exceeds the amount.', {
      param: 'application_fee_amount',
    })
}

const intentFields = [
  'customer',
  'payment_method',
  'allowed_payment_method_types',
  'amount',
  'currency',
  'description',
  'metadata',
  'off_session',
  'confirm',
  'application_fee_amount',
]

function pay({ form, world, money }: Call): FakeIntent {
  const read = readForm(form)
  read.only(...intentFields)
  read.required('currency')
  const amount = Number(read.required('amount'))
  const fee = read.cents('application_fee_amount')
  checkAmounts(world, amount, fee)
  const customer = world.get('customer', read.required('customer'), 'customer').id
  const method = read.required('payment_method')
  requireOwn(world, method, customer)
  const intent = addIntent(world, {
    amount,
    customer,
    method,
    description: read.text('description'),
    metadata: recordOf(read.form('metadata')),
    application_fee_amount: fee,
  })
  money.attempt(world, intent, world.behaviours.get(method) ?? 'good')
  const { last_payment_error } = intent
  if (last_payment_error !== null) {
    const { message, ...error } = last_payment_error
    throw new StripeFault(402, message, { ...error, payment_intent: { ...intent } })
  }
  return intent
}

export interface NewIntent extends Pick<
  FakeIntent,
  'amount' | 'customer' | 'description' | 'metadata' | 'application_fee_amount'
> {
  readonly method: string
}

export const addIntent = (world: World, { method, ...fields }: NewIntent): FakeIntent =>
  world.add<FakeIntent>({
    ...world.head('payment_intent'),
    ...fields,
    currency: 'usd',
    payment_method: method,
    status: 'requires_payment_method',
    latest_charge: null,
    last_payment_error: null,
  })

/** A page of a list, newest first. */
function page<T extends { readonly id: string }>(
  objects: Iterable<T>,
  form: Form,
  isWanted: (object: T) => boolean,
): object {
  const read = readForm(form)
  const limit = Math.min(read.cents('limit') ?? 10, 100)
  const after = read.text('starting_after')
  const data: T[] = []
  let isReached = after === null
  for (const object of objects) {
    if (isReached && isWanted(object)) data.push(object)
    isReached ||= object.id === after
    if (data.length > limit) break
  }
  return { object: 'list', data: data.slice(0, limit), has_more: data.length > limit }
}

function createdIn(range: Form): (object: { readonly created: number }) => boolean {
  const read = readForm(range)
  const [from, to] = [read.cents('gte') ?? 0, read.cents('lt') ?? Number.MAX_SAFE_INTEGER]
  return ({ created }) => created >= from && created < to
}
