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

/** The listener's type, as used by files that add routes and hooks. */
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
    /**
     * Credential that `core`'s calls carry. Complete after the listener has read the request's
     * headers.
     */
    credential: CallerCredential
    /** Caches `core` after its first use. */
    calls: CoreCalls | undefined
    /** The calls to core with this request's credential and correlation id. */
    readonly core: CoreCalls
    /** Reason of the refusal, for the log. */
    reason: string | undefined
  }
}
