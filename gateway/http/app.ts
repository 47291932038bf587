import type {
  FastifyBaseLogger,
  FastifyInstance,
  FastifyTypeProvider,
  RawReplyDefaultExpression,
  RawRequestDefaultExpression,
  RawServerDefault,
} from 'fastify'
import type { Static, TSchema } from 'typebox'
import type { CallerCredential } from '../core/call-context.ts'
import type { CoreCalls } from '../core/client.ts'

/**
 * Requests have the types of their schemas. An answer may be any message of core: its serializer
 * selects and checks the members (compilers.ts).
 */
export interface SchemaTypes extends FastifyTypeProvider {
  readonly validator: NonNullable<this['schema']> extends infer Part extends TSchema
    ? Static<Part>
    : unknown
  readonly serializer: unknown
}

/** The listener's type, as used by files that add routes and hooks. */
export type App = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  SchemaTypes
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
