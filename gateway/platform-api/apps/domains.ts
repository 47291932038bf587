import { Type } from 'typebox'
import type { Domain as DomainMessage } from '../../../proto/gen/es/tollgate/identity/v1/management_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { route } from '../../http/route.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant, Success, required } from '../schemas.ts'

const url = '/api/v1/apps/:clientId/domains'
const tags = ['apps']

export const Domain = named(
  Type.Object({
    id: Type.String(),
    domain: Type.String({ description: 'The same as origin.' }),
    origin: Type.String({ description: 'The origin as browsers send it.' }),
    createdAt: Instant('When it was added.'),
  }),
  'Domain',
)
const DomainList = named(Type.Object({ domains: Type.Array(ref(Domain)) }), 'DomainList')

/** Origins from which browsers may call an app's routes. */
export function domainRoutes(app: App): void {
  addSchemas(app, [Domain, DomainList])
  listDomains(app)
  addDomain(app)
  removeDomain(app)
}

function listDomains(app: App): void {
  app.get(
    url,
    route(
      { guard: { kind: 'member_read' } },
      {
        operationId: 'listDomains',
        summary: 'List the origins that browsers may call from',
        description:
          "The origins of web pages that may call this app's routes from a browser (CORS).",
        tags,
        params: AppParams,
        response: { 200: ref(DomainList) },
      },
    ),
    async ({ params, core }) => {
      const { domains } = await core.management.listDomains(params)
      return { domains: domains.map(toDomain) }
    },
  )
}

function addDomain(app: App): void {
  app.post(
    url,
    route(
      { guard: { kind: 'member_edit' }, refuses: ['CONFLICT'] },
      {
        operationId: 'addDomain',
        summary: 'Add an origin',
        description:
          'Allows browsers to call from one more origin. A host alone means its https origin.',
        tags,
        params: AppParams,
        body: Type.Object(
          { domain: required('An https origin, or a host.') },
          { additionalProperties: false },
        ),
        response: { 201: ref(Domain) },
      },
    ),
    async ({ params, body, core }, reply) => {
      const { domain } = await core.management.addDomain({ ...params, origin: body.domain })
      return reply.code(201).send(toDomain(requireField(domain, 'domain')))
    },
  )
}

function removeDomain(app: App): void {
  app.delete(
    url,
    route(
      { guard: { kind: 'member_edit' } },
      {
        operationId: 'removeDomain',
        summary: 'Remove an origin',
        description: 'Removes an origin; browsers block its calls within minutes.',
        tags,
        params: AppParams,
        querystring: Type.Object({ domainId: required('Which one.') }),
        response: { 200: ref(Success) },
      },
    ),
    async ({ params, query: { domainId }, core, correlationId }) => {
      await core.management.removeDomain({ ...params, id: domainId })
      return { success: true, correlation_id: correlationId }
    },
  )
}

export const toDomain = ({ id, origin, createdAt }: DomainMessage) => ({
  id,
  domain: origin,
  origin,
  createdAt,
})
