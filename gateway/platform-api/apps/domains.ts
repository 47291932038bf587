import { Type } from 'typebox'
import type { Domain as DomainMessage } from '../../../proto/gen/es/tollgate/identity/v1/management_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { del, get, post } from '../../http/endpoint.ts'
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
  createDomain(app)
  deleteDomain(app)
}

const listDomains = get({
  url,
  guard: { kind: 'member_read' },
  operationId: 'listDomains',
  summary: 'List the origins that browsers may call from',
  description: "The origins of web pages that may call this app's routes from a browser (CORS).",
  tags,
  params: AppParams,
  response: { 200: ref(DomainList) },
  handler: async ({ params, core }) => {
    const { domains } = await core.management.listDomains(params)
    return { domains: domains.map(toDomain) }
  },
})

const createDomain = post({
  url,
  guard: { kind: 'member_edit' },
  refuses: ['CONFLICT'],
  operationId: 'createDomain',
  summary: 'Add an origin',
  description: 'Allows browsers to call from one more origin. A host alone means its https origin.',
  tags,
  params: AppParams,
  body: Type.Object(
    { domain: required('An https origin, or a host.') },
    { additionalProperties: false },
  ),
  response: { 201: ref(Domain) },
  handler: async ({ params, body, core }, reply) => {
    const { domain } = await core.management.createDomain({ ...params, origin: body.domain })
    return reply.code(201).send(toDomain(requireField(domain, 'domain')))
  },
})

const deleteDomain = del({
  url,
  guard: { kind: 'member_edit' },
  operationId: 'deleteDomain',
  summary: 'Remove an origin',
  description: 'Removes an origin; browsers block its calls within minutes.',
  tags,
  params: AppParams,
  querystring: Type.Object({ domainId: required('Which one.') }),
  response: { 200: ref(Success) },
  handler: async ({ params, query: { domainId }, core, correlationId }) => {
    await core.management.deleteDomain({ ...params, id: domainId })
    return { success: true, correlation_id: correlationId }
  },
})

export const toDomain = (domain: DomainMessage) => ({ ...domain, domain: domain.origin })
