import { type Body, type Call, type Reply, problem, record, text } from './api-v1.ts'
import { rateCardsOf } from './plans.ts'
import { type FakePlan, type FakeSubscription, type State, ulid } from './state.ts'

type SubscriptionCall = Pick<Call, 'method' | 'body'> & {
  readonly id: string
  readonly verb: string | undefined
  readonly customerId: string | null
}

/** Differences between the versions of the API. */
interface Names {
  show(one: FakeSubscription): object
  page(items: readonly object[]): object
  customerId(body: Body): unknown
  /** Features for which the plan gives the customer an entitlement. */
  entitled(plan: FakePlan): readonly string[]
}

export const subscriptionsV1: Names = {
  show: (one) => ({
    id: one.id,
    name: one.plan.key,
    createdAt: one.activeFrom,
    updatedAt: one.activeFrom,
    activeFrom: one.activeFrom,
    status: one.status,
    customerId: one.customerId,
    plan: { id: one.plan.id, key: one.plan.key, version: one.plan.version },
    currency: 'USD',
    costBasisMode: 'dynamic',
    costBasisPins: [],
    billingCadence: one.plan.cadence,
    billingAnchor: one.activeFrom,
    settlementMode: 'credit_then_invoice',
    phases: [],
  }),
  page: (items) => ({ items, page: 1, pageSize: 100, totalCount: items.length }),
  customerId: (body) => body['customerId'],
  entitled: (plan) =>
    rateCardsOf(plan.body, 'rateCards').flatMap((card) =>
      card['entitlementTemplate'] === undefined ? [] : [text(card['featureKey'])],
    ),
}

export const subscriptionsV3: Names = {
  show: (one) => ({
    id: one.id,
    name: one.plan.key,
    created_at: one.activeFrom,
    updated_at: one.activeFrom,
    active_from: one.activeFrom,
    status: one.status,
    customer_id: one.customerId,
    plan: { id: one.plan.id, key: one.plan.key, version: one.plan.version },
    invoice_currency: 'USD',
    cost_basis_mode: 'dynamic',
    cost_basis_pins: [],
    billing_cadence: one.plan.cadence,
    billing_anchor: one.activeFrom,
    phases: [],
  }),
  page: (data) => ({ data, meta: { page: { number: 1, size: 100, total: data.length } } }),
  customerId: (body) => record(body['customer'])['id'],
  entitled: () => [],
}

/**
 * Answers for subscriptions as the documents describe them: a customer has one at a time. If
 * `customerId` is null, lists those of all customers.
 */
export function answerSubscriptions(
  state: State,
  names: Names,
  { method, id, verb, body, customerId }: SubscriptionCall,
): Reply {
  if (method === 'GET') {
    const items = state.subscriptions.filter(
      (one) => customerId === null || one.customerId === customerId,
    )
    return { status: 200, body: names.page(items.toReversed().map(names.show)) }
  }
  if (id === '') return start(state, names, { body, customerId: names.customerId(body) })
  const current = state.subscriptions.find((one) => one.id === id)
  if (!current) return problem(404, 'subscription not found')
  if (current.status !== 'active') return problem(400, 'the subscription has ended')
  if (verb === 'cancel') {
    current.status = 'inactive'
    return { status: 200, body: names.show(current) }
  }
  current.status = 'inactive'
  const next = start(state, names, { body, customerId: current.customerId })
  if (next.status !== 201) {
    current.status = 'active'
    return next
  }
  return { status: 200, body: { current: names.show(current), next: next.body } }
}

function start(
  state: State,
  names: Names,
  { body, customerId }: { readonly body: Body; readonly customerId: unknown },
): Reply {
  const customer = state.customers.find((one) => one.id === customerId)
  if (!customer) return problem(400, 'there is no such customer')
  const key = record(body['plan'])['key']
  const plan = state.plans.find((one) => one.key === key && one.status === 'active')
  if (!plan) return problem(404, 'plan not found')
  if (state.subscriptions.some((one) => one.customerId === customer.id && one.status === 'active'))
    return problem(409, 'only one subscription is allowed for a customer')
  if (names.entitled(plan).some((feature) => state.entitlements.has(`${customer.key} ${feature}`)))
    return problem(409, 'the customer has an entitlement of a feature of the plan')
  const subscription: FakeSubscription = {
    id: ulid(),
    customerId: customer.id,
    customerKey: customer.key,
    plan,
    status: 'active',
    activeFrom: new Date().toISOString(),
  }
  state.subscriptions.push(subscription)
  return { status: 201, body: names.show(subscription) }
}

/**
 * Returns whether a running subscription of API v1 gives the customer an entitlement to the
 * feature.
 */
export const isEntitled = (state: State, customerKey: string, feature: string): boolean =>
  state.subscriptions.some(
    (one) =>
      one.customerKey === customerKey &&
      one.status === 'active' &&
      subscriptionsV1.entitled(one.plan).includes(feature),
  )
