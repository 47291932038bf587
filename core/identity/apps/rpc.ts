import { DomainError } from '../../../proto/errors.ts'
import type * as identity from '../../../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import type * as pb from '../../../proto/gen/ts-proto/tollgate/identity/v1/management.ts'
import { type UsdMicros, parseInteger, usdMicros } from '../../lib/money.ts'
import { isReadable } from '../../lib/text/readable.ts'
import type { AppCreation } from '../config.ts'
import { parseCursor, parseLimit } from '../../shared/cursor.ts'
import { parseSpan, renderEntry } from '../../shared/audit-log/render.ts'
import { type Idempotency, parseIdempotencyKey } from '../../shared/idempotency.ts'
import { isClientId } from '../../shared/ids.ts'
import { parseReadable } from '../../shared/text.ts'
import {
  appOperator,
  appOperatorWrite,
  gatewayCaller,
  m2mOrMember,
  member,
  operator,
  operatorWrite,
  orOperator,
  platformAdmin,
  session,
} from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import {
  parseColor,
  parseEmail,
  parseGrantTypes,
  parseInitiateLoginUri,
  parseLoginDomains,
  parseLoginPolicy,
  parseMeteringMode,
  parseName,
  parseOptionalName,
  parseOrigin,
  parseRedirectUris,
  parseScopes,
  parseWebUrl,
} from '../input.ts'
import type { Apps } from './apps.ts'
import type { Clients } from './clients.ts'
import type { AppChange, AppView, ClientChange, Management } from './management.ts'
import * as render from './render.ts'

/** URLs used in an app's routing. */
export interface Routing extends render.Deployment {
  readonly publicUrl: string
  readonly issuer: string
}

const searchMax = 200

export interface AppsRpcDeps {
  readonly apps: Apps
  readonly clients: Pick<Clients, 'findPublic'>
  readonly starterUsdMicros: UsdMicros
}

/** RPCs about apps for operators and our own processes. */
export function createAppsRpc({ apps, clients, starterUsdMicros }: AppsRpcDeps) {
  const appService: Handlers<identity.AppServiceServer> = {
    createApp: rpc(operatorWrite(), async (request: identity.CreateAppRequest) => {
      const created = await apps.create({
        name: parseName(request.name),
        included:
          request.starterUsdMicros === undefined
            ? starterUsdMicros
            : parseMicros(request.starterUsdMicros),
        ...parseOwner(request),
        isTest: request.isTest ?? false,
        isPlatformOwned: !request.isCustomer,
      })
      return {
        clientId: created.clientId,
        name: created.name,
        m2mClientId: created.m2mClientId,
        m2mClientSecret: created.m2mClientSecret,
        ownerEmail: created.ownerEmail,
        ownerPassword: created.ownerPassword,
        createdAt: created.createdAt.toISOString(),
        isTest: created.isTest,
        isPlatformOwned: created.isPlatformOwned,
      }
    }),
    findApp: rpc(gatewayCaller(), async ({ clientId }: identity.FindAppRequest) => {
      if (!(await clients.findPublic(clientId)))
        throw new DomainError('NOT_FOUND', 'there is no such app')
      return { clientId }
    }),
    listApps: rpc(
      orOperator(platformAdmin(), operator()),
      async ({ cursor, limit, search }: identity.ListAppsRequest) => {
        const { items, nextCursor } = await apps.list({
          after: parseCursor(cursor),
          limit: parseLimit(limit),
          search: parseSearch(search),
        })
        return {
          nextCursor,
          apps: items.map((app) => ({
            clientId: app.clientId,
            name: app.name,
            m2mClientId: app.m2mClientId,
            createdAt: app.createdAt.toISOString(),
            isTest: app.isTest,
            isPlatformApp: app.isPlatformApp,
            ownerEmails: app.ownerEmails,
            status: app.status,
          })),
        }
      },
    ),
  }
  return { appService }
}

function parseSearch(text: string | undefined): string | null {
  if (text === undefined || text.trim() === '') return null
  return parseReadable(text.trim(), { field: 'search', max: searchMax })
}

export interface ManagementDeps {
  readonly apps: Apps
  readonly management: Management
  readonly idempotency: Pick<Idempotency, 'once'>
  readonly starterUsdMicros: UsdMicros
  /** Who may create apps: platform admins, or every account. */
  readonly appCreation: AppCreation
  readonly routing: Routing
}

/** The RPCs of ManagementService for an app and its settings. */
export const createManagementHandlers = (deps: ManagementDeps) => ({
  ...createOwnAppHandlers(deps),
  ...createSettingHandlers(deps.management),
})

function createOwnAppHandlers(deps: ManagementDeps) {
  const { apps, management, idempotency, starterUsdMicros, appCreation, routing } = deps
  // An app without its own signer URL uses the deployment's signer.
  const renderView = (view: AppView, role: string) => render.app(view, { role, ...routing })

  return {
    createOwnApp: rpc(
      session(),
      async (
        request: pb.CreateOwnAppRequest,
        { accountId, isPlatformAdmin },
        { correlationId },
      ) => {
        if (appCreation === 'admins' && !isPlatformAdmin)
          throw new DomainError(
            'EDIT_FORBIDDEN',
            'only platform admins can create apps here (APP_CREATION); ask a platform admin or the operator',
          )
        if (request.isCustomer === false && !isPlatformAdmin)
          throw new DomainError(
            'EDIT_FORBIDDEN',
            'only platform admins can create platform-owned apps; leave isCustomer out',
          )
        const { idempotencyKey, ...body } = request
        const key = parseIdempotencyKey(idempotencyKey)
        const app = {
          name: parseName(request.name),
          included: starterUsdMicros,
          createdBy: { accountId, correlationId },
          developerName: parseOptionalName(request.developerName ?? '', 'developerName'),
          websiteUrl: parseWebUrl(request.websiteUrl ?? '', 'websiteUrl'),
          isTest: request.isTest ?? false,
          isPlatformOwned: isPlatformAdmin && !request.isCustomer,
        }
        const repeatable = { scope: `${accountId}:apps`, key, body, holdsSecret: true }
        const created = await apps.create(app, (work) => idempotency.once(repeatable, work))
        const { clientId, m2mClientId, m2mClientSecret, isTest } = created
        return { clientId, m2mClientId, m2mClientSecret, status: 'approved', isTest }
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
    getApp: rpc(orOperator(m2mOrMember(), appOperator()), async (_: pb.GetAppRequest, caller) => ({
      app: renderView(await management.view(caller), caller.kind === 'member' ? caller.role : ''),
    })),
    updateApp: rpc(member('edit'), async (request: pb.UpdateAppRequest, caller, context) => {
      const change = { app: parseAppChange(request), client: parseClientChange(request) }
      return { app: renderView(await management.update(caller, change, context), caller.role) }
    }),
    deleteApp: rpc(member('own'), async (_: pb.DeleteAppRequest, caller, context) => {
      await management.remove(caller, context)
      return {}
    }),
    getRouting: rpc(m2mOrMember(), async (_: pb.GetRoutingRequest, caller) => {
      const { app } = await management.view(caller)
      return {
        ...render.toSigner(app, routing),
        jwksUrl: `${routing.issuer}/jwks`,
        webhookUrl: `${routing.publicUrl}/webhooks/remote-signer`,
      }
    }),
  }
}

function createSettingHandlers(management: Management) {
  return {
    rotateClientSecret: rpc(
      orOperator(member('edit'), appOperatorWrite()),
      async (request: pb.RotateClientSecretRequest, caller, context) => ({
        ...(await management.rotateSecret(
          caller,
          {
            revokeOld: request.revokeOld,
            keepKeys: request.keepKeys,
            idempotencyKey: parseIdempotencyKey(request.idempotencyKey),
          },
          context,
        )),
      }),
    ),
    listDomains: rpc(member('read'), async (_: pb.ListDomainsRequest, caller) => ({
      domains: (await management.listDomains(caller)).map(render.domain),
    })),
    createDomain: rpc(member('edit'), async (request: pb.CreateDomainRequest, caller, context) => ({
      domain: render.domain(
        await management.addDomain(caller, parseOrigin(request.origin), context),
      ),
    })),
    deleteDomain: rpc(member('edit'), async (request: pb.DeleteDomainRequest, caller, context) => {
      await management.removeDomain(caller, request.id, context)
      return {}
    }),
    checkOrigin: rpc(gatewayCaller(), async (request: pb.CheckOriginRequest) => {
      const { clientId, origin } = request
      if (clientId !== undefined && !isClientId(clientId)) return { allowed: false }
      return { allowed: await management.knowsOrigin(origin, clientId ?? null) }
    }),
    listAuditEntries: rpc(member('edit'), async (request: pb.ListAuditEntriesRequest, caller) => {
      const { items, nextCursor } = await management.listAudit(caller, {
        action: parseAction(request.action),
        actor: parseActor(request.actor),
        ...parseSpan(request),
        after: parseCursor(request.cursor),
        limit: parseLimit(request.limit),
        isOldestFirst: request.oldestFirst,
      })
      return { entries: items.map(renderEntry), nextCursor }
    }),
  }
}

function parseAction(text: string | undefined): string | null {
  if (text === undefined) return null
  if (!/^[a-z_]{1,64}$/.test(text))
    throw new DomainError('REQUEST_INVALID', 'action must be the name of an action, in lower case')
  return text
}

/** An actor is an id or a short name, such as "payment processor". */
function parseActor(text: string | undefined): string | null {
  if (text === undefined) return null
  if (!isReadable(text) || text === '' || text.length > 200)
    throw new DomainError('REQUEST_INVALID', 'actor must be the actor of an entry')
  return text
}

/**
 * Parses the app fields that the request sets. Throws REQUEST_INVALID for the first invalid field.
 */
function parseAppChange(request: pb.UpdateAppRequest): AppChange {
  const { name, color, developerName, websiteUrl, dmzUrl, meteringMode } = request
  return {
    ...parseLoginChange(request),
    ...(name === undefined ? {} : { name }),
    ...(color === undefined ? {} : { color: parseColor(color) }),
    ...(developerName === undefined
      ? {}
      : { developer_name: parseOptionalName(developerName, 'developerName') }),
    ...(websiteUrl === undefined ? {} : { website_url: parseWebUrl(websiteUrl, 'websiteUrl') }),
    ...(dmzUrl === undefined ? {} : { dmz_url: parseWebUrl(dmzUrl, 'dmzUrl') }),
    ...(meteringMode === undefined
      ? {}
      : { signer_metering_mode: parseMeteringMode(meteringMode) }),
  }
}

/** Parses the login settings that the request sets. */
const parseLoginChange = ({
  loginPolicy,
  loginDomains,
  loginCredit,
}: pb.UpdateAppRequest): AppChange => ({
  ...(loginPolicy === undefined ? {} : { login_policy: parseLoginPolicy(loginPolicy) }),
  ...(loginDomains === undefined ? {} : { login_domains: parseLoginDomains(loginDomains.values) }),
  ...(loginCredit === undefined ? {} : { login_credit: loginCredit }),
})

/** Parses the public client's fields that the request sets. */
function parseClientChange(request: pb.UpdateAppRequest): ClientChange {
  const {
    redirectUris,
    postLogoutRedirectUris,
    allowedScopes,
    grantTypes,
    initiateLoginUri,
    deviceThirdPartyInitiateLogin,
  } = request
  return {
    ...(redirectUris === undefined
      ? {}
      : { redirect_uris: parseRedirectUris(redirectUris.values, 'redirectUris') }),
    ...(postLogoutRedirectUris === undefined
      ? {}
      : {
          post_logout_redirect_uris: parseRedirectUris(
            postLogoutRedirectUris.values,
            'postLogoutRedirectUris',
          ),
        }),
    ...(allowedScopes === undefined ? {} : { scopes: parseScopes(allowedScopes.values) }),
    ...(grantTypes === undefined ? {} : { grant_types: parseGrantTypes(grantTypes.values) }),
    ...(initiateLoginUri === undefined
      ? {}
      : { initiate_login_uri: parseInitiateLoginUri(initiateLoginUri) }),
    ...(deviceThirdPartyInitiateLogin === undefined
      ? {}
      : { device_third_party_initiate_login: deviceThirdPartyInitiateLogin }),
  }
}

function parseMicros(text: string): UsdMicros {
  const value = parseInteger(text)
  if (value === null || value > 10n ** 15n) {
    throw new DomainError(
      'REQUEST_INVALID',
      'starterUsdMicros must be a whole number of USD micros, at most 10^15',
    )
  }
  return usdMicros(value)
}

function parseOwner(request: identity.CreateAppRequest) {
  if (request.ownerEmail === undefined) return {}
  const { ownerPassword } = request
  if (ownerPassword !== undefined && (ownerPassword.length < 12 || ownerPassword.length > 200)) {
    throw new DomainError('REQUEST_INVALID', 'ownerPassword must have 12 to 200 characters')
  }
  const password = ownerPassword === undefined ? {} : { password: ownerPassword }
  return { owner: { email: parseEmail(request.ownerEmail), ...password } }
}
