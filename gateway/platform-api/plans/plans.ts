import { Type } from 'typebox'
import type { App } from '../../http/app.ts'
import { del, get, post, put } from '../../http/endpoint.ts'
import { matchesEtag } from '../../http/headers.ts'
import { sellingReasons } from '../../http/route.ts'
import { addSchemas, asDocumented, ref } from '../../http/schemas.ts'
import { AppParams, NotModified, Success, oneOf, text } from '../schemas.ts'
import { createPlanLists } from './lists.ts'
import { toPlan } from './render.ts'
import {
  ChangedPlan,
  CreateBody,
  CreatedPlan,
  Plan,
  PlanVersions,
  Products,
  SyncedPlan,
  UpdateBody,
  planSchemas,
} from './schemas.ts'
import { starterRoutes } from './starter.ts'

const url = '/api/v1/apps/:clientId/plans'
const tags = ['plans']
const PlanParams = Type.Object({
  ...AppParams.properties,
  planId: Type.String({ description: "The plan's id." }),
})

// Core answers 404 for an unknown plan, so any id is accepted here.
const PlanQuery = Type.Object({ planId: Type.Optional(text("the plan's id")) })

const PlanList = { ...Type.Array(ref(Plan)) }
const ProductList = { ...ref(Products) }

/** An app's plans. */
export function planRoutes(app: App): void {
  addSchemas(app, planSchemas)
  listPlans(app)
  createPlan(app)
  updatePlan(app)
  deletePlan(app)
  syncPlan(app)
  listVersions(app)
  starterRoutes(app)
}

function listPlans(app: App): void {
  const lists = createPlanLists()
  get({
    url,
    guard: { kind: 'm2m_or_member' },
    operationId: 'listPlans',
    summary: 'The plans of an app',
    description:
      "Lists Starter, Network Price, and then the owner's plans, the oldest first, with an ETag for If-None-Match: an array of plans or, with apiVersion=2, an object of billing products.",
    tags,
    params: AppParams,
    querystring: Type.Object({
      apiVersion: Type.Optional(oneOf(['1', '2'], '2 for billing products')),
      format: Type.Optional(oneOf(['billing'], 'the same as apiVersion=2')),
      includeInternals: Type.Optional(
        oneOf(
          ['0', '1'],
          'is accepted for older clients: the answer always has the fields of syncs',
        ),
      ),
    }),
    response: {
      200: Type.Unsafe<object>({ anyOf: [Type.Array(ref(Plan)), ref(Products)] }),
      304: NotModified,
    },
    handler: async ({ params, query, headers, core }, reply) => {
      const isProducts = query.apiVersion === '2' || query.format === 'billing'
      const serialize = reply.compileSerializationSchema(isProducts ? ProductList : PlanList)
      const list = await lists.read(core.plans, { ...params, isProducts, serialize })
      const etag = `"${list.version}${isProducts ? '-2' : ''}"`
      void reply.header('etag', etag).header('cache-control', 'private, no-cache')
      if (matchesEtag(headers['if-none-match'], etag)) return reply.code(304).send()
      return reply.type('application/json; charset=utf-8').send(list.bytes)
    },
  })(app)
}

const createPlan = post({
  url,
  guard: { kind: 'hidden_member_edit' },
  refuses: ['CONFLICT', ...sellingReasons],
  operationId: 'createPlan',
  summary: 'Create a plan',
  description:
    'Adds a plan. Its capabilities must be in the catalogue: `conflicts` of a 400 lists those that are missing there, or that the manifest excludes. Returns 409 if another plan has the name.',
  tags,
  params: AppParams,
  coreBody: CreateBody,
  response: { 201: ref(CreatedPlan) },
  handler: async ({ params, body, core }, reply) => {
    const { id, syncError } = await core.plans.createPlan({
      ...params,
      planJson: JSON.stringify(body),
    })
    return reply.code(201).send({ id, ...(syncError !== undefined && { syncError }) })
  },
})

const updatePlan = put({
  url,
  guard: { kind: 'hidden_member_edit' },
  refuses: ['CONFLICT', ...sellingReasons],
  operationId: 'updatePlan',
  summary: 'Change a plan',
  description:
    'Changes the members in the body; null clears a member, and capabilities replace all capabilities of the plan. A change of terms makes a new version: users keep the old terms until their next period.',
  tags,
  params: AppParams,
  coreBody: UpdateBody,
  response: { 200: ref(ChangedPlan) },
  handler: async ({ params, body, core, correlationId }) => {
    const { id, syncError } = await core.plans.updatePlan({
      ...params,
      planJson: JSON.stringify(body),
    })
    return {
      success: true,
      id,
      ...(syncError !== undefined && { syncError }),
      correlation_id: correlationId,
    }
  },
})

const deletePlan = del({
  url,
  guard: { kind: 'hidden_member_edit' },
  refuses: ['CONFLICT'],
  operationId: 'deletePlan',
  summary: 'Delete a plan',
  description:
    'Deletes a plan with its capabilities. Returns 409 with `activeSubscribers` while the plan has users, and always 409 for Starter and Network Price.',
  tags,
  params: AppParams,
  querystring: PlanQuery,
  documentedQuery: asDocumented(PlanQuery, { required: ['planId'] }),
  response: { 200: ref(Success) },
  handler: async ({ params, query, core, correlationId }) => {
    await core.plans.deletePlan({ ...params, planId: query.planId ?? '' })
    return { success: true, correlation_id: correlationId }
  },
})

const syncPlan = post({
  url: `${url}/:planId/sync`,
  guard: { kind: 'hidden_member_edit' },
  refuses: [
    'CONFLICT',
    'PLAN_UNSYNCABLE',
    'METERING_FAILED',
    'METERING_UNREACHABLE',
    'METERING_NOT_CONFIGURED',
  ],
  operationId: 'syncPlan',
  summary: 'Sync a plan',
  description:
    'Writes the plan to the metering backend and publishes it. A refusal has `success: false` and `syncError` in addition to the members of a problem; the lists show the last one until a sync succeeds. Returns 409 while another sync of the plan runs. Free plans and Network Price do not exist at the backend, so their sync succeeds at once.',
  tags,
  params: PlanParams,
  response: { 200: ref(SyncedPlan) },
  handler: async ({ params, core, correlationId }) => {
    const { openmeterPlanId, syncedAt } = await core.plans.syncPlan(params)
    return {
      success: true,
      openmeterPlanId: openmeterPlanId ?? null,
      syncedAt,
      correlation_id: correlationId,
    }
  },
})

const listVersions = get({
  url: `${url}/:planId/versions`,
  guard: { kind: 'm2m_or_member' },
  operationId: 'getPlanVersions',
  summary: 'The versions of a plan',
  description:
    'Lists the newest 100 versions of a plan, the newest first: the plan with the terms of each version, and as updatedAt the time at which the version was made. Name and status are the current ones.',
  tags,
  params: PlanParams,
  response: { 200: ref(PlanVersions) },
  handler: async ({ params, core }) => ({
    versions: (await core.plans.listPlanVersions(params)).versions.map(toPlan),
  }),
})
