import type { Caller, Guard } from './callers.ts'
import { correlationIdFrom } from '../lib/correlation.ts'
import { DomainError } from '../../proto/errors.ts'
import { type Context, type Rpc, judge, namedApp, requireService } from './serve.ts'

const callsMax = 200

/**
 * A unary RPC that answers many calls of the RPC `path` at once, in their order, each for whoever it shows; the refusal
 * of one is its answer and no other's. Who shows the same for the same app is judged once. REQUEST_INVALID for more
 * than 200.
 */
export function rpcMany<Request, Response, C extends Caller>(
  path: string,
  guard: Guard<C>,
  handler: (request: Request, caller: C, context: Context) => Promise<Response>,
): Rpc<Many<Request>, Answers<Response>> {
  return {
    unary: async ({ request: { calls }, shown, context: { signal } }, deps) => {
      requireService(shown, deps)
      if (calls.length > callsMax)
        throw new DomainError('REQUEST_INVALID', `at most ${callsMax} calls at once`)
      const callers = new Map<string, Promise<C>>()
      const callerOf = (request: Request, authorization: string | undefined): Promise<C> => {
        const name = JSON.stringify([namedApp(request), authorization])
        const caller =
          callers.get(name) ?? judge(guard, { request, shown: { ...shown, authorization } }, deps)
        callers.set(name, caller)
        return caller
      }
      const answer = async ({
        request,
        authorization,
        correlationId,
      }: Many<Request>['calls'][number]) => {
        const context = { correlationId: correlationIdFrom(correlationId), signal }
        const settled = await deps.settle(path, context, async () => {
          if (request === undefined)
            throw new DomainError('REQUEST_INVALID', 'a call without its request')
          return handler(request, await callerOf(request, authorization), context)
        })
        return 'response' in settled
          ? { response: settled.response, refusal: undefined }
          : {
              response: undefined,
              refusal: { reason: settled.reason, details: settled.reply.details },
            }
      }
      return { answers: await Promise.all(calls.map(answer)) }
    },
  }
}

interface Many<Request> {
  readonly calls: {
    request: Request | undefined
    authorization: string | undefined
    correlationId: string
  }[]
}
interface Answers<Response> {
  readonly answers: {
    response: Response | undefined
    refusal: { reason: string; details: string } | undefined
  }[]
}
