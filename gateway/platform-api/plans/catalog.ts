import { Type } from 'typebox'
import type { ListOffersResponse } from '../../../proto/gen/es/tollgate/plans/v1/discovery_pb.ts'
import type { App } from '../../http/app.ts'
import { get, internalTag } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { operateRules, operateUrl } from '../operate/rules.ts'
import { AppParams, Instant, text } from '../schemas.ts'

const offersMax = 1_000

const Catalog = named(
  Type.Object({
    offers: Type.Array(
      Type.Object({
        pipeline: Type.String(),
        modelId: Type.String({ description: '* is every model.' }),
        source: Type.String({ description: 'setting, url, operator or ticket.' }),
        addedAt: Type.Optional(Instant('When it was added; absent for settings.')),
      }),
      { description: 'The first thousand, by pipeline and model.' },
    ),
    read: Type.Optional(
      Type.Object(
        {
          url: Type.String(),
          readAt: Type.Optional(Instant('Of the last success.')),
          triedAt: Type.Optional(Instant('Of the last attempt.')),
          error: Type.Optional(Type.String({ description: 'Why the last attempt failed.' })),
        },
        { description: 'How the address of the catalogue was read; absent without one.' },
      ),
    ),
  }),
  'Catalog',
)

const from = {
  afterPipeline: Type.Optional(text('only offers after this pipeline and model')),
  afterModelId: Type.Optional(text('the model of afterPipeline')),
}

/** Pipelines and models that plans may name (docs/plans.md). */
export function catalogRoutes(app: App): void {
  addSchemas(app, [Catalog])
  readAppCatalog(app)
  readCatalog(app)
}

const readAppCatalog = get({
  url: '/api/v1/internal/apps/:clientId/catalog',
  guard: { kind: 'member_read' },
  operationId: 'getAppCatalog',
  summary: 'Pipelines and models that the plans of the app may name',
  description: "Returns the catalogue, and what was in the app's own tickets.",
  tags: [internalTag, 'plans'],
  params: AppParams,
  querystring: Type.Object(from),
  response: { 200: ref(Catalog) },
  handler: async ({ params, query, core }) => {
    // The address of the catalogue is the operator's matter.
    const { offers } = await core.discovery.listOffers({ ...params, ...query, limit: offersMax })
    return { offers }
  },
})

const readCatalog = get({
  ...operateRules,
  url: `${operateUrl}/catalog`,
  operationId: 'getCatalog',
  summary: 'Pipelines and models that plans may name',
  description: 'Returns the catalogue, and how its address was read.',
  querystring: Type.Object(from),
  response: { 200: ref(Catalog) },
  handler: async ({ query, core }): Promise<Pick<ListOffersResponse, 'offers' | 'read'>> =>
    core.discovery.listOffers({ ...query, limit: offersMax }),
})
