import { DomainError } from '../../proto/errors.ts'
import { correlationIdFrom } from '../../proto/headers.ts'
import type { Caller } from './callers.ts'
import type { Guard } from './guards.ts'
import { type Context, type Rpc, readClientId, runGuard } from './serve.ts'

const callsMax = 200

/**
 * A unary RPC that runs a batch of calls of the RPC `path` and returns their replies in order. The
 * gateway collects the calls of one turn of its event loop, and thus saves a gRPC round trip per
 * call (`npm run bench`, row "user-token mint over REST, processor time"). The plain RPC at `path`
 * gives the same replies. Each call has its own credential, and its error affects no other call.
 * The guard runs once for calls with the same credential and app. Throws REQUEST_INVALID for more
 * than 200 calls.
 */
export function batchedRpc<Request, Response, C extends Caller>(
  path: string,
  guard: Guard<C>,
  handler: (request: Request, caller: C, context: Context) => Promise<Response>,
): Rpc<BatchRequest<Request>, BatchResponse<Response>> {
  return {
    roles: guard.roles,
    unary: async ({ request: { calls }, credentials, context: { signal } }, runtime) => {
      if (calls.length > callsMax)
        throw new DomainError('REQUEST_INVALID', `at most ${callsMax} calls at once`)
      const callers = new Map<string, Promise<C>>()
      const callerOf = (request: Request, authorization: string | undefined): Promise<C> => {
        const name = JSON.stringify([readClientId(request), authorization])
        const caller =
          callers.get(name) ??
          runGuard(guard, { request, credentials: { ...credentials, authorization } }, runtime)
        callers.set(name, caller)
        return caller
      }
      const answer = async ({ request, authorization, correlationId }: BatchedCall<Request>) => {
        const context = { correlationId: correlationIdFrom(correlationId), signal }
        const settled = await runtime.settle(path, context, async () => {
          if (request === undefined)
            throw new DomainError('REQUEST_INVALID', 'a call without its request')
          return handler(request, await callerOf(request, authorization), context)
        })
        return 'response' in settled
          ? { response: settled.response, refusal: undefined }
          : {
              response: undefined,
              refusal: {
                reason: settled.reason,
                details: settled.reply.details,
                membersJson: settled.membersJson,
              },
            }
      }
      return { answers: await Promise.all(calls.map(answer)) }
    },
  }
}

interface BatchedCall<Request> {
  readonly request: Request | undefined
  readonly authorization: string | undefined
  readonly correlationId: string
}
interface BatchRequest<Request> {
  readonly calls: BatchedCall<Request>[]
}
interface BatchResponse<Response> {
  readonly answers: {
    response: Response | undefined
    refusal: { reason: string; details: string; membersJson: string | undefined } | undefined
  }[]
}
