import { answerEntitlements } from './credits.ts'
import { answerPlans, plansV1 } from './plans.ts'
import { createCustomer, createFeature, createMeter } from './resources.ts'
import { answerSubscriptions, subscriptionsV1 } from './subscriptions.ts'
import {
  type Query,
  type FakeCustomer,
  type FakeEvent,
  type FakeFeature,
  type FakeMeter,
  type State,
} from './state.ts'

export interface Call {
  readonly method: string
  readonly path: string
  readonly search: URLSearchParams
  readonly body: Body
  readonly events: readonly FakeEvent[]
}
export type Body = Readonly<Record<string, unknown>>
export interface Reply {
  readonly status: number
  readonly body?: unknown
}

export const problem = (status: number, detail: string): Reply => ({
  status,
  body: {
    type: 'about:blank',
    title: 'Problem',
    status,
    detail,
    instance: 'urn:request:fake',
    ...(status === 400 ? { invalid_parameters: [{ field: 'body', reason: detail }] } : {}),
  },
})

export const text = (value: unknown): string => (typeof value === 'string' ? value : '')
export const texts = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((item) => typeof item === 'string') : []
export const record = (value: unknown): Record<string, unknown> =>
  typeof value === 'object' && value !== null ? { ...value } : {}
export const dimensionsOf = (value: unknown): Record<string, string> =>
  Object.fromEntries(Object.entries(record(value)).map(([name, path]) => [name, String(path)]))
export const instant = (value: unknown): Date | null =>
  typeof value === 'string' ? new Date(value) : null

const windows = { MINUTE: 'minute', HOUR: 'hour', DAY: 'day', MONTH: 'month' } as const

/**
 * Answers API v1 as its document describes it and, where that is silent, as the real OpenMeter
 * behaves.
 */
export function answerV1(state: State, { method, path, search, body, events }: Call): Reply {
  if (path.startsWith('/api/v2/')) return answerEntitlements(state, { method, path, search, body })
  const [, , , kind = '', id = '', verb] = path.split('/')
  const name = decodeURIComponent(id)
  if (kind === 'events') {
    state.ingest(events)
    return { status: 204 }
  }
  if (kind === 'meters' && verb === 'query') return queryMeter(state, name, body)
  if (kind === 'meters')
    return method === 'POST'
      ? createMeter(state, readMeter(body), showMeter)
      : showOne(
          state.meters.find((meter) => meter.key === name),
          showMeter,
        )
  if (kind === 'features' && name !== '')
    return showOne(
      state.features.find((feature) => feature.key === name || feature.id === name),
      (feature) => showFeature(state, feature),
    )
  if (kind === 'features')
    return method === 'POST'
      ? createFeature(state, readFeature(state, body), (feature) => showFeature(state, feature))
      : listFeatures(state, search)
  if (kind === 'plans') return answerPlans(state, plansV1, { method, id, verb, search, body })
  if (kind === 'subscriptions')
    return answerSubscriptions(state, subscriptionsV1, { method, id, verb, body, customerId: null })
  if (verb === 'subscriptions')
    return answerSubscriptions(state, subscriptionsV1, {
      method,
      id: '',
      verb,
      body,
      customerId: id,
    })
  return answerCustomers(state, name, { method, search, body })
}

function answerCustomers(
  state: State,
  name: string,
  { method, search, body }: Pick<Call, 'method' | 'search' | 'body'>,
): Reply {
  if (method === 'POST') {
    const subjects = subjectsOf(body)
    return createCustomer(state, { key: text(body['key']), body, subjects }, showCustomer)
  }
  if (name === '') return listCustomers(state, search)
  const customer = state.customers.find((one) => one.key === name || one.id === name)
  if (method === 'PUT' && customer) {
    customer.subjects = subjectsOf(body)
    customer.body = body
  }
  return showOne(customer, showCustomer)
}

const showOne = <T>(value: T | undefined, show: (value: T) => unknown): Reply =>
  value === undefined ? problem(404, 'not found') : { status: 200, body: show(value) }

const readMeter = (body: Body) => ({
  key: text(body['slug']),
  eventType: text(body['eventType']),
  aggregation: body['aggregation'] === 'COUNT' ? ('count' as const) : ('sum' as const),
  valueProperty: typeof body['valueProperty'] === 'string' ? body['valueProperty'] : undefined,
  dimensions: dimensionsOf(body['groupBy']),
})

const showMeter = (meter: FakeMeter) => ({
  id: meter.id,
  slug: meter.key,
  eventType: meter.eventType,
  aggregation: meter.aggregation.toUpperCase(),
  groupBy: meter.dimensions,
  ...(meter.valueProperty === undefined ? {} : { valueProperty: meter.valueProperty }),
  createdAt: meter.createdAt,
  updatedAt: meter.createdAt,
})

const readFeature = ({ meters }: State, body: Body) => ({
  key: text(body['key']),
  name: text(body['name']),
  meterId: meters.find(({ key }) => key === body['meterSlug'])?.id ?? '',
  filters: record(body['advancedMeterGroupByFilters']),
})

const showFeature = (state: State, feature: FakeFeature) => ({
  id: feature.id,
  key: feature.key,
  name: feature.name,
  meterSlug: state.meters.find((meter) => meter.id === feature.meterId)?.key ?? '',
  advancedMeterGroupByFilters: feature.filters,
  createdAt: feature.createdAt,
  updatedAt: feature.createdAt,
})

function listFeatures(state: State, search: URLSearchParams): Reply {
  const slugs = search.getAll('meterSlug')
  const items = state.features
    .map((feature) => showFeature(state, feature))
    .filter((one) => slugs.length === 0 || slugs.includes(one.meterSlug))
  return { status: 200, body: { items, page: 1, pageSize: 100, totalCount: items.length } }
}

const subjectsOf = (body: Body): string[] => texts(record(body['usageAttribution'])['subjectKeys'])

const showCustomer = ({ id, key, body, subjects, createdAt }: FakeCustomer) => ({
  ...body,
  id,
  key,
  usageAttribution: { subjectKeys: subjects },
  createdAt,
  updatedAt: createdAt,
})

// The key filter matches any part of the key and ignores case.
function listCustomers(state: State, search: URLSearchParams): Reply {
  const part = (search.get('key') ?? '').toLowerCase()
  const items = state.customers
    .filter((one) => one.key.toLowerCase().includes(part))
    .map(showCustomer)
  return { status: 200, body: { items, page: 1, pageSize: 100, totalCount: items.length } }
}

function queryMeter(state: State, key: string, body: Body): Reply {
  const meter = state.meters.find((one) => one.key === key || one.id === key)
  if (!meter) return problem(404, 'there is no such meter')
  const windowSize =
    Object.entries(windows).find(([name]) => name === body['windowSize'])?.[1] ?? null
  const filters = Object.fromEntries(
    Object.entries(record(body['filterGroupBy'])).map(([name, values]) => [name, texts(values)]),
  )
  const subjects = texts(body['subject'])
  const request: Query = {
    from: instant(body['from']),
    to: instant(body['to']),
    window: windowSize,
    groupBy: texts(body['groupBy']),
    filters: { ...filters, ...(subjects.length > 0 ? { subject: subjects } : {}) },
  }
  const data = state
    .query(meter, request)
    .map(({ value, from, to, groups: { subject = null, ...groupBy } }) => ({
      value,
      windowStart: from,
      windowEnd: to,
      subject,
      groupBy,
    }))
  return { status: 200, body: { data } }
}
