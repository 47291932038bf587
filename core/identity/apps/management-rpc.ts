import { DomainError } from '../../../proto/errors.ts'
import type * as pb from '../../../proto/gen/ts-proto/tollgate/identity/v1/management.ts'
import { m2mOrMember, member, serviceCaller, session } from '../../rpc/callers.ts'
import { parseCursor, parseLimit } from '../../platform/cursor.ts'
import { parseIdempotencyKey } from '../../platform/idempotency.ts'
import { isClientId } from '../../platform/ids.ts'
import type { UsdMicros } from '../../lib/money.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import type { Apps } from './apps.ts'
import type { AppView, Management } from './management.ts'
import * as render from './render.ts'
import { parseAppChange, parseClientChange } from './change.ts'
import { parseName, parseOptionalName, parseOrigin, parseRole, parseWebUrl } from './values.ts'
import type { Members } from '../members/members.ts'

export interface ManagementRpcDeps {
  readonly apps: Apps
  readonly management: Management
  readonly members: Members
  readonly starterUsdMicros: UsdMicros
  readonly routing: Routing
}

/** Addresses that an app's routing is made of. */
export interface Routing {
  readonly publicUrl: string
  readonly issuer: string
  readonly defaultDmzUrl: string
}

export function createManagementRpc({
  apps,
  management,
  members,
  starterUsdMicros,
  routing,
}: ManagementRpcDeps) {
  const appHandlers = {
    createOwnApp: rpc(
      session(),
      async (request: pb.CreateOwnAppRequest, { accountId }, { correlationId }) => {
        const created = await apps.create({
          name: parseName(request.name),
          included: starterUsdMicros,
          madeBy: { accountId, correlationId },
          developerName: parseOptionalName(request.developerName ?? '', 'developerName'),
          websiteUrl: parseWebUrl(request.websiteUrl ?? '', 'websiteUrl'),
        })
        const { clientId, m2mClientId, m2mClientSecret } = created
        return { clientId, m2mClientId, m2mClientSecret, status: 'approved' }
      },
    ),
    listOwnApps: rpc(session(), async (request: pb.ListOwnAppsRequest, caller) => {
      const { items, nextCursor } = await management.listOwn(caller, {
        all: request.all,
        after: parseCursor(request.cursor),
        limit: parseLimit(request.limit),
      })
      return { apps: items.map(render.ownApp), nextCursor }
    }),
    getApp: rpc(m2mOrMember(), async (_: pb.GetAppRequest, caller) => ({
      app: rendered(await management.view(caller), caller.kind === 'member' ? caller.role : ''),
    })),
    updateApp: rpc(member('edit'), async (request: pb.UpdateAppRequest, caller, context) => {
      const change = { app: parseAppChange(request), client: parseClientChange(request) }
      return { app: rendered(await management.update(caller, change, context), caller.role) }
    }),
    deleteApp: rpc(member('own'), async (_: pb.DeleteAppRequest, caller, context) => {
      await management.remove(caller, context)
      return {}
    }),
    getRouting: rpc(m2mOrMember(), async (_: pb.GetRoutingRequest, caller) => {
      const { app } = await management.view(caller)
      return {
        dmzUrl: app.dmz_url || routing.defaultDmzUrl,
        meteringMode: app.metering_mode,
        jwksUrl: `${routing.issuer}/jwks`,
        webhookUrl: `${routing.publicUrl}/webhooks/remote-signer`,
      }
    }),
  }

  const memberHandlers = {
    listMembers: rpc(member('read'), async (_: pb.ListMembersRequest, caller) => ({
      members: (await members.list(caller)).map(render.member),
    })),
    putMember: rpc(member('edit'), async (request: pb.PutMemberRequest, caller, context) => {
      const change = { email: request.email, role: parseRole(request.role) }
      const { member: written, created } = await members.put(caller, change, context)
      return { member: render.member(written), created }
    }),
    removeMember: rpc(member('edit'), async (request: pb.RemoveMemberRequest, caller, context) => {
      await members.remove(caller, request.accountId, context)
      return {}
    }),
  }

  const settingHandlers = {
    rotateClientSecret: rpc(
      member('edit'),
      async (request: pb.RotateClientSecretRequest, caller, context) =>
        management.rotateSecret(
          caller,
          {
            revokeOld: request.revokeOld,
            idempotencyKey: parseIdempotencyKey(request.idempotencyKey),
          },
          context,
        ),
    ),
    listDomains: rpc(member('read'), async (_: pb.ListDomainsRequest, caller) => ({
      domains: (await management.listDomains(caller)).map(render.domain),
    })),
    addDomain: rpc(member('edit'), async (request: pb.AddDomainRequest, caller, context) => ({
      domain: render.domain(
        await management.addDomain(caller, parseOrigin(request.origin), context),
      ),
    })),
    removeDomain: rpc(member('edit'), async (request: pb.RemoveDomainRequest, caller, context) => {
      await management.removeDomain(caller, request.id, context)
      return {}
    }),
    checkOrigin: rpc(serviceCaller(), async (request: pb.CheckOriginRequest) => {
      const { clientId, origin } = request
      if (clientId !== undefined && !isClientId(clientId)) return { allowed: false }
      return { allowed: await management.knowsOrigin(origin, clientId ?? null) }
    }),
    listAuditEntries: rpc(member('edit'), async (request: pb.ListAuditEntriesRequest, caller) => {
      const { items, nextCursor } = await management.listAudit(caller, {
        action: parseAction(request.action),
        after: parseCursor(request.cursor),
        limit: parseLimit(request.limit),
      })
      return { entries: items.map(render.auditEntry), nextCursor }
    }),
  }

  // An app without an address of its own is served by the deployment's signer.
  const rendered = (view: AppView, role: string) =>
    render.app(view, { role, defaultDmzUrl: routing.defaultDmzUrl })

  const managementService: Handlers<pb.ManagementServiceServer> = {
    ...appHandlers,
    ...memberHandlers,
    ...settingHandlers,
  }
  return { managementService }
}

function parseAction(text: string | undefined): string | null {
  if (text === undefined) return null
  if (!/^[a-z_]{1,64}$/.test(text))
    throw new DomainError('REQUEST_INVALID', 'action must be the name of an action, in lower case')
  return text
}
