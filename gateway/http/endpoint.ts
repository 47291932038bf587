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
        readonly handler: Handler<Parts<Params, Query, Headers, Body>>
      },
  ) =>
  (app: App): void => {
    const { url, handler } = declared
    app.route<RouteGenericInterface, ContextConfigDefault, Parts<Params, Query, Headers, Body>>({
      method,
      url,
      ...route(declared),
      handler,
    })
  }

export const get = endpoint('GET')
export const post = endpoint('POST')
export const put = endpoint('PUT')
export const del = endpoint('DELETE')
