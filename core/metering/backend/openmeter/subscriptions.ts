import type { Customer } from '../backend.ts'
import type { Subscriber } from '../subscribers.ts'
import { type Request, readList, member, readText } from './dialect.ts'
import { type Failure, type HttpAnswer, type HttpRequest, toFailure } from './http.ts'

const conflict = 409
const pageSize = '100'

interface Remote {
  readonly id: string
  readonly planKey: string | null
}

/** Requests and response readers about subscriptions, for one version of OpenMeter's API. */
export interface SubscriptionDialect {
  /** Lists the latest subscriptions of a customer. */
  list(customerId: string): Request
  items(body: unknown): readonly unknown[]
  readonly names: { readonly customer: string; readonly deleted: string }
  create(customerId: string, planKey: string): Request
  change(id: string, customerId: string, planKey: string): Request
  cancel(id: string): Request
}

export const subscriptionsV1: SubscriptionDialect = {
  list: (customerId) => ({
    method: 'GET',
    path: `/api/v1/customers/${customerId}/subscriptions`,
    query: { orderBy: 'activeFrom', order: 'DESC', page: '1', pageSize },
  }),
  items: (body) => readList(body, 'items'),
  names: { customer: 'customerId', deleted: 'deletedAt' },
  create: (customerId, key) => ({
    method: 'POST',
    path: '/api/v1/subscriptions',
    text: JSON.stringify({ customerId, plan: { key } }),
  }),
  change: (id, _customerId, key) => ({
    method: 'POST',
    path: `/api/v1/subscriptions/${id}/change`,
    text: JSON.stringify({ timing: 'immediate', plan: { key } }),
  }),
  cancel: (id) => ({
    method: 'POST',
    path: `/api/v1/subscriptions/${id}/cancel`,
    text: JSON.stringify({ timing: 'immediate' }),
  }),
}

export const subscriptionsV3: SubscriptionDialect = {
  list: (customerId) => ({
    method: 'GET',
    path: '/openmeter/subscriptions',
    query: {
      'filter[customer_id][eq]': customerId,
      sort: 'active_from desc',
      'page[size]': pageSize,
      'page[number]': '1',
    },
  }),
  items: (body) => readList(body, 'data'),
  names: { customer: 'customer_id', deleted: 'deleted_at' },
  create: (id, key) => ({
    method: 'POST',
    path: '/openmeter/subscriptions',
    text: JSON.stringify({ customer: { id }, plan: { key } }),
  }),
  change: (id, customerId, key) => ({
    method: 'POST',
    path: `/openmeter/subscriptions/${id}/change`,
    text: JSON.stringify({ timing: 'immediate', customer: { id: customerId }, plan: { key } }),
  }),
  cancel: (id) => ({
    method: 'POST',
    path: `/openmeter/subscriptions/${id}/cancel`,
    text: JSON.stringify({ timing: 'immediate' }),
  }),
}

export interface SubscriptionClientDeps {
  readonly http: (request: HttpRequest) => Promise<HttpAnswer>
  readonly dialect: SubscriptionDialect
  /** Returns the id of an existing customer. */
  readonly findCustomer: (key: string, signal: AbortSignal) => Promise<{ id: string } | Failure>
}

/** The subscriptions of OpenMeter. A customer has at most one at a time. */
export function createSubscriptionClient({ http, dialect, findCustomer }: SubscriptionClientDeps) {
  /**
   * Makes the remote subscription match the user's plan; null if it does. The customer must exist.
   * If the backend does not sell the plan, cancels a subscription to another one. `offer` may
   * reject.
   */
  async function place(
    { key }: Customer,
    subscriber: Pick<Subscriber, 'planKey' | 'offer'>,
    signal: AbortSignal,
  ): Promise<Failure | null> {
    const customer = await findCustomer(key, signal)
    if ('why' in customer) return customer
    const isOffered = await subscriber.offer(false)
    const attempt = () => placeOnce(customer.id, { planKey: subscriber.planKey, isOffered }, signal)
    const failure = await attempt()
    if (failure?.kind !== 'refused') return failure
    // A conflict means that another process subscribed the customer. Otherwise the plan may be
    // missing in the backend.
    if (failure.status !== conflict) await subscriber.offer(true)
    return attempt()
  }

  async function placeOnce(
    customerId: string,
    { planKey, isOffered }: { readonly planKey: string; readonly isOffered: boolean },
    signal: AbortSignal,
  ): Promise<Failure | null> {
    const current = await findCurrent(customerId, signal)
    if (current && 'why' in current) return current
    if (current?.planKey === planKey) return null
    if (!isOffered)
      return current && failureIn(await http({ ...dialect.cancel(current.id), signal }))
    const request = current
      ? dialect.change(current.id, customerId, planKey)
      : dialect.create(customerId, planKey)
    return failureIn(await http({ ...request, signal }))
  }

  /**
   * Returns the running subscription. A server that ignores the filter also returns other
   * customers' subscriptions.
   */
  async function findCurrent(
    customerId: string,
    signal: AbortSignal,
  ): Promise<Remote | Failure | null> {
    const answer = await http({ ...dialect.list(customerId), signal })
    const failure = failureIn(answer)
    if (failure) return failure
    const { customer, deleted } = dialect.names
    const item = ('body' in answer ? dialect.items(answer.body) : []).find(
      (one) =>
        readText(one, customer) === customerId &&
        readText(one, deleted) === null &&
        running.has(readText(one, 'status') ?? ''),
    )
    const id = readText(item, 'id')
    return id === null ? null : { id, planKey: readText(member(item, 'plan'), 'key') }
  }

  return { place }
}

// A canceled subscription runs until its end.
const running = new Set(['active', 'canceled'])

/** A missing plan or subscription concerns one request, not the server's address. */
function failureIn(answer: HttpAnswer): Failure | null {
  const failure = toFailure(answer)
  return failure?.status === 404 ? { ...failure, kind: 'refused' } : failure
}
