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
import { type TObject, type TSchema, Type } from 'typebox'
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

/**
 * A route's address at which a person calls it for itself, with the dashboard's session. Core takes
 * the end user from the session's account and the app in the path.
 */
export interface OwnRoute {
  readonly operationId: string
  readonly summary: string
  readonly description: string
  readonly params: TObject
  /** Parts of the request without the members that name a user or a payer. */
  readonly querystring?: TObject
  readonly body?: TObject
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
        readonly self?: OwnRoute
        readonly handler: Handler<Parts<Params, Query, Headers, Body>>
      },
  ) =>
  (app: App): void => {
    const { self, ...main } = declared
    const addresses = [main, ...forMembers(main), ...forSelf(main, self)]
    for (const { url, handler, exposeHeadRoute, ...rules } of addresses) {
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

/** Address of the apps that a person uses. */
export const ownAppsUrl = '/api/v1/internal/me/apps'

/** Returns a person's own address of a route, if there is one. No query of it names another user. */
const forSelf = <Declared extends Route & { readonly url: string }>(
  declared: Declared,
  self: OwnRoute | undefined,
) =>
  self === undefined
    ? []
    : [
        {
          ...declared,
          ...self,
          url: declared.url.replace(ownedPath, `${ownAppsUrl}/:clientId`),
          guard: { kind: 'self' } as const,
          tags: [internalTag],
          querystring: { ...(self.querystring ?? Type.Object({})), additionalProperties: false },
        },
      ]

const ownedPath = /^\/api\/v1\/(?:apps\/:clientId(?:\/users\/:externalUserId)?|user)(?=\/)/

export const get = endpoint('GET')
export const post = endpoint('POST')
export const put = endpoint('PUT')
export const del = endpoint('DELETE')
