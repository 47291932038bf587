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
    origin: Type.String({ description: 'As browsers send it.' }),
    createdAt: Instant('When it was added.'),
  }),
  'Domain',
)
const DomainList = named(Type.Object({ domains: Type.Array(ref(Domain)) }), 'DomainList')

/** The origins from which browsers may call an app's routes. */
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
        summary: 'List the origins that browsers may call from',
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
        summary: 'Add an origin',
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
        summary: 'Remove an origin',
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
