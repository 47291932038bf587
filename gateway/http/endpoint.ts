import type {
  ContextConfigDefault,
  FastifyBaseLogger,
  FastifySchema,
  RawReplyDefaultExpression,
  RawRequestDefaultExpression,
  RawServerDefault,
  RouteGenericInterface,
  RouteHandlerMethod,
} from 'fastify'
import type { TSchema } from 'typebox'
import type { App, SchemaTypes } from './app.ts'
import { type Route, route } from './route.ts'

/** The schemas of a request's parts. */
interface Parts<
  Params extends TSchema,
  Query extends TSchema,
  Headers extends TSchema,
  Body extends TSchema,
> {
  readonly params?: Params
  readonly querystring?: Query
  readonly headers?: Headers
  readonly body?: Body
}

type Handler<RequestParts extends FastifySchema> = RouteHandlerMethod<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  RouteGenericInterface,
  ContextConfigDefault,
  RequestParts,
  SchemaTypes,
  FastifyBaseLogger
>

/** Declares routes of a method. A declared route is a function that adds the route to a listener. */
const endpoint =
  (method: 'GET' | 'POST' | 'PUT' | 'DELETE') =>
  <
    Params extends TSchema = TSchema,
    Query extends TSchema = TSchema,
    Headers extends TSchema = TSchema,
    Body extends TSchema = TSchema,
  >(
    declared: Route &
      Parts<Params, Query, Headers, Body> & {
        readonly url: string
        /** False for a stream, which has no answer to HEAD. */
        readonly exposeHeadRoute?: false
        readonly handler: Handler<Parts<Params, Query, Headers, Body>>
      },
  ) =>
  (app: App): void => {
    for (const { url, handler, exposeHeadRoute, ...rules } of [declared, ...forMembers(declared)]) {
      app.route<RouteGenericInterface, ContextConfigDefault, Parts<Params, Query, Headers, Body>>({
        method,
        url,
        ...route(rules),
        ...(exposeHeadRoute === false && { exposeHeadRoute }),
        handler,
      })
    }
  }

/** Tag of routes that only the internal document lists. */
export const internalTag = 'internal'

/** Returns the dashboard's own address of a route that members may call, if there is one. */
const forMembers = <Declared extends Route & { readonly url: string }>(
  declared: Declared,
): Declared[] =>
  declared.members === undefined
    ? []
    : [
        {
          ...declared,
          url: declared.url.replace(/^\/api\/v1\/(?:builder\/)?/, '/api/v1/internal/'),
          guard: { kind: `member_${declared.members}` },
          operationId: `${declared.operationId}ByMember`,
          tags: [internalTag, ...declared.tags],
        },
      ]

export const get = endpoint('GET')
export const post = endpoint('POST')
export const put = endpoint('PUT')
export const del = endpoint('DELETE')
