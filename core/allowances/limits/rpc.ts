import type * as pb from '../../../proto/gen/ts-proto/tollgate/allowances/v1/limits.ts'
import { Scope } from '../../../proto/scopes.ts'
import { parseReadable } from '../../platform/text.ts'
import type { Actor } from '../../platform/audit.ts'
import { toActor, m2m, operator, operatorWrite } from '../../rpc/callers.ts'
import { type Context, type Handlers, rpc } from '../../rpc/serve.ts'
import type { LimitsService } from './service.ts'
import { parseLimits, renderLimits } from './wire.ts'

export function createLimitsRpc({ limits }: { readonly limits: LimitsService }) {
  const limitService: Handlers<pb.LimitServiceServer> = {
    getLimits: rpc(m2m(Scope.usersRead), async (request: pb.GetLimitsRequest, { appId }) => ({
      limits: renderLimits((await limits.read(appId, request)) ?? undefined),
    })),
    setLimits: rpc(m2m(Scope.usersWrite), async (request: pb.SetLimitsRequest, caller, context) => {
      const parsed = parseLimits(request.limits)
      const actor = toActor(caller, context)
      await limits.set(caller.appId, request, { limits: parsed, actor })
      return { limits: renderLimits(parsed) }
    }),
    clearLimits: rpc(
      m2m(Scope.usersWrite),
      async (request: pb.ClearLimitsRequest, caller, context) => {
        await limits.clear(caller.appId, request, toActor(caller, context))
        return {}
      },
    ),
  }

  const operatorLimitService: Handlers<pb.OperatorLimitServiceServer> = {
    readLimits: rpc(operator(), async (request: pb.ReadLimitsRequest) => ({
      limits: renderLimits(
        (await limits.read(await limits.appOf(request.clientId), request)) ?? undefined,
      ),
    })),
    replaceLimits: rpc(
      operatorWrite(),
      async (request: pb.ReplaceLimitsRequest, _caller, context) => {
        const parsed = parseLimits(request.limits)
        const actor = operatorOf(request.author, context)
        await limits.set(await limits.appOf(request.clientId), request, { limits: parsed, actor })
        return { limits: renderLimits(parsed) }
      },
    ),
    removeLimits: rpc(
      operatorWrite(),
      async (request: pb.RemoveLimitsRequest, _caller, context) => {
        const actor = operatorOf(request.author, context)
        await limits.clear(await limits.appOf(request.clientId), request, actor)
        return {}
      },
    ),
  }

  return { limitService, operatorLimitService }
}

/** The operator's name in the audit log. */
function operatorOf(author: string, context: Context): Actor {
  const name = parseReadable(author, { field: 'author' })
  return { name: `operator:${name}`, context }
}
