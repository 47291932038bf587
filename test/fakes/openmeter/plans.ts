import { type Body, type Call, type Reply, problem, record, text } from './api-v1.ts'
import { type FakePlan, type State, ulid } from './state.ts'

type PlanCall = Pick<Call, 'method' | 'search' | 'body'> & {
  readonly id: string
  readonly verb: string | undefined
}

/** Differences between the versions of the API. */
interface Names {
  readonly cadence: string
  readonly createdAt: string
  readonly updatedAt: string
  readonly deletedAt: string
  readonly rateCards: string
  filter(search: URLSearchParams, name: 'key' | 'status'): string[]
  page(items: readonly object[]): object
  /** Returns what is wrong with a rate card's feature; null if it is valid. */
  featureFault(state: State, card: Body): string | null
}

export const plansV1: Names = {
  cadence: 'billingCadence',
  createdAt: 'createdAt',
  updatedAt: 'updatedAt',
  deletedAt: 'deletedAt',
  rateCards: 'rateCards',
  filter: (search, name) => search.getAll(name),
  page: (items) => ({ items, page: 1, pageSize: 100, totalCount: items.length }),
  featureFault(state, card) {
    const key = card['featureKey']
    if (key === undefined) return null
    if (!state.features.some((feature) => feature.key === key)) return 'there is no such feature'
    return key === card['key'] ? null : 'the rate card key must be the feature key'
  },
}

export const plansV3: Names = {
  cadence: 'billing_cadence',
  createdAt: 'created_at',
  updatedAt: 'updated_at',
  deletedAt: 'deleted_at',
  rateCards: 'rate_cards',
  filter: (search, name) => search.getAll(`filter[${name}][eq]`),
  page: (data) => ({ data, meta: { page: { number: 1, size: 100, total: data.length } } }),
  featureFault(state, card) {
    const feature = card['feature']
    if (feature === undefined) return null
    const known = state.features.find(({ id }) => id === record(feature)['id'])
    if (!known) return 'there is no such feature'
    return known.key === card['key'] ? null : 'the rate card key must be the feature key'
  },
}

/**
 * Answers for plans as the documents describe them and, where those are silent, as the real
 * OpenMeter behaves.
 */
export function answerPlans(state: State, names: Names, call: PlanCall): Reply {
  const { method, id, verb, body, search } = call
  const show = (plan: FakePlan) => showPlan(plan, names)
  if (id === '')
    return method === 'POST' ? createPlan(state, names, body) : listPlans(state, names, search)
  const plan = state.plans.find((one) => one.id === id)
  if (!plan) return problem(404, 'plan not found')
  if (verb === 'publish') return publish(state, plan, show)
  if (verb === 'archive') {
    if (plan.status !== 'active')
      return problem(400, `a plan that is ${plan.status} cannot be archived`)
    plan.status = 'archived'
    return { status: 200, body: show(plan) }
  }
  if (method === 'DELETE') {
    if (plan.status === 'active') return problem(400, 'an active plan cannot be deleted')
    plan.deletedAt = new Date().toISOString()
    return { status: 204 }
  }
  if (method === 'PUT') {
    if (plan.deletedAt) return problem(404, 'plan not found')
    if (plan.status !== 'draft') return problem(400, 'plan is immutable')
    const fault = faultOf(state, names, body)
    if (fault !== null) return problem(400, fault)
    plan.body = body
  }
  return { status: 200, body: show(plan) }
}

function createPlan(state: State, names: Names, body: Body): Reply {
  const versions = state.plans.filter((plan) => plan.key === body['key'])
  if (versions.some(({ status, deletedAt }) => status === 'draft' && !deletedAt))
    return problem(409, 'only a single draft version is allowed for a plan')
  const fault = faultOf(state, names, body)
  if (fault !== null) return problem(400, fault)
  const plan: FakePlan = {
    id: ulid(),
    key: text(body['key']),
    version: versions.length + 1,
    currency: text(body['currency']),
    cadence: text(body[names.cadence]),
    body,
    status: 'draft',
    createdAt: new Date().toISOString(),
  }
  state.plans.push(plan)
  return { status: 201, body: showPlan(plan, names) }
}

/** Publishes a draft. Archives the active version, because a key has only one. */
function publish(state: State, plan: FakePlan, show: (plan: FakePlan) => object): Reply {
  if (plan.status !== 'draft') return problem(400, `the plan is ${plan.status}`)
  for (const other of state.plans)
    if (other.key === plan.key && other.status === 'active') other.status = 'archived'
  plan.status = 'active'
  return { status: 200, body: show(plan) }
}

function listPlans(state: State, names: Names, search: URLSearchParams): Reply {
  const matches = (name: 'key' | 'status', value: string): boolean => {
    const values = names.filter(search, name)
    return values.length === 0 || values.includes(value)
  }
  const plans = state.plans.filter(
    ({ key, status, deletedAt }) => !deletedAt && matches('key', key) && matches('status', status),
  )
  return { status: 200, body: names.page(plans.map((plan) => showPlan(plan, names))) }
}

function faultOf(state: State, names: Names, body: Body): string | null {
  const keys = new Set<unknown>()
  for (const card of rateCardsOf(body, names.rateCards)) {
    if (keys.has(card['key'])) return 'two rate cards have the same key'
    keys.add(card['key'])
    const fault = names.featureFault(state, card)
    if (fault !== null) return fault
  }
  return null
}

/** Returns the rate cards of all phases. */
export const rateCardsOf = (body: Body, name: string): Record<string, unknown>[] =>
  listOf(body['phases']).flatMap((phase) => listOf(record(phase)[name]).map(record))

const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [])

const showPlan = (plan: FakePlan, names: Names) => ({
  ...plan.body,
  id: plan.id,
  key: plan.key,
  version: plan.version,
  currency: plan.currency,
  [names.cadence]: plan.cadence,
  status: plan.status,
  [names.createdAt]: plan.createdAt,
  [names.updatedAt]: plan.createdAt,
  ...(plan.deletedAt ? { [names.deletedAt]: plan.deletedAt } : {}),
  ...(names === plansV1 ? { validationErrors: null } : {}),
})
