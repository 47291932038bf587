import { DomainError } from '../../../proto/errors.ts'
import type * as pb from '../../../proto/gen/ts-proto/tollgate/identity/v1/operators.ts'
import { parseCursor, parseLimit } from '../../platform/cursor.ts'
import { parseExternalUserId } from '../../platform/ids.ts'
import { operator, operatorActor, operatorWrite } from '../../rpc/callers.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import type { Clients } from '../apps/clients.ts'
import type { Management } from '../apps/management.ts'
import type { RedirectUrisService, RedirectUse } from '../apps/redirect-uris.ts'
import * as render from '../apps/render.ts'
import { parseRole } from '../input.ts'
import type { Invitations } from '../invitations/invitations.ts'
import { renderInvitation } from '../invitations/rpc.ts'
import { operatorEditor } from '../members/editor.ts'
import type { Members } from '../members/members.ts'
import { renderMember } from '../members/rpc.ts'
import { computeEffectiveBy, parseChange, parseStatus, renderUser } from '../users/rpc.ts'
import type { Users } from '../users/users.ts'

export interface OperatorsRpcDeps {
  readonly clients: Pick<Clients, 'appOf'>
  readonly users: Users
  readonly members: Members
  readonly invitations: Pick<Invitations, 'list' | 'withdraw'>
  readonly redirectUris: RedirectUrisService
  readonly management: Pick<Management, 'view' | 'rotateSecretAs'>
  readonly deployment: render.Deployment
  /** Maximum time that other processes' caches may still allow what has ended. */
  readonly revocationBoundSeconds: number
}

/**
 * RPCs with which operators manage any app. They use the same services, and so the same rules, as
 * the RPCs for the app's members.
 */
export function createOperatorsRpc(deps: OperatorsRpcDeps) {
  const operatorAppService: Handlers<pb.OperatorAppServiceServer> = {
    ...createAppHandlers(deps),
    ...createUserHandlers(deps),
    ...createRedirectUriHandlers(deps),
    ...createMemberHandlers(deps),
  }
  return { operatorAppService }
}

function createAppHandlers({ clients, management, deployment }: OperatorsRpcDeps) {
  return {
    readApp: rpc(operator(), async ({ clientId }: pb.ReadAppRequest) => {
      const appId = await clients.appOf(clientId)
      return { app: render.app(await management.view({ appId }), { ...deployment, role: '' }) }
    }),
    rotateAppSecret: rpc(
      operatorWrite(),
      async ({ clientId, revokeOld, keepKeys }: pb.RotateAppSecretRequest, _, context) => {
        const editor = operatorEditor(await clients.appOf(clientId), context)
        return management.rotateSecretAs(editor, { revokeOld, keepKeys })
      },
    ),
  }
}

function createUserHandlers({ clients, users, revocationBoundSeconds }: OperatorsRpcDeps) {
  return {
    listAppUsers: rpc(operator(), async (request: pb.ListAppUsersRequest) => {
      const { items, nextCursor } = await users.list({
        app: await clients.appOf(request.clientId),
        status: request.status === undefined ? null : parseStatus(request.status),
        externalUserId: null,
        after: parseCursor(request.cursor),
        limit: parseLimit(request.limit),
      })
      return { users: items.map((user) => renderUser(user, request.clientId)), nextCursor }
    }),
    getAppUser: rpc(operator(), async ({ clientId, externalUserId }: pb.GetAppUserRequest) => {
      const user = await users.get(await clients.appOf(clientId), externalUserId)
      return { user: renderUser(user, clientId) }
    }),
    putAppUser: rpc(operatorWrite(), async (request: pb.PutAppUserRequest, _, context) => {
      const app = await clients.appOf(request.clientId)
      const change = parseChange({ ...request, status: undefined })
      const { user, created } = await users.upsert(app, change, operatorActor(context))
      return { user: renderUser(user, request.clientId), created }
    }),
    deactivateAppUser: rpc(
      operatorWrite(),
      async ({ clientId, externalUserId }: pb.DeactivateAppUserRequest, _, context) => {
        const app = await clients.appOf(clientId)
        const external = parseExternalUserId(externalUserId)
        const user = await users.deactivate(app, external, operatorActor(context))
        const effectiveBy = computeEffectiveBy(user, revocationBoundSeconds)
        return { user: renderUser(user, clientId), effectiveBy }
      },
    ),
    activateAppUser: rpc(
      operatorWrite(),
      async ({ clientId, externalUserId }: pb.ActivateAppUserRequest, _, context) => {
        const app = await clients.appOf(clientId)
        const external = parseExternalUserId(externalUserId)
        const change = { externalUserId: external, status: 'active' } as const
        return {
          user: renderUser(await users.update(app, change, operatorActor(context)), clientId),
        }
      },
    ),
  }
}

function createRedirectUriHandlers({ clients, redirectUris }: OperatorsRpcDeps) {
  const parse = ({ use, uri }: pb.AddRedirectUriRequest) => ({ use: parseUse(use), uri })
  return {
    listRedirectUris: rpc(operator(), async ({ clientId }: pb.ListRedirectUrisRequest) => ({
      redirectUris: await redirectUris.list(await clients.appOf(clientId)),
    })),
    addRedirectUri: rpc(operatorWrite(), async (request: pb.AddRedirectUriRequest, _, context) => {
      const app = await clients.appOf(request.clientId)
      const actor = operatorActor(context)
      return { redirectUris: await redirectUris.add(app, parse(request), actor) }
    }),
    removeRedirectUri: rpc(
      operatorWrite(),
      async (request: pb.RemoveRedirectUriRequest, _, context) => {
        const app = await clients.appOf(request.clientId)
        const actor = operatorActor(context)
        return { redirectUris: await redirectUris.remove(app, parse(request), actor) }
      },
    ),
  }
}

function createMemberHandlers({ clients, members, invitations }: OperatorsRpcDeps) {
  return {
    listAppMembers: rpc(operator(), async ({ clientId }: pb.ListAppMembersRequest) => {
      const app = await clients.appOf(clientId)
      return {
        members: (await members.list(app)).map(renderMember),
        invitations: (await invitations.list(app)).map(renderInvitation),
      }
    }),
    putAppMember: rpc(operatorWrite(), async (request: pb.PutAppMemberRequest, _, context) => {
      const editor = operatorEditor(await clients.appOf(request.clientId), context)
      const change = { email: request.email, role: parseRole(request.role) }
      const written = await members.put(editor, change)
      return 'member' in written
        ? { member: renderMember(written.member), invitation: undefined }
        : { member: undefined, invitation: renderInvitation(written.invitation) }
    }),
    removeAppMember: rpc(
      operatorWrite(),
      async ({ clientId, accountId }: pb.RemoveAppMemberRequest, _, context) => {
        await members.remove(operatorEditor(await clients.appOf(clientId), context), accountId)
        return {}
      },
    ),
    withdrawAppInvitation: rpc(
      operatorWrite(),
      async ({ clientId, invitationId }: pb.WithdrawAppInvitationRequest, _, context) => {
        const editor = operatorEditor(await clients.appOf(clientId), context)
        await invitations.withdraw(editor, invitationId)
        return {}
      },
    ),
  }
}

function parseUse(text: string): RedirectUse {
  if (text === 'login' || text === 'logout') return text
  throw new DomainError('REQUEST_INVALID', 'use must be one of: login, logout')
}
