import swagger from '@fastify/swagger'
import swaggerUi, { type FastifySwaggerUiOptions } from '@fastify/swagger-ui'
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { readSession } from '../../auth/session.ts'
import type { App } from '../../http/app.ts'
import { get, internalTag } from '../../http/endpoint.ts'
import type { ListenerDeps } from '../../http/listener.ts'
import {
  type DocumentedRoute,
  type RoutesByOperation,
  documentOptions,
  platformDocument,
} from './openapi.ts'
import { sidecarDocument } from './sidecar.ts'
import { type Link, renderTheme } from './theme.ts'

declare module 'fastify' {
  interface FastifyInstance {
    /** The document with the internal routes, which are not for integrators. */
    internalSwagger(): object
  }
}

const sidecarUrl = '/api/v1/sidecar/openapi.json'

const Document = Type.Object({}, { additionalProperties: true, description: 'OpenAPI 3.0.3' })

/** Collects the documents. Must run before the routes are added; they miss earlier ones. */
export async function collectDocuments(app: App, publicUrl: string): Promise<void> {
  const routes = collectRoutes(app)
  const options = documentOptions(platformDocument(publicUrl), { publicUrl, routes })
  await app.register(swagger, { ...options, hiddenTag: internalTag })
  await app.register(swagger, { ...options, decorator: 'internalSwagger' })
}

/** Collects the refusals and rules of each route that is added later. */
export function collectRoutes(app: App): RoutesByOperation {
  const routes = new Map<string, DocumentedRoute>()
  app.addHook('onRoute', ({ method, url, config }) => {
    if (config?.refusals === undefined) return
    const { refusals, rules } = config
    const path = url.replace(/:([A-Za-z]+)/g, '{$1}')
    for (const each of [method].flat())
      routes.set(`${each.toLowerCase()} ${path}`, { refusals, rules })
  })
  return routes
}

/** The documents and their pages. All scripts and styles are served by this server. */
export async function documentRoutes(app: App, deps: ListenerDeps): Promise<void> {
  readDocument(app)
  readInternalDocument(app)
  await page(app, pageOptions(deps, { routePrefix: '/api/v1/docs', url: '/api/v1/openapi.json' }))
  readSidecarDocument(app)
  await page(app, {
    ...pageOptions(deps, { routePrefix: '/api/v1/sidecar/docs', url: sidecarUrl }),
    transformSpecificationClone: false,
    transformSpecification: () => sidecarDocument,
  })
  await page(app, {
    ...pageOptions(deps, {
      routePrefix: '/api/v1/internal/docs',
      url: '/api/v1/internal/openapi.json',
    }),
    transformSpecificationClone: false,
    transformSpecification: () => Object.fromEntries(Object.entries(app.internalSwagger())),
    uiHooks: { onRequest: (request: FastifyRequest) => requireSession(request, deps) },
  })
}

function readDocument(app: App): void {
  get({
    url: '/api/v1/openapi.json',
    guard: { kind: 'none' },
    operationId: 'getOpenApi',
    summary: 'This document',
    description:
      'Returns the OpenAPI 3.0 document of this service, with the error codes and addresses of the running version.',
    tags: ['service'],
    response: { 200: Document },
    handler: async (_, reply) =>
      reply
        .header('cache-control', 'public, max-age=300')
        .type('application/json')
        .send(JSON.stringify(app.swagger())),
  })(app)
}

function readSidecarDocument(app: App): void {
  const body = JSON.stringify(sidecarDocument)
  get({
    url: sidecarUrl,
    guard: { kind: 'none' },
    operationId: 'getSidecarOpenApi',
    summary: "The document of the sidecar's routes",
    description:
      'Returns the OpenAPI 3.0 document of the routes that remote signers call at a sidecar: decisions, pushed events, health.',
    tags: ['service'],
    response: { 200: Document },
    handler: async (_, reply) =>
      reply.header('cache-control', 'public, max-age=300').type('application/json').send(body),
  })(app)
}

function readInternalDocument(app: App): void {
  get({
    url: '/api/v1/internal/openapi.json',
    guard: { kind: 'session' },
    operationId: 'getInternalOpenApi',
    summary: 'This document, with the routes that are not for integrators',
    description:
      'Returns the document for operators of the service, which also lists the routes that are not for integrators.',
    tags: [internalTag],
    response: { 200: Document },
    handler: async ({ core }, reply) => {
      await core.callers.checkCaller({ kind: 'session' })
      return reply.type('application/json').send(JSON.stringify(app.internalSwagger()))
    },
  })(app)
}

// Each page has its own scope, because the plugin can be registered only once per scope.
export async function page(app: App, options: FastifySwaggerUiOptions): Promise<void> {
  await app.register(async (scope) => void (await scope.register(swaggerUi, options)))
}

const platformLinks: readonly Link[] = [
  ['Platform API', '/api/v1/docs/'],
  ['OpenAPI document', '/api/v1/openapi.json'],
  ['Sidecar', '/api/v1/sidecar/docs/'],
  ['its document', '/api/v1/sidecar/openapi.json'],
  ['Error codes', '/errors'],
]

/** `links` are shown in the page's header. Default: those of the platform API. */
export function pageOptions(
  { publicUrl }: Pick<ListenerDeps, 'publicUrl'>,
  at: { routePrefix: string; url: string; links?: readonly Link[] },
): FastifySwaggerUiOptions {
  return {
    routePrefix: at.routePrefix,
    staticCSP: contentPolicy(publicUrl),
    theme: renderTheme(at.links ?? platformLinks),
    // No validator: it would send the document's URL to another host.
    uiConfig: {
      url: at.url,
      layout: 'BaseLayout',
      validatorUrl: null,
      deepLinking: true,
      displayOperationId: true,
      persistAuthorization: false,
    },
  }
}

// The page sets styles through the DOM. Its scripts are our files, and it connects to no other
// host.
const contentPolicy = (publicUrl: string): string =>
  [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data:",
    `connect-src 'self' ${new URL(publicUrl).origin}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ')

async function requireSession(
  request: FastifyRequest,
  { core, publicUrl }: ListenerDeps,
): Promise<void> {
  const session = readSession(request, publicUrl)
  await core
    .callsFor({ session, correlationId: request.correlationId })
    .callers.checkCaller({ kind: 'session' })
}
