import {
  type Body,
  type Call,
  type Reply,
  dimensionsOf,
  instant,
  problem,
  record,
  text,
  texts,
} from './api-v1.ts'
import { createCreditV3 } from './credits.ts'
import { answerPlans, plansV3 } from './plans.ts'
import { createCustomer, createFeature, createMeter } from './resources.ts'
import { answerSubscriptions, subscriptionsV3 } from './subscriptions.ts'
import {
  type Query,
  type FakeCustomer,
  type FakeFeature,
  type FakeMeter,
  type State,
} from './state.ts'

const windows = { PT1M: 'minute', PT1H: 'hour', P1D: 'day', P1M: 'month' } as const

/** Answers API v3. `path` is relative to the server address in its document. */
export function answerV3(
  state: State,
  { method, path, search, body, events }: Call,
  { deafToFilters }: { deafToFilters: boolean },
): Reply {
  const [, , kind = '', id = '', verb] = path.split('/')
  const key = deafToFilters ? null : search.get('filter[key][eq]')
  if (kind === 'events') {
    state.ingest(events)
    return { status: 202 }
  }
  if (kind === 'meters' && verb === 'query')
    return queryMeter(state, id, deafToFilters ? { ...body, filters: {} } : body)
  if (kind === 'plans')
    return answerPlans(state, plansV3, {
      method,
      id,
      verb,
      search: deafToFilters ? new URLSearchParams() : search,
      body,
    })
  if (kind === 'customers' && verb === 'credits') return createCreditV3(state, id, body)
  if (kind === 'subscriptions') {
    const customerId = deafToFilters ? null : search.get('filter[customer_id][eq]')
    return answerSubscriptions(state, subscriptionsV3, { method, id, verb, body, customerId })
  }
  if (method === 'POST') return create(state, kind, body)
  if (kind === 'meters') return pageOf(state.meters, key, showMeter)
  if (kind === 'features') return pageOf(state.features, key, showFeature)
  if (method === 'PUT') return replaceCustomer(state, id, body)
  return pageOf(state.customers, key, showCustomer)
}

function create(state: State, kind: string, body: Body): Reply {
  if (kind === 'meters') return createMeter(state, readMeter(body), showMeter)
  if (kind === 'features') return createFeature(state, readFeature(body), showFeature)
  const customer = { key: text(body['key']), body, subjects: subjectsOf(body) }
  return createCustomer(state, customer, showCustomer)
}

/** Returns the items with that key as one page; all items if `key` is null. */
function pageOf<T extends { key: string }>(
  items: readonly T[],
  key: string | null,
  show: (item: T) => unknown,
): Reply {
  const data = items.filter((item) => key === null || item.key === key)
  return {
    status: 200,
    body: { data: data.map(show), meta: { page: { number: 1, size: 100, total: data.length } } },
  }
}

const readMeter = (body: Body) => ({
  key: text(body['key']),
  eventType: text(body['event_type']),
  aggregation: body['aggregation'] === 'count' ? ('count' as const) : ('sum' as const),
  valueProperty: typeof body['value_property'] === 'string' ? body['value_property'] : undefined,
  dimensions: dimensionsOf(body['dimensions']),
})

const showMeter = (meter: FakeMeter) => ({
  id: meter.id,
  key: meter.key,
  name: meter.key,
  event_type: meter.eventType,
  aggregation: meter.aggregation,
  dimensions: meter.dimensions,
  ...(meter.valueProperty === undefined ? {} : { value_property: meter.valueProperty }),
  created_at: meter.createdAt,
  updated_at: meter.createdAt,
})

const readFeature = (body: Body) => ({
  key: text(body['key']),
  name: text(body['name']),
  meterId: text(record(body['meter'])['id']),
  filters: record(record(body['meter'])['filters']),
})

const showFeature = ({ id, key, name, meterId, filters, createdAt }: FakeFeature) => ({
  id,
  key,
  name,
  meter: { id: meterId, filters },
  created_at: createdAt,
  updated_at: createdAt,
})

const subjectsOf = (body: Body): string[] =>
  texts(record(body['usage_attribution'])['subject_keys'])

function replaceCustomer(state: State, id: string, body: Body): Reply {
  const customer = state.customers.find((one) => one.id === id)
  if (!customer) return problem(404, 'not found')
  customer.body = body
  customer.subjects = subjectsOf(body)
  return { status: 200, body: showCustomer(customer) }
}

const showCustomer = ({ id, key, body, subjects, createdAt }: FakeCustomer) => ({
  ...body,
  id,
  key,
  usage_attribution: { subject_keys: subjects },
  created_at: createdAt,
  updated_at: createdAt,
})

function queryMeter(state: State, id: string, body: Body): Reply {
  const meter = state.meters.find((one) => one.id === id)
  if (!meter) return problem(404, 'there is no such meter')
  const dimensions = record(record(body['filters'])['dimensions'])
  const filters = Object.fromEntries(
    Object.entries(dimensions).map(([name, filter]) => [name, [text(record(filter)['eq'])]]),
  )
  const request: Query = {
    from: instant(body['from']),
    to: instant(body['to']),
    groupBy: texts(body['group_by_dimensions']),
    filters,
    window: Object.entries(windows).find(([name]) => name === body['granularity'])?.[1] ?? null,
  }
  const data = state
    .query(meter, request)
    .map(({ value, from, to, groups }) => ({ value: plain(value), from, to, dimensions: groups }))
  return { status: 200, body: { data } }
}

/** Formats a number as decimal text without an exponent. */
const plain = (value: number): string =>
  Number.isInteger(value) ? BigInt(value).toString() : value.toFixed(12)
