import type { MeterRow } from '../backend.ts'
import { eventType, toPath } from '../catalog.ts'
import { type Dialect, readList, member, readNumber, pick, readText, readTexts } from './dialect.ts'

const granularities = { hour: 'PT1H', day: 'P1D', month: 'P1M' } as const
const replaced = ['name', 'description', 'labels', 'primary_email', 'currency', 'billing_address']

/**
 * The documented filter is exact, but a server ignores an unknown filter, so the readers compare
 * keys again.
 */
const byKey = (path: string, key: string) =>
  ({
    method: 'GET',
    path,
    query: { 'filter[key][eq]': key, 'page[size]': '100', 'page[number]': '1' },
  }) as const

const itemOf = (body: unknown, key: string): unknown =>
  readList(body, 'data').find(
    (item) => readText(item, 'key') === key && readText(item, 'deleted_at') === null,
  )

/** API v3 of Konnect and newer servers; its address ends in /v3. */
export const v3: Dialect = {
  eventsPath: '/openmeter/events',

  findMeter: (key) => byKey('/openmeter/meters', key),
  readMeter: (body, key) => {
    const item = itemOf(body, key)
    const id = readText(item, 'id')
    if (id === null) return null
    return {
      id,
      eventType: readText(item, 'event_type') ?? '',
      aggregation: readText(item, 'aggregation') ?? '',
      valueProperty: readText(item, 'value_property'),
      groupBy: readTexts(item, 'dimensions'),
    }
  },
  createMeter: (meter) => ({
    method: 'POST',
    path: '/openmeter/meters',
    text: JSON.stringify({
      key: meter.key,
      name: meter.name,
      event_type: eventType,
      aggregation: meter.sums === null ? 'count' : 'sum',
      ...(meter.sums === null ? {} : { value_property: toPath(meter.sums) }),
      dimensions: Object.fromEntries(meter.dimensions.map((name) => [name, toPath(name)])),
    }),
  }),
  createdMeter: (body) => readText(body, 'id'),

  findFeature: (key) => byKey('/openmeter/features', key),
  readFeature: (body, key) => {
    const feature = itemOf(body, key)
    return feature === undefined ? null : { meter: readText(member(feature, 'meter'), 'id') }
  },
  createFeature: (feature, meter) => ({
    method: 'POST',
    path: '/openmeter/features',
    text: JSON.stringify({ key: feature.key, name: feature.name, meter: { id: meter.id } }),
  }),
  isOf: (feature, meter) => feature.meter === meter.id,

  createCustomer: ({ key, name, clientId }) => ({
    method: 'POST',
    path: '/openmeter/customers',
    text: JSON.stringify({
      key,
      name,
      labels: { client_id: clientId },
      usage_attribution: { subject_keys: [key] },
    }),
  }),
  findCustomer: (key) => byKey('/openmeter/customers', key),
  readCustomer: (body, key) => {
    const item = itemOf(body, key)
    const id = readText(item, 'id')
    if (id === null) return null
    const subjects = readList(member(item, 'usage_attribution'), 'subject_keys').filter(
      (subject) => typeof subject === 'string',
    )
    return { id, subjects, raw: item }
  },
  attribute: (customer, subject) => ({
    method: 'PUT',
    path: `/openmeter/customers/${customer.id}`,
    text: JSON.stringify({
      ...pick(customer.raw, replaced),
      usage_attribution: { subject_keys: [...customer.subjects, subject] },
    }),
  }),

  queryMeter: (meter, { clientId, customerKey, from, to, window, groupBy }) => ({
    method: 'POST',
    path: `/openmeter/meters/${meter.id}/query`,
    text: JSON.stringify({
      ...(from && { from: from.toISOString() }),
      ...(to && { to: to.toISOString() }),
      ...(window && { granularity: granularities[window], time_zone: 'UTC' }),
      filters: {
        dimensions: {
          ...(clientId === null ? {} : { client_id: { eq: clientId } }),
          ...(customerKey === undefined ? {} : { subject: { eq: customerKey } }),
        },
      },
      group_by_dimensions: groupBy,
    }),
  }),
  readRows: (body) => {
    const rows = readList(body, 'data').map((row): MeterRow | null => {
      const value = readNumber(row, 'value')
      const windowStart = readText(row, 'from')
      const windowEnd = readText(row, 'to')
      if (value === null || windowStart === null || windowEnd === null) return null
      const { subject = null, ...groupBy } = readTexts(row, 'dimensions')
      return { value, windowStart, windowEnd, subject, groupBy }
    })
    return Array.isArray(member(body, 'data')) && rows.every((row) => row !== null) ? rows : null
  },
}
