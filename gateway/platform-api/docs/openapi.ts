import { STATUS_CODES } from 'node:http'
import type { FastifyDynamicSwaggerOptions } from '@fastify/swagger'
import type { Refusals, RouteRules } from '../../http/route.ts'
import { OAuthError, Problem } from '../../http/schemas.ts'
import { hostCookieName } from '../../auth/session.ts'
import exampleFile from './examples.json' with { type: 'json' }
import { describeRefusals } from './refusals.ts'
import { firstSteps, platformTags } from './tags.ts'

/** An operation's example: an accepted body, and the answers by status. */
export interface Example {
  readonly body?: object
  readonly answers: Readonly<Record<string, object>>
}

/**
 * Keyed by method and path: `post /api/v1/apps/{clientId}/users`. The answers were recorded from a
 * real core; ids and times differ.
 */
export const examples: Readonly<Record<string, Example>> = exampleFile

/** The parts of a document that differ between listeners. */
export interface DocumentOf {
  /** The version of OpenAPI. */
  readonly openapi: string
  readonly title: string
  readonly description: string
  /** Groups of operations, in order. Default: the order of the routes. */
  readonly tags?: readonly { readonly name: string; readonly description: string }[]
  /** Base URL of the routes: absolute, or a path on the listener that serves the document. */
  readonly server: string
  readonly securitySchemes: SecuritySchemes
  readonly examples: Readonly<Record<string, Example>>
}

type OpenApi = NonNullable<FastifyDynamicSwaggerOptions['openapi']>
type SecuritySchemes = NonNullable<NonNullable<OpenApi['components']>['securitySchemes']>

const description = [
  'Identity, metering and billing for a remote signer.',
  'Money is integer strings: wei, and USD micros (1000000 is one USD).',
  'Every answer has the header X-Correlation-Id.',
  'Errors are problem documents (RFC 9457), on token routes OAuth errors (RFC 6749).',
].join(' ')
const guide = `${description}\n\n${firstSteps}`

/** An operation's refusals and rules. */
export interface DocumentedRoute {
  readonly refusals: Refusals
  readonly rules?: RouteRules | undefined
}

/** Keyed by method and path as in `examples`. Complete after all routes are added. */
export type RoutesByOperation = ReadonlyMap<string, DocumentedRoute>

const securitySchemes = (publicUrl: string) =>
  ({
    m2mBasic: { type: 'http', scheme: 'basic', description: 'M2M client id and secret' },
    machineToken: {
      type: 'http',
      scheme: 'bearer',
      description: 'A token of the client_credentials grant',
    },
    signerSecret: {
      type: 'http',
      scheme: 'bearer',
      description: "A secret of WEBHOOK_SECRET, or a signer's own secret for decisions.",
    },
    session: {
      type: 'apiKey',
      in: 'cookie',
      name: hostCookieName('tollgate_session', publicUrl),
      description:
        'A dashboard session: the cookie that POST /login sets. Changes also need X-CSRF-Token, which GET /api/v1/session returns, and an Origin header of this service.',
    },
    csrfToken: {
      type: 'apiKey',
      in: 'header',
      name: 'X-CSRF-Token',
      description: 'csrfToken of GET /api/v1/session',
    },
    userToken: { type: 'http', scheme: 'bearer', description: 'A user JWT' },
    sharedSecret: {
      type: 'http',
      scheme: 'bearer',
      description: 'A secret of the deployment',
    },
    apiKey: { type: 'http', scheme: 'bearer', description: "A user's API key" },
  }) as const

export const platformDocument = (publicUrl: string): DocumentOf => ({
  openapi: '3.0.3',
  title: 'tollgate platform API',
  description: guide,
  tags: platformTags,
  server: publicUrl,
  securitySchemes: securitySchemes(publicUrl),
  examples,
})

/** Returns the options to generate an OpenAPI document from the routes' schemas and refusals. */
export function documentOptions(
  { openapi, title, description, tags = [], server, securitySchemes, examples }: DocumentOf,
  additions: Omit<Additions, 'examples'>,
): FastifyDynamicSwaggerOptions {
  return {
    openapi: {
      openapi,
      info: { title, version: '1.0.0', description },
      servers: [{ url: server }],
      tags: [...tags],
      components: { securitySchemes },
    },
    transform: ({ schema, url, route }) => {
      const { documentedBody: body, documentedQuery: querystring } = route.config ?? {}
      const documented = { ...(body && { body }), ...(querystring && { querystring }) }
      return { url, schema: { ...schema, ...documented } }
    },
    transformObject: (document) =>
      'openapiObject' in document
        ? complete(document.openapiObject, { ...additions, examples })
        : document.swaggerObject,
    refResolver: {
      buildLocalReference: (json, ...[, , index]) =>
        typeof json.$id === 'string' ? json.$id : `def-${index}`,
    },
  }
}

type Transform = NonNullable<FastifyDynamicSwaggerOptions['transformObject']>
type Document = Extract<Parameters<Transform>[0], { openapiObject: unknown }>['openapiObject']

interface Additions {
  readonly examples: Readonly<Record<string, Example>>
  readonly publicUrl: string
  readonly routes: RoutesByOperation
}

/**
 * Adds what the routes' schemas lack: examples, because Fastify's validator rejects unknown
 * keywords in schemas, and the reasons of refusals, because one serializer serves all kinds of
 * problems (http/compilers.ts).
 */
function complete(document: Document, { publicUrl, routes, examples }: Additions): Document {
  const schemas = (document.components ??= {}).schemas ?? {}
  for (const [path, item] of Object.entries(document.paths ?? {})) {
    for (const [method, operation] of Object.entries(item ?? {})) {
      const name = `${method} ${path}`
      addExamples(operation, examples[name])
      nameAnswers(operation)
      if (method !== 'get') addCsrfToken(operation)
      const route = routes.get(name)
      if (route === undefined) continue
      if (isBodyOptional(operation, route.rules))
        Object.assign(Object(member(operation, 'requestBody')), { required: false })
      const { responses, schemas: reasons } = describeRefusals(route.refusals, publicUrl)
      const answers = Object(member(operation, 'responses'))
      delete answers.default
      Object.assign(answers, responses)
      Object.assign(schemas, reasons)
    }
  }
  // The schemas of the reasons replace them.
  for (const { $id } of [Problem, OAuthError]) delete schemas[$id]
  const used = namesIn(document.paths, schemas)
  document.components.schemas = Object.fromEntries(
    Object.entries(schemas).filter(([name]) => used.has(name)),
  )
  return document
}

const reference = /"#\/components\/schemas\/([^"]+)"/g

/**
 * Returns the schemas to which a value refers, also through others. Schemas of internal routes are
 * registered beside the others, but the public document does not refer to them.
 */
function namesIn(
  value: unknown,
  schemas: Readonly<Record<string, unknown>>,
  names = new Set<string>(),
): ReadonlySet<string> {
  for (const [, name = ''] of (JSON.stringify(value) ?? '').matchAll(reference)) {
    if (names.has(name)) continue
    names.add(name)
    namesIn(schemas[name], schemas, names)
  }
  return names
}

/**
 * Whether a request without a body is accepted: an absent body counts as the empty JSON object
 * (http/body.ts). Forms, and bodies that the handler reads itself, are required.
 */
function isBodyOptional(
  operation: unknown,
  { accepts, unmanaged }: Partial<RouteRules> = {},
): boolean {
  const content = member(member(operation, 'requestBody'), 'content')
  const schema = member(member(content, 'application/json'), 'schema')
  if (schema === undefined || accepts === 'form' || unmanaged === true) return false
  return [member(schema, 'required') ?? []].flat().length === 0 && !member(schema, 'minProperties')
}

// Changes by cookie also need the CSRF token (auth/session.ts).
function addCsrfToken(operation: unknown): void {
  for (const way of Object.values(Object(member(operation, 'security'))))
    if (member(way, 'session') !== undefined) Object.assign(Object(way), { csrfToken: [] })
}

function addExamples(operation: unknown, { body, answers = {} }: Partial<Example> = {}): void {
  addExample(member(operation, 'requestBody'), body)
  for (const [status, response] of Object.entries(Object(member(operation, 'responses'))))
    addExample(response, answers[status])
}

// @fastify/swagger describes answers without a description as "Default Response".
function nameAnswers(operation: unknown): void {
  for (const [status, response] of Object.entries(Object(member(operation, 'responses'))))
    if (member(response, 'description') === 'Default Response')
      Object.assign(Object(response), { description: STATUS_CODES[status] })
}

function member(value: unknown, name: string): unknown {
  return Object.getOwnPropertyDescriptor(Object(value), name)?.value
}

function addExample(holder: unknown, example: object | undefined): void {
  if (example === undefined) return
  // A media type other than JSON has its own example.
  for (const media of Object.values(Object(member(holder, 'content'))))
    if (member(media, 'example') === undefined) Object.assign(Object(media), { example })
}
