import { Type } from 'typebox'
import type {
  OidcClient as ClientMessage,
  ManagedApp,
} from '../../../proto/gen/es/tollgate/identity/v1/management_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { del, get, post, put } from '../../http/endpoint.ts'
import { CorrelationId, IdempotencyHeader, addSchemas, named, ref } from '../../http/schemas.ts'
import {
  AppParams,
  Instant,
  Success,
  nullable,
  oneOf,
  pageQuery,
  required,
  text,
} from '../schemas.ts'
import { BillingSettings } from '../billing/settings.ts'
import { Domain, toDomain } from './domains.ts'

const url = '/api/v1/apps/:clientId'
const tags = ['apps']

const loginPolicies = ['members', 'domains', 'anyone'] as const
const strings = Type.Array(Type.String())
const success = Type.Boolean()

const OidcClient = named(
  Type.Object({
    clientId: Type.String(),
    redirectUris: strings,
    postLogoutRedirectUris: strings,
    allowedScopes: Type.String({ description: 'Separated by blanks.' }),
    grantTypes: strings,
    tokenEndpointAuthMethod: Type.String(),
    hasSecret: Type.Boolean(),
    secrets: Type.Array(
      Type.Object({
        createdAt: Instant('When it was made.'),
        expiresAt: nullable({
          format: 'date-time',
          description: 'End of its overlap; null if it is valid until it is replaced.',
        }),
      }),
      { description: 'The valid secrets, the oldest first, without their text.' },
    ),
    initiateLoginUri: nullable({}),
    deviceThirdPartyInitiateLogin: Type.Boolean(),
  }),
  'OidcClient',
)

const appFields = {
  clientId: Type.String(),
  name: Type.String(),
  status: Type.String(),
  billingPattern: Type.String({ description: 'per_user: each user has an account of its own.' }),
  allowedScopes: Type.String({
    description: 'Scopes of the public client, separated by blanks.',
  }),
  isTest: Type.Boolean({
    description: 'A test app has a clock that its members can move ahead.',
  }),
  links: Type.Object({ manifest: Type.String() }),
}
const managedFields = {
  id: Type.String({ description: 'The same as clientId.' }),
  role: Type.String({ description: 'Role of the session: owner, admin or viewer.' }),
  color: Type.String(),
  developerName: Type.String(),
  websiteUrl: Type.String(),
  dmzUrl: Type.String(),
  meteringMode: Type.String(),
  loginPolicy: oneOf(loginPolicies, 'The login policy of the app.'),
  loginDomains: strings,
  loginCredit: Type.Boolean({
    description: 'Whether users created by login get the included usage of the Starter plan.',
  }),
  createdAt: Instant('When the app was created.'),
  oidcClient: ref(OidcClient),
  m2mOidcClient: ref(OidcClient),
  domains: Type.Array(ref(Domain)),
  canEdit: Type.Boolean(),
  canDeleteApp: Type.Boolean(),
  canManageBilling: Type.Boolean(),
}
const AppDetail = named(
  Type.Object({
    ...appFields,
    ...Type.Partial(Type.Object(managedFields)).properties,
    billing: Type.Optional(ref(BillingSettings)),
  }),
  'App',
)
const UpdatedApp = named(Type.Object({ success, ...appFields, ...managedFields }), 'UpdatedApp')
const CreatedApp = named(
  Type.Object({
    id: Type.String({ description: 'The same as clientId.' }),
    clientId: Type.String(),
    status: Type.String(),
    isTest: Type.Boolean(),
    m2mClientId: Type.String(),
    m2mClientSecret: Type.String({ description: 'Shown only here.' }),
    correlation_id: CorrelationId,
  }),
  'CreatedApp',
)
const OwnApps = named(
  Type.Object({
    apps: Type.Array(
      Type.Object({
        id: Type.String(),
        clientId: Type.String(),
        name: Type.String(),
        role: Type.String({ description: 'Empty for a platform admin who is not a member.' }),
        isOwner: Type.Boolean(),
        isTest: Type.Boolean(),
        createdAt: Instant('When the app was created.'),
      }),
    ),
    nextCursor: Type.Optional(Type.String()),
  }),
  'OwnApps',
)
const CreateBody = Type.Object(
  {
    name: required('The display name of the app.'),
    developerName: Type.Optional(text('The developer of the app.')),
    websiteUrl: Type.Optional(text('The website of the app.')),
    isTest: Type.Optional(
      Type.Boolean({
        description:
          'A test app has a clock that its members can move ahead. This cannot be changed later.',
      }),
    ),
    isCustomer: Type.Optional(
      Type.Boolean({
        description:
          "Whether the app is a customer's. By default an app that a platform admin creates is platform-owned. Apps of all other accounts are customers' apps; false is refused with 403.",
      }),
    ),
  },
  { additionalProperties: false },
)

const uris = (description: string) =>
  Type.Optional(Type.Array(Type.String({ maxLength: 2_000 }), { maxItems: 20, description }))
const words = (description: string) =>
  Type.Optional(Type.Array(Type.String({ maxLength: 200 }), { maxItems: 50, description }))

// null and the empty string both clear the setting.
const clearable = (description: string) =>
  Type.Optional(
    Type.Unsafe<string | null>({ type: 'string', nullable: true, maxLength: 2_000, description }),
  )

const UpdateBody = Type.Object(
  {
    name: Type.Optional(required('The display name of the app.')),
    color: Type.Optional(text('#rrggbb')),
    developerName: clearable('The developer of the app.'),
    websiteUrl: clearable('The website of the app.'),
    dmzUrl: clearable("Address of the app's own remote signer; empty for the deployment's signer."),
    meteringMode: Type.Optional(oneOf(['stream', 'direct'], 'How events of tickets arrive.')),
    loginPolicy: Type.Optional(
      oneOf(
        loginPolicies,
        'The login policy: members only; domains, which also allows addresses in loginDomains; or anyone, which allows every account.',
      ),
    ),
    loginDomains: words('Domains of e-mail addresses, for the policy domains.'),
    loginCredit: Type.Optional(Type.Boolean()),
    redirectUris: uris('At most 20 addresses, compared as text.'),
    postLogoutRedirectUris: uris('At most 20 addresses, compared as text.'),
    allowedScopes: words('Scopes of the public client.'),
    grantTypes: words('Grant types of the public client.'),
    initiateLoginUri: clearable('Address at which a third party starts a login.'),
    deviceThirdPartyInitiateLogin: Type.Optional(Type.Boolean()),
  },
  { additionalProperties: false },
)

/** Routes of apps, for their owners. */
export function appRoutes(app: App): void {
  addSchemas(app, [OidcClient, AppDetail, UpdatedApp, CreatedApp, OwnApps])
  createApp(app)
  listApps(app)
  readApp(app)
  updateApp(app)
  deleteApp(app)
}

const createApp = post({
  url: '/api/v1/apps',
  guard: { kind: 'session' },
  operationId: 'createApp',
  summary: 'Create an app with both its clients',
  description:
    "Creates an app of the session's account, its public client (app_…) and its M2M client (m2m_…). The M2M client's secret is shown only here.",
  tags,
  headers: IdempotencyHeader,
  body: CreateBody,
  response: { 201: ref(CreatedApp) },
  handler: async ({ body, headers, core, correlationId }, reply) => {
    const created = await core.management.createOwnApp({
      ...body,
      idempotencyKey: headers['idempotency-key'],
    })
    return reply.code(201).send({ ...created, id: created.clientId, correlation_id: correlationId })
  },
})

const listApps = get({
  url: '/api/v1/apps',
  guard: { kind: 'session' },
  operationId: 'listApps',
  summary: 'List the apps of the session',
  description:
    'Lists the apps in which the account is a member, in pages. With all=true platform admins get every app.',
  tags,
  querystring: Type.Object({
    ...pageQuery,
    all: Type.Optional(oneOf(['true', 'false'], 'Every app; platform admins only.')),
  }),
  response: { 200: ref(OwnApps) },
  handler: async ({ query: { limit, cursor, all }, core }) => {
    const { apps, nextCursor } = await core.management.listOwnApps({
      cursor,
      limit: Number(limit ?? 0),
      all: all === 'true',
    })
    return { apps: apps.map((app) => ({ ...app, id: app.clientId })), nextCursor }
  },
})

const readApp = get({
  url,
  guard: { kind: 'm2m_or_member' },
  operationId: 'getApp',
  summary: "The app's metadata; to a session also its settings",
  description:
    "Returns name, status and scopes of the app. A member of the app also gets its settings, its settings by the platform, and the member's own permissions.",
  tags,
  params: AppParams,
  response: { 200: ref(AppDetail) },
  handler: async ({ params, core }) => {
    const managed = requireField((await core.management.getApp(params)).app, 'app')
    if (managed.role === '') return toApp(managed)
    const billing = requireField(
      (await core.billing.getBillingSettings(params)).settings,
      'settings',
    )
    return { ...toManaged(managed), billing }
  },
})

const updateApp = put({
  url,
  guard: { kind: 'member_edit' },
  operationId: 'updateApp',
  summary: 'Change the app and its public client',
  description:
    'Changes the settings in the body and keeps the others. null or an empty text clears a setting that may be empty.',
  tags,
  params: AppParams,
  body: UpdateBody,
  response: { 200: ref(UpdatedApp) },
  handler: async ({ params, body, core }) => {
    const changed = requireField(
      (await core.management.updateApp({ ...params, ...toChange(body) })).app,
      'app',
    )
    return { success: true, ...toManaged(changed) }
  },
})

const deleteApp = del({
  url,
  guard: { kind: 'member_own' },
  operationId: 'deleteApp',
  summary: 'Delete the app and its credentials; its records stay',
  description:
    'Deletes the app and ends its clients, keys, sessions and tokens. Its tickets, ledger and audit log stay.',
  tags,
  params: AppParams,
  response: { 200: ref(Success) },
  handler: async ({ params, core, correlationId }) => {
    await core.management.deleteApp(params)
    return { success: true, correlation_id: correlationId }
  },
})

interface UpdateFields {
  name?: string
  color?: string
  meteringMode?: string
  deviceThirdPartyInitiateLogin?: boolean
  loginPolicy?: string
  loginDomains?: string[]
  loginCredit?: boolean
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
    developerName: orEmpty(developerName),
    websiteUrl: orEmpty(websiteUrl),
    dmzUrl: orEmpty(dmzUrl),
    initiateLoginUri: orEmpty(initiateLoginUri),
    loginDomains: replacement(body.loginDomains),
    redirectUris: replacement(body.redirectUris),
    postLogoutRedirectUris: replacement(body.postLogoutRedirectUris),
    allowedScopes: replacement(body.allowedScopes),
    grantTypes: replacement(body.grantTypes),
  }
}

const orEmpty = (value: string | null | undefined): string | undefined =>
  value === null ? '' : value
const replacement = (values: string[] | undefined) =>
  values === undefined ? undefined : { values }

const toApp = (app: ManagedApp) => ({
  clientId: app.clientId,
  name: app.name,
  status: app.status,
  billingPattern: 'per_user',
  allowedScopes: requireField(app.oidcClient, 'oidcClient').allowedScopes.join(' '),
  isTest: app.isTest,
  links: { manifest: `/api/v1/apps/${app.clientId}/manifest` },
})

const toManaged = (app: ManagedApp) => ({
  ...app,
  ...toApp(app),
  id: app.clientId,
  oidcClient: toClient(requireField(app.oidcClient, 'oidcClient')),
  m2mOidcClient: toClient(requireField(app.m2mOidcClient, 'm2mOidcClient')),
  domains: app.domains.map(toDomain),
  canEdit: app.role !== 'viewer',
  canDeleteApp: app.role === 'owner',
  canManageBilling: app.role === 'owner',
})

const toClient = (client: ClientMessage) => ({
  ...client,
  allowedScopes: client.allowedScopes.join(' '),
  secrets: client.secrets.map(({ createdAt, expiresAt }) => ({
    createdAt,
    expiresAt: expiresAt ?? null,
  })),
})
