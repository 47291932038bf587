import { DomainError } from '../../../proto/errors.ts'
import type * as pb from '../../../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import type { BackendApi } from '../../metering/backend/module.ts'
import type { Caller } from '../../rpc/callers.ts'
import {
  type Guard,
  actor,
  m2m,
  m2mBasic,
  hidden,
  hiddenMember,
  m2mOrMember,
  member,
  platformAdmin,
  provisioner,
  self,
  serviceCaller,
  session,
  endUser,
} from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'

const guards: Readonly<Record<string, (scope?: string) => Guard<Caller>>> = {
  m2m_basic: () => m2mBasic(),
  user: () => endUser(),
  provisioner: () => provisioner(),
  session: () => session(),
  self: () => self(),
  platform_admin: () => platformAdmin(),
  member_read: () => member('read'),
  member_edit: () => member('edit'),
  member_own: () => member('own'),
  hidden_member_read: () => hiddenMember('read'),
  hidden_member_edit: () => hiddenMember('edit'),
  m2m_or_member: (scope) => m2mOrMember(scope),
  hidden_m2m_or_member: () => hidden(m2mOrMember()),
  m2m_or_editor: (scope) => m2mOrMember(scope, 'edit'),
}

// The quickstart command is an operator and checks whether its credentials still work.
const roles = ['gateway', 'operator'] as const

type Metering = Pick<BackendApi, 'requireMetering' | 'requireConfigured'>

/** Checks the caller of a route that the gateway serves without another RPC. */
export function createCallersRpc(metering: Metering) {
  const callerService: Handlers<pb.CallerServiceServer> = {
    // The guard depends on the request, so the handler is built per call. Its body is empty: only
    // the guard can throw.
    checkCaller: {
      roles,
      unary: (call, deps) => checkFor(call.request, metering).unary(call, deps),
    },
  }
  return { callerService }
}

function checkFor(request: pb.CheckCallerRequest, metering: Metering) {
  const nothing = async () => ({})
  if (request.kind === 'm2m' && request.scope !== undefined) return rpc(m2m(request.scope), nothing)
  // The builder API checks whether the backend is available only after it has read the request, so
  // check only the configuration here.
  if (request.kind === 'actor') return rpc(metering.requireConfigured(actor()), nothing)
  const guard = Object.hasOwn(guards, request.kind) ? guards[request.kind] : undefined
  if (guard) {
    const scopedGuard = guard(request.scope)
    return rpc(request.metered ? metering.requireMetering(scopedGuard) : scopedGuard, nothing)
  }
  return rpc(serviceCaller(...roles), async (): Promise<pb.CheckCallerResponse> => {
    throw new DomainError(
      'REQUEST_INVALID',
      `kind must be m2m (with a scope), actor or one of: ${Object.keys(guards).join(', ')}`,
    )
  })
}
