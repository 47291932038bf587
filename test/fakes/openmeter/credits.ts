import { type Body, type Reply, problem, record, text } from './api-v1.ts'
import { isEntitled } from './subscriptions.ts'
import { type FakeCredit, type FakeCustomer, type State, ulid } from './state.ts'

const now = (): string => new Date().toISOString()
const month = { interval: 'MONTH', intervalISO: 'P1M', anchor: '2026-01-01T00:00:00Z' }

/**
 * Answers for entitlements of API v1 and their grants, below
 * `/api/v2/customers/{key}/entitlements`.
 */
export function answerEntitlements(
  state: State,
  {
    method,
    path,
    search,
    body,
  }: {
    readonly method: string
    readonly path: string
    readonly search: URLSearchParams
    readonly body: Body
  },
): Reply {
  const [, , , , name = '', , feature, verb] = path.split('/')
  const key = decodeURIComponent(name)
  const customer = state.customers.find((one) => one.key === key)
  if (!customer) return problem(400, 'there is no such customer')
  if (feature === undefined) return createEntitlement(state, customer, text(body['featureKey']))
  if (isEntitled(state, key, feature)) return problem(403, 'a subscription manages the entitlement')
  if (verb !== 'grants' || !state.entitlements.has(`${key} ${feature}`))
    return problem(400, 'there is no such entitlement')
  return method === 'POST' ? createGrant(state, key, body) : listGrants(state, key, search)
}

function createEntitlement(state: State, { id, key }: FakeCustomer, featureKey: string): Reply {
  if (state.entitlements.has(`${key} ${featureKey}`) || isEntitled(state, key, featureKey))
    return problem(409, 'it is there')
  if (!state.features.some((feature) => feature.key === featureKey))
    return problem(400, 'there is no such feature')
  state.entitlements.add(`${key} ${featureKey}`)
  const at = now()
  return {
    status: 201,
    body: {
      type: 'metered',
      id: ulid(),
      createdAt: at,
      updatedAt: at,
      activeFrom: at,
      featureKey,
      featureId: state.features.find((feature) => feature.key === featureKey)?.id ?? '',
      lastReset: at,
      currentUsagePeriod: { from: at, to: at },
      measureUsageFrom: at,
      usagePeriod: month,
      customerId: id,
    },
  }
}

function createGrant(state: State, customer: string, body: Body): Reply {
  const credit = { id: ulid(), customer, body, createdAt: now() }
  state.credits.push(credit)
  return { status: 201, body: showGrant(credit) }
}

const showGrant = ({ id, body, createdAt }: FakeCredit) => ({
  ...body,
  id,
  entitlementId: ulid(),
  createdAt,
  updatedAt: createdAt,
})

function listGrants(state: State, customer: string, search: URLSearchParams): Reply {
  const own = state.credits.filter((credit) => credit.customer === customer)
  const [page, pageSize] = [Number(search.get('page') ?? 1), Number(search.get('pageSize') ?? 100)]
  const items = own.slice((page - 1) * pageSize, page * pageSize).map(showGrant)
  return { status: 200, body: { items, page, pageSize, totalCount: own.length } }
}

/** Creates a credit of API v3. Its key must be unique for the customer. */
export function createCreditV3(state: State, id: string, body: Body): Reply {
  const customer = state.customers.find((one) => one.id === id)
  if (!customer) return problem(404, 'there is no such customer')
  const taken = state.credits.some(
    (credit) => credit.customer === customer.key && credit.body['key'] === body['key'],
  )
  if (taken) return problem(409, 'the key is taken')
  const credit = { id: ulid(), customer: customer.key, body, createdAt: now() }
  state.credits.push(credit)
  return {
    status: 201,
    body: {
      ...record(body),
      id: credit.id,
      status: 'active',
      created_at: credit.createdAt,
      updated_at: credit.createdAt,
    },
  }
}
