import swagger from '@fastify/swagger'
import { Type } from 'typebox'
import type { App } from '../http/app.ts'
import { get } from '../http/endpoint.ts'
import type { ListenerDeps } from '../http/listener.ts'
import { collectRoutes, page, pageOptions } from '../platform-api/docs/docs.ts'
import { type DocumentOf, documentOptions } from '../platform-api/docs/openapi.ts'
import { examples } from './examples.ts'

const url = '/api/v1/openapi.json'

const description = [
  'Users, signer sessions and usage for builders whose users log in at an identity provider.',
  'Every answer has the header X-Correlation-Id.',
  'Errors are problem documents (RFC 9457), on the token route OAuth errors (RFC 6749).',
].join(' ')

const builderDocument: DocumentOf = {
  openapi: '3.1.0',
  title: 'tollgate builder API',
  description,
  // Relative, so that it fits any outside address of this listener.
  server: '/',
  securitySchemes: {
    tenantBasic: {
      type: 'http',
      scheme: 'basic',
      description: "The tenant's client id (app_…) and its admin secret",
    },
    m2mBasic: { type: 'http', scheme: 'basic', description: 'M2M client id and secret' },
    userToken: { type: 'http', scheme: 'bearer', description: 'A user JWT' },
    apiKey: { type: 'http', scheme: 'bearer', description: "A user's key (sk_…)" },
  },
  examples,
}

/** Collects the document. Must run before the routes are added; it misses earlier ones. */
export async function collectDocument(app: App, publicUrl: string): Promise<void> {
  const routes = collectRoutes(app)
  await app.register(swagger, documentOptions(builderDocument, { publicUrl, routes }))
}

/** The document and its page. All scripts and styles are served by this server. */
export async function documentRoutes(app: App, deps: ListenerDeps): Promise<void> {
  get({
    url,
    guard: { kind: 'none' },
    operationId: 'getOpenApi',
    summary: 'This document',
    description: 'The OpenAPI 3.1 document of the builder API.',
    tags: ['service'],
    response: { 200: Type.Object({}, { additionalProperties: true }) },
    handler: async (_, reply) =>
      reply
        .header('cache-control', 'public, max-age=300')
        .type('application/json')
        .send(JSON.stringify(app.swagger())),
  })(app)
  const { publicUrl } = deps
  const links = [
    ['Builder API', '/api/v1/docs/'],
    ['OpenAPI document', url],
    ['Platform API', `${publicUrl}/api/v1/docs/`],
    ['Error codes', `${publicUrl}/errors`],
  ] as const
  await page(app, pageOptions(deps, { routePrefix: '/api/v1/docs', url, links }))
}
