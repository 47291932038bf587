import { Type } from 'typebox'
import type {
  Domain as DomainMessage,
  ManagedApp,
  OidcClient as ClientMessage,
} from '../../../proto/gen/es/tollgate/identity/v1/management_pb.ts'
import { present } from '../../core/client.ts'
import type { App } from '../../http/listener.ts'
import { AppDetail, CreatedApp, OwnApps, Success, UpdatedApp } from './schemas.ts'
import { AppParams, pageQuery, required, text } from '../request-schemas.ts'
import { route } from '../../http/route.ts'
import { oneOf, ref } from '../schemas.ts'

const url = '/api/v1/apps/:clientId'
const tags = ['apps']

const CreateBody = Type.Object(
  {
    name: required('How people know the app.'),
    developerName: Type.Optional(text('Who makes it.')),
    websiteUrl: Type.Optional(text('Its page.')),
  },
  { additionalProperties: false },
)

const uris = (description: string) =>
  Type.Optional(Type.Array(Type.String({ maxLength: 2_000 }), { maxItems: 20, description }))
const words = (description: string) =>
  Type.Optional(Type.Array(Type.String({ maxLength: 200 }), { maxItems: 50, description }))

// null and the empty string both clear what may be empty.
const clearable = (description: string) =>
  Type.Optional(
    Type.Unsafe<string | null>({ type: 'string', nullable: true, maxLength: 2_000, description }),
  )

const UpdateBody = Type.Object(
  {
    name: Type.Optional(required('How people know the app.')),
    color: Type.Optional(text('#rrggbb')),
    developerName: clearable('Who makes it.'),
    websiteUrl: clearable('Its page.'),
    dmzUrl: clearable("The app's own remote signer; empty means the deployment's."),
    meteringMode: Type.Optional(oneOf(['stream', 'direct'], 'How tickets reach us.')),
    redirectUris: uris('At most 20 addresses, compared as text.'),
    postLogoutRedirectUris: uris('At most 20 addresses, compared as text.'),
    allowedScopes: words('Scopes of the public client.'),
    grantTypes: words('Grant types of the public client.'),
    initiateLoginUri: clearable('Where a third party starts a login.'),
    deviceThirdPartyInitiateLogin: Type.Optional(Type.Boolean()),
  },
  { additionalProperties: false },
)

/** Apps, by the people who own them (facts 4.2 to 4.4). */
export function appRoutes(app: App): void {
  app.post(
    '/api/v1/apps',
    route(
      { guard: { kind: 'session' } },
      {
        summary: 'Create an app with both its clients',
        tags,
        body: CreateBody,
        response: { 201: ref(CreatedApp) },
      },
    ),
    async ({ body, core, correlationId }, reply) => {
      const { clientId, status, m2mClientId, m2mClientSecret } =
        await core.management.createApp(body)
      return reply.code(201).send({
        id: clientId,
        clientId,
        status,
        m2mClientId,
        m2mClientSecret,
        correlation_id: correlationId,
      })
    },
  )

  app.get(
    '/api/v1/apps',
    route(
      { guard: { kind: 'session' } },
      {
        summary: 'List the apps that the session may see',
        tags,
        querystring: Type.Object({
          ...pageQuery,
          all: Type.Optional(oneOf(['true', 'false'], 'Every app; platform admins only.')),
        }),
        response: { 200: ref(OwnApps) },
      },
    ),
    async ({ query: { limit, cursor, all }, core }) => {
      const { apps, nextCursor } = await core.management.listApps({
        cursor,
        limit: Number(limit ?? 0),
        all: all === 'true',
      })
      const shown = apps.map(({ clientId, name, role, isOwner, createdAt }) => ({
        id: clientId,
        clientId,
        name,
        role,
        isOwner,
        createdAt,
      }))
      return { apps: shown, ...(nextCursor === undefined ? {} : { nextCursor }) }
    },
  )

  app.get(
    url,
    route(
      { guard: { kind: 'm2m_or_member' } },
      {
        summary: "The app's metadata; to a session also its settings",
        tags,
        params: AppParams,
        response: { 200: ref(AppDetail) },
      },
    ),
    async ({ params, core }) => {
      const found = present((await core.management.getApp(params)).app, 'app')
      return found.role === '' ? toApp(found) : { ...toApp(found), ...toManaged(found) }
    },
  )

  app.put(
    url,
    route(
      { guard: { kind: 'member_edit' } },
      {
        summary: 'Change the app and its public client',
        tags,
        params: AppParams,
        body: UpdateBody,
        response: { 200: ref(UpdatedApp) },
      },
    ),
    async ({ params, body, core }) => {
      const changed = present(
        (await core.management.updateApp({ ...params, ...toChange(body) })).app,
        'app',
      )
      return { success: true, ...toApp(changed), ...toManaged(changed) }
    },
  )

  app.delete(
    url,
    route(
      { guard: { kind: 'member_own' } },
      {
        summary: 'End the app and every credential of it; its records stay',
        tags,
        params: AppParams,
        response: { 200: ref(Success) },
      },
    ),
    async ({ params, core, correlationId }) => {
      await core.management.deleteApp(params)
      return { success: true, correlation_id: correlationId }
    },
  )
}

interface UpdateFields {
  name?: string
  color?: string
  meteringMode?: string
  deviceThirdPartyInitiateLogin?: boolean
  developerName?: string | null
  websiteUrl?: string | null
  dmzUrl?: string | null
  initiateLoginUri?: string | null
  redirectUris?: string[]
  postLogoutRedirectUris?: string[]
  allowedScopes?: string[]
  grantTypes?: string[]
}

function toChange({ developerName, websiteUrl, dmzUrl, initiateLoginUri, ...body }: UpdateFields) {
  return {
    ...body,
    developerName: cleared(developerName),
    websiteUrl: cleared(websiteUrl),
    dmzUrl: cleared(dmzUrl),
    initiateLoginUri: cleared(initiateLoginUri),
    redirectUris: listed(body.redirectUris),
    postLogoutRedirectUris: listed(body.postLogoutRedirectUris),
    allowedScopes: listed(body.allowedScopes),
    grantTypes: listed(body.grantTypes),
  }
}

const cleared = (value: string | null | undefined): string | undefined =>
  value === null ? '' : value
const listed = (values: string[] | undefined) => (values === undefined ? undefined : { values })

const toApp = (app: ManagedApp) => ({
  clientId: app.clientId,
  name: app.name,
  status: app.status,
  billingPattern: 'per_user',
  allowedScopes: present(app.oidcClient, 'oidcClient').allowedScopes.join(' '),
  links: { manifest: `/api/v1/apps/${app.clientId}/manifest` },
})

const toManaged = (app: ManagedApp) => ({
  id: app.clientId,
  role: app.role,
  color: app.color,
  developerName: app.developerName,
  websiteUrl: app.websiteUrl,
  dmzUrl: app.dmzUrl,
  meteringMode: app.meteringMode,
  createdAt: app.createdAt,
  oidcClient: toClient(present(app.oidcClient, 'oidcClient')),
  m2mOidcClient: toClient(present(app.m2mOidcClient, 'm2mOidcClient')),
  domains: app.domains.map(toDomain),
  canEdit: app.role !== 'viewer',
  canDeleteApp: app.role === 'owner',
  canManageBilling: app.role === 'owner',
})

const toClient = (client: ClientMessage) => ({
  clientId: client.clientId,
  redirectUris: client.redirectUris,
  postLogoutRedirectUris: client.postLogoutRedirectUris,
  allowedScopes: client.allowedScopes.join(' '),
  grantTypes: client.grantTypes,
  tokenEndpointAuthMethod: client.tokenEndpointAuthMethod,
  hasSecret: client.hasSecret,
  initiateLoginUri: client.initiateLoginUri ?? null,
  deviceThirdPartyInitiateLogin: client.deviceThirdPartyInitiateLogin,
})

export const toDomain = ({ id, origin, createdAt }: DomainMessage) => ({
  id,
  domain: origin,
  origin,
  createdAt,
})
