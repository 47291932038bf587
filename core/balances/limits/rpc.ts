import type * as pb from '../../../proto/gen/ts-proto/tollgate/balances/v1/limits.ts'
import { Scope } from '../../../proto/scopes.ts'
import { parseReadable } from '../../shared/text.ts'
import type { Actor } from '../../shared/audit.ts'
import {
  type AppOperatorCaller,
  type M2mCaller,
  type MemberCaller,
  toActor,
} from '../../rpc/callers.ts'
import { appOperator, appOperatorWrite, m2m, orMember, orOperator } from '../../rpc/guards.ts'
import { type Context, type Handlers, rpc } from '../../rpc/serve.ts'
import type { LimitsService } from './service.ts'
import { parseLimits, renderLimits } from './wire.ts'

export function createLimitsRpc({ limits }: { readonly limits: LimitsService }) {
  const writer = orOperator(orMember(m2m(Scope.usersWrite), 'edit'), appOperatorWrite())
  const limitService: Handlers<pb.LimitServiceServer> = {
    getLimits: rpc(
      orOperator(orMember(m2m(Scope.usersRead), 'read'), appOperator()),
      async (request: pb.GetLimitsRequest, { appId }) => ({
        limits: renderLimits((await limits.read(appId, request)) ?? undefined),
      }),
    ),
    updateLimits: rpc(writer, async (request: pb.UpdateLimitsRequest, caller, context) => {
      const parsed = parseLimits(request.limits)
      const actor = authorOf(request, caller, context)
      await limits.set(caller.appId, request, { limits: parsed, actor })
      return { limits: renderLimits(parsed) }
    }),
    deleteLimits: rpc(writer, async (request: pb.DeleteLimitsRequest, caller, context) => {
      await limits.clear(caller.appId, request, authorOf(request, caller, context))
      return {}
    }),
  }

  return { limitService }
}

/** An operator's command names its author, who may be another person. */
function authorOf(
  { author }: { readonly author: string },
  caller: M2mCaller | MemberCaller | AppOperatorCaller,
  context: Context,
): Actor {
  if (caller.kind !== 'operator') return toActor(caller, context)
  return { name: `operator:${parseReadable(author, { field: 'author' })}`, context }
}
