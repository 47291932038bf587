import { createHash } from 'node:crypto'
import type { BackendPlan, DimensionFilter, UsageFeature, UsagePrice } from '../plans.ts'
import { type Request, readList, member, readText } from './dialect.ts'

/** A plan version as described by the backend. */
export interface PlanRecord {
  readonly id: string
  readonly status: string
  /** Digest of the plan from which it was written (`toContent`). */
  readonly content: string | null
  readonly currency: string | null
  readonly cadence: string | null
}

interface MeterId {
  readonly key: string
  readonly id: string
}

/** Requests and response readers about plans, for one version of OpenMeter's API. */
export interface PlanDialect {
  createUsageFeature(feature: UsageFeature, meter: MeterId): Request
  findUsageFeature(key: string): Request
  /** Returns the id of the feature with that key; null without one. */
  readFeatureId(body: unknown, key: string): string | null
  findPlan(id: string): Request
  findVersions(query: VersionQuery): Request
  readPlan(body: unknown): PlanRecord | null
  readVersions(body: unknown, query: VersionQuery): PlanRecord[]
  createPlan(plan: BackendPlan, features: FeatureIds): Request
  updatePlan(id: string, plan: BackendPlan, features: FeatureIds): Request
  deletePlan(id: string): Request
  publishPlan(id: string): Request
  archivePlan(id: string): Request
}

/** Plan versions in one state: at most one is active, and one a draft. */
export interface VersionQuery {
  readonly key: string
  readonly status: 'draft' | 'active'
}

/** Feature ids by key. */
export type FeatureIds = ReadonlyMap<string, string>

const contentName = 'tollgate_content'

/** Returns a digest of the plan that fits into a label. Equal plans have equal digests. */
export const toContent = (plan: BackendPlan): string =>
  createHash('sha256').update(JSON.stringify(plan)).digest('hex').slice(0, 32)

const feeKey = 'plan_fee'
const feeName = 'Plan fee'
const phase = { key: 'default', name: 'Default' }

interface RecordNames {
  readonly deleted: string
  readonly texts: string
  readonly cadence: string
}

const recordOf = (body: unknown, names: RecordNames): PlanRecord | null => {
  const [id, status] = [readText(body, 'id'), readText(body, 'status')]
  if (id === null || status === null || readText(body, names.deleted) !== null) return null
  return {
    id,
    status,
    content: readText(member(body, names.texts), contentName),
    currency: readText(body, 'currency'),
    cadence: readText(body, names.cadence),
  }
}

const v1Names = { deleted: 'deletedAt', texts: 'metadata', cadence: 'billingCadence' }
const v3Names = { deleted: 'deleted_at', texts: 'labels', cadence: 'billing_cadence' }

const byKey = (items: readonly unknown[], key: string): readonly unknown[] =>
  items.filter((item) => readText(item, 'key') === key)

/** Returns the versions that match the query, from a list that may contain others. */
const versionsOf = (
  items: readonly unknown[],
  { key, status }: VersionQuery,
  names: RecordNames,
): PlanRecord[] =>
  byKey(items, key).flatMap((item) => {
    const record = recordOf(item, names)
    return record?.status === status ? [record] : []
  })

export const plansV1: PlanDialect = {
  createUsageFeature: ({ key, name, filters }, meter) => ({
    method: 'POST',
    path: '/api/v1/features',
    text: JSON.stringify({
      key,
      name,
      meterSlug: meter.key,
      ...(filters && {
        advancedMeterGroupByFilters: mapped(filters, (filter) =>
          'only' in filter ? { $eq: filter.only } : { $nin: filter.except },
        ),
      }),
    }),
  }),
  findUsageFeature: (key) => ({ method: 'GET', path: `/api/v1/features/${key}` }),
  readFeatureId: (body, key) => (readText(body, 'key') === key ? readText(body, 'id') : null),
  findPlan: (id) => ({ method: 'GET', path: `/api/v1/plans/${id}` }),
  findVersions: ({ key, status }) => ({
    method: 'GET',
    path: '/api/v1/plans',
    query: { key, status, page: '1', pageSize: '100' },
  }),
  readPlan: (body) => recordOf(body, v1Names),
  readVersions: (body, query) => versionsOf(readList(body, 'items'), query, v1Names),
  createPlan: (plan) => ({
    method: 'POST',
    path: '/api/v1/plans',
    text: JSON.stringify({ key: plan.key, currency: plan.currency, ...bodyV1(plan) }),
  }),
  updatePlan: (id, plan) => ({
    method: 'PUT',
    path: `/api/v1/plans/${id}`,
    text: JSON.stringify(bodyV1(plan)),
  }),
  deletePlan: (id) => ({ method: 'DELETE', path: `/api/v1/plans/${id}` }),
  publishPlan: (id) => ({ method: 'POST', path: `/api/v1/plans/${id}/publish` }),
  archivePlan: (id) => ({ method: 'POST', path: `/api/v1/plans/${id}/archive` }),
}

function bodyV1(plan: BackendPlan) {
  const billingCadence = plan.cadence
  const fee = plan.flatFee !== null && {
    type: 'flat_fee',
    key: feeKey,
    name: feeName,
    billingCadence,
    price: { type: 'flat', amount: plan.flatFee, paymentTerm: 'in_advance' },
  }
  const usage = plan.usage.map(({ feature, unitPrice, included }) => ({
    type: 'usage_based',
    // OpenMeter requires that both are the same.
    key: feature.key,
    featureKey: feature.key,
    name: feature.name,
    billingCadence,
    price: { type: 'unit', amount: unitPrice },
    entitlementTemplate: {
      type: 'metered',
      isSoftLimit: true,
      issueAfterReset: included,
      usagePeriod: billingCadence,
    },
  }))
  const rateCards = fee ? [fee, ...usage] : usage
  return {
    name: plan.name,
    metadata: { [contentName]: toContent(plan) },
    billingCadence,
    phases: [{ ...phase, duration: null, rateCards }],
  }
}

export const plansV3: PlanDialect = {
  createUsageFeature: ({ key, name, filters }, meter) => ({
    method: 'POST',
    path: '/openmeter/features',
    text: JSON.stringify({
      key,
      name,
      meter: { id: meter.id, ...(filters && { filters: mapped(filters, filterV3) }) },
    }),
  }),
  findUsageFeature: (key) => ({
    method: 'GET',
    path: '/openmeter/features',
    query: { 'filter[key][eq]': key, 'page[size]': '100', 'page[number]': '1' },
  }),
  readFeatureId: (body, key) =>
    readText(
      byKey(readList(body, 'data'), key).find((item) => readText(item, 'deleted_at') === null),
      'id',
    ),
  findPlan: (id) => ({ method: 'GET', path: `/openmeter/plans/${id}` }),
  findVersions: ({ key, status }) => ({
    method: 'GET',
    path: '/openmeter/plans',
    query: {
      'filter[key][eq]': key,
      'filter[status][eq]': status,
      'page[size]': '100',
      'page[number]': '1',
    },
  }),
  readPlan: (body) => recordOf(body, v3Names),
  readVersions: (body, query) => versionsOf(readList(body, 'data'), query, v3Names),
  createPlan: (plan, features) => ({
    method: 'POST',
    path: '/openmeter/plans',
    text: JSON.stringify({
      key: plan.key,
      currency: plan.currency,
      billing_cadence: plan.cadence,
      ...bodyV3(plan, features),
    }),
  }),
  updatePlan: (id, plan, features) => ({
    method: 'PUT',
    path: `/openmeter/plans/${id}`,
    text: JSON.stringify(bodyV3(plan, features)),
  }),
  deletePlan: (id) => ({ method: 'DELETE', path: `/openmeter/plans/${id}` }),
  publishPlan: (id) => ({ method: 'POST', path: `/openmeter/plans/${id}/publish` }),
  archivePlan: (id) => ({ method: 'POST', path: `/openmeter/plans/${id}/archive` }),
}

function bodyV3(plan: BackendPlan, features: FeatureIds) {
  const fee = plan.flatFee !== null && {
    key: feeKey,
    name: feeName,
    billing_cadence: plan.cadence,
    price: { type: 'flat', amount: plan.flatFee },
    payment_term: 'in_advance',
  }
  const usage = plan.usage.map((price) => rateCardV3(price, plan.cadence, features))
  return {
    name: plan.name,
    labels: { [contentName]: toContent(plan) },
    phases: [{ ...phase, rate_cards: fee ? [fee, ...usage] : usage }],
  }
}

function rateCardV3(
  { feature, unitPrice, included }: UsagePrice,
  cadence: BackendPlan['cadence'],
  features: FeatureIds,
) {
  const id = features.get(feature.key)
  if (id === undefined) throw new Error(`no id of the feature ${feature.key}`)
  return {
    key: feature.key,
    name: feature.name,
    feature: { id },
    billing_cadence: cadence,
    price: { type: 'unit', amount: unitPrice },
    entitlement: {
      type: 'metered',
      is_soft_limit: true,
      limit: included,
      usage_period: cadence,
    },
  }
}

// Maximum values in one v3 filter.
const filterMax = 100

function filterV3(filter: DimensionFilter): object {
  if ('only' in filter) return { eq: filter.only }
  const { except } = filter
  if (except.length <= filterMax) return { nin: except }
  const parts = Array.from({ length: Math.ceil(except.length / filterMax) }, (_, i) => ({
    nin: except.slice(i * filterMax, (i + 1) * filterMax),
  }))
  return { and: parts }
}

const mapped = (
  { pipeline, model_id: model }: NonNullable<UsageFeature['filters']>,
  change: (filter: DimensionFilter) => object,
): Record<string, object> => ({
  pipeline: change(pipeline),
  ...(model && { model_id: change(model) }),
})
