import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type {
  FastifyBaseLogger,
  FastifyInstance,
  RawReplyDefaultExpression,
  RawRequestDefaultExpression,
  RawServerDefault,
} from 'fastify'
import type { CallerCredential } from '../core/call-context.ts'
import type { CoreCalls } from '../core/client.ts'

/** A listener, as the files that add routes and hooks to it know it. */
export type App = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>

declare module 'fastify' {
  interface FastifyRequest {
    correlationId: string
    /** What the calls of `core` carry; complete once the listener has read the request's headers. */
    credential: CallerCredential
    /** The value of `core` after its first use. */
    calls: CoreCalls | undefined
    /** The calls to core with this request's credential and correlation id. */
    readonly core: CoreCalls
    /** Why the request was refused, for the log. */
    reason: string | undefined
  }
}
