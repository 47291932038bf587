import type { MeterRow } from '../backend.ts'
import { eventType, toPath } from '../catalog.ts'
import { type Dialect, readList, member, readNumber, pick, readText, readTexts } from './dialect.ts'

const windows = { hour: 'HOUR', day: 'DAY', month: 'MONTH' } as const
const replaced = [
  'name',
  'description',
  'metadata',
  'key',
  'usageAttribution',
  'primaryEmail',
  'currency',
  'billingAddress',
]

const isLive = (value: unknown): boolean =>
  readText(value, 'deletedAt') === null && readText(value, 'archivedAt') === null

/** API v1 of a self-hosted OpenMeter and of OpenMeter Cloud. */
export const v1: Dialect = {
  eventsPath: '/api/v1/events',

  findMeter: (key) => ({ method: 'GET', path: `/api/v1/meters/${key}` }),
  readMeter: (body, key) => {
    const id = readText(body, 'id')
    if (id === null || readText(body, 'slug') !== key || !isLive(body)) return null
    return {
      id,
      eventType: readText(body, 'eventType') ?? '',
      aggregation: (readText(body, 'aggregation') ?? '').toLowerCase(),
      valueProperty: readText(body, 'valueProperty'),
      groupBy: readTexts(body, 'groupBy'),
    }
  },
  createMeter: (meter) => ({
    method: 'POST',
    path: '/api/v1/meters',
    text: JSON.stringify({
      slug: meter.key,
      name: meter.name,
      eventType,
      aggregation: meter.sums === null ? 'COUNT' : 'SUM',
      ...(meter.sums === null ? {} : { valueProperty: toPath(meter.sums) }),
      groupBy: Object.fromEntries(meter.dimensions.map((name) => [name, toPath(name)])),
    }),
  }),
  createdMeter: (body) => readText(body, 'id'),

  findFeature: (_key, meter) => ({
    method: 'GET',
    path: '/api/v1/features',
    // Our feature is older than those of plans, which count the same meter.
    query: {
      meterSlug: meter.key,
      orderBy: 'createdAt',
      order: 'ASC',
      page: '1',
      pageSize: '100',
    },
  }),
  readFeature: (body, key) => {
    const items = Array.isArray(body) ? readList(body, '') : readList(body, 'items')
    const feature = items.find((item) => readText(item, 'key') === key && isLive(item))
    return feature === undefined ? null : { meter: readText(feature, 'meterSlug') }
  },
  createFeature: (feature, meter) => ({
    method: 'POST',
    path: '/api/v1/features',
    text: JSON.stringify({ key: feature.key, name: feature.name, meterSlug: meter.key }),
  }),
  isOf: (feature, meter) => feature.meter === meter.key,

  createCustomer: ({ key, name, clientId }) => ({
    method: 'POST',
    path: '/api/v1/customers',
    text: JSON.stringify({
      key,
      name,
      metadata: { client_id: clientId },
      usageAttribution: { subjectKeys: [key] },
    }),
  }),
  // Look up by exact key: the list's filter also matches parts of keys.
  findCustomer: (key) => ({ method: 'GET', path: `/api/v1/customers/${encodeURIComponent(key)}` }),
  readCustomer: (body, key) => {
    const id = readText(body, 'id')
    if (id === null || readText(body, 'key') !== key || !isLive(body)) return null
    const subjects = readList(member(body, 'usageAttribution'), 'subjectKeys').filter(
      (subject) => typeof subject === 'string',
    )
    return { id, subjects, raw: body }
  },
  attribute: (customer, subject) => ({
    method: 'PUT',
    path: `/api/v1/customers/${customer.id}`,
    text: JSON.stringify({
      ...pick(customer.raw, replaced),
      usageAttribution: { subjectKeys: [...customer.subjects, subject] },
    }),
  }),

  queryMeter: (meter, { clientId, customerKey, from, to, window, groupBy }) => ({
    method: 'POST',
    path: `/api/v1/meters/${meter.key}/query`,
    text: JSON.stringify({
      ...(from && { from: from.toISOString() }),
      ...(to && { to: to.toISOString() }),
      ...(window && { windowSize: windows[window], windowTimeZone: 'UTC' }),
      ...(customerKey === undefined ? {} : { subject: [customerKey] }),
      // Not `clientId`, which only names the query.
      ...(clientId === null ? {} : { filterGroupBy: { client_id: [clientId] } }),
      groupBy,
    }),
  }),
  readRows: (body) => {
    const rows = readList(body, 'data').map((row): MeterRow | null => {
      const value = readNumber(row, 'value')
      const windowStart = readText(row, 'windowStart')
      const windowEnd = readText(row, 'windowEnd')
      if (value === null || windowStart === null || windowEnd === null) return null
      return {
        value,
        windowStart,
        windowEnd,
        subject: readText(row, 'subject'),
        groupBy: readTexts(row, 'groupBy'),
      }
    })
    return Array.isArray(member(body, 'data')) && rows.every((row) => row !== null) ? rows : null
  },
}
