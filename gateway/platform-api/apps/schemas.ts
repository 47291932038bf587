import { Type } from 'typebox'
import { CorrelationId, Instant, named, nullable, ref } from '../schemas.ts'

/** The public JSON of what an app's people do with it; listed beside the schemas of what its backend does. */

const strings = Type.Array(Type.String())
const keyPair = {
  pipeline: Type.String(),
  modelId: Type.String({ description: '* is every model.' }),
}
const success = Type.Boolean()

const Domain = named(
  Type.Object({
    id: Type.String(),
    domain: Type.String({ description: 'The same as origin.' }),
    origin: Type.String({ description: 'As browsers send it.' }),
    createdAt: Instant('When it was added.'),
  }),
  'Domain',
)
export const DomainList = named(Type.Object({ domains: Type.Array(ref(Domain)) }), 'DomainList')
export const AddedDomain = Domain

const OidcClient = named(
  Type.Object({
    clientId: Type.String(),
    redirectUris: strings,
    postLogoutRedirectUris: strings,
    allowedScopes: Type.String({ description: 'Separated by blanks.' }),
    grantTypes: strings,
    tokenEndpointAuthMethod: Type.String(),
    hasSecret: Type.Boolean(),
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
  allowedScopes: Type.String({ description: 'Of the public client, separated by blanks.' }),
  links: Type.Object({ manifest: Type.String() }),
}
const managedFields = {
  id: Type.String({ description: 'The same as clientId.' }),
  role: Type.String({ description: 'Of the session: owner, admin or viewer.' }),
  color: Type.String(),
  developerName: Type.String(),
  websiteUrl: Type.String(),
  dmzUrl: Type.String(),
  meteringMode: Type.String(),
  createdAt: Instant('When the app was made.'),
  oidcClient: ref(OidcClient),
  m2mOidcClient: ref(OidcClient),
  domains: Type.Array(ref(Domain)),
  canEdit: Type.Boolean(),
  canDeleteApp: Type.Boolean(),
  canManageBilling: Type.Boolean(),
}
export const AppDetail = named(
  Type.Object({ ...appFields, ...Type.Partial(Type.Object(managedFields)).properties }),
  'App',
)
export const UpdatedApp = named(
  Type.Object({ success, ...appFields, ...managedFields }),
  'UpdatedApp',
)
export const CreatedApp = named(
  Type.Object({
    id: Type.String({ description: 'The same as clientId.' }),
    clientId: Type.String(),
    status: Type.String(),
    m2mClientId: Type.String(),
    m2mClientSecret: Type.String({ description: 'Shown only here.' }),
    correlation_id: CorrelationId,
  }),
  'CreatedApp',
)
export const OwnApps = named(
  Type.Object({
    apps: Type.Array(
      Type.Object({
        id: Type.String(),
        clientId: Type.String(),
        name: Type.String(),
        role: Type.String({ description: 'Empty for a platform admin who is no member.' }),
        isOwner: Type.Boolean(),
        createdAt: Instant('When the app was made.'),
      }),
    ),
    nextCursor: Type.Optional(Type.String()),
  }),
  'OwnApps',
)
export const Success = named(Type.Object({ success, correlation_id: CorrelationId }), 'Success')

const memberFields = {
  accountId: Type.String(),
  email: Type.String(),
  name: Type.String(),
  role: Type.String(),
  createdAt: Instant('Since when.'),
}
export const Member = named(Type.Object(memberFields), 'Member')
export const MemberList = named(Type.Object({ members: Type.Array(ref(Member)) }), 'MemberList')

export const ClientSecret = named(
  Type.Object({
    clientId: Type.String({ description: 'The M2M client (m2m_…).' }),
    clientSecret: Type.String({ description: 'Shown only here.' }),
    target: Type.String(),
    createdAt: Instant('When it was made.'),
    oldSecretsExpireAt: Instant('From then on no older secret works.'),
    message: Type.String(),
    correlation_id: CorrelationId,
  }),
  'ClientSecret',
)

export const AuditLog = named(
  Type.Object({
    entries: Type.Array(
      Type.Object({
        id: Type.String(),
        actor: Type.String({ description: 'An account id, an M2M client id, or operator.' }),
        action: Type.String(),
        status: Type.String(),
        correlationId: nullable({}),
        details: Type.Object({}, { additionalProperties: true }),
        createdAt: Instant('When it happened.'),
      }),
    ),
    nextCursor: Type.Optional(Type.String()),
  }),
  'AuditLog',
)

const routingFields = {
  dmzUrl: Type.String({ description: 'The remote signer.' }),
  jwksUrl: Type.String({ description: "The issuer's keys." }),
  webhookUrl: Type.String({ description: 'The identity webhook, set on the signer.' }),
  meteringMode: Type.String({ description: 'stream or direct' }),
}
export const SignerRouting = named(
  Type.Object({
    ...routingFields,
    clientId: Type.String(),
    routing: Type.Object(
      {
        signerApiUrl: Type.String(),
        remoteDmzUrl: Type.String(),
        jwksUri: Type.String(),
        identityMode: Type.String(),
        meteringMode: Type.String(),
      },
      { description: 'The same again, as existing clients read it.' },
    ),
    patterns: Type.Object({ directDmz: Type.Object(routingFields) }),
  }),
  'SignerRouting',
)

export const Manifest = named(
  Type.Object({
    capabilities: Type.Array(Type.Object(keyPair)),
    excludedCapabilities: Type.Array(Type.Object(keyPair)),
    manifestVersion: Type.String({ description: 'empty when nothing is excluded' }),
  }),
  'Manifest',
)

export const OpenObject = (description: string) =>
  Type.Unsafe<object>({ type: 'object', additionalProperties: true, description })

const Profile = named(
  Type.Object({
    id: Type.String(),
    clientId: Type.String(),
    name: Type.String(),
    policy: OpenObject('topN, sortBy and filters'),
    createdAt: Instant('When it was made.'),
    updatedAt: Instant('When it last changed.'),
    capabilities: Type.Array(
      Type.Object({
        ...keyPair,
        discoveryPolicy: Type.Unsafe<object | null>({
          type: 'object',
          nullable: true,
          additionalProperties: true,
        }),
      }),
    ),
  }),
  'DiscoveryProfile',
)
export const ProfileList = named(
  Type.Object({ profiles: Type.Array(ref(Profile)) }),
  'DiscoveryProfileList',
)
export const ProfileDetail = named(Type.Object({ profile: ref(Profile) }), 'DiscoveryProfileDetail')
export const CreatedProfile = named(Type.Object({ id: Type.String() }), 'CreatedDiscoveryProfile')

export const AppKeyList = named(
  Type.Object({
    keys: Type.Array(
      Type.Object({
        keyId: Type.String(),
        id: Type.String({ description: 'The same as keyId.' }),
        clientId: Type.String(),
        label: nullable({}),
        prefix: Type.String({ description: 'How the key begins, for display.' }),
        subscriptionId: nullable({}),
        status: Type.String(),
        createdAt: Instant('When the key was made.'),
        lastUsedAt: nullable({ format: 'date-time' }),
        revokedAt: nullable({ format: 'date-time' }),
      }),
    ),
    nextCursor: Type.Optional(Type.String()),
  }),
  'AppKeyList',
)
export const CreatedAppKey = named(
  Type.Object({
    keyId: Type.String(),
    id: Type.String({ description: 'The same as keyId.' }),
    apiKey: Type.String({ description: 'The full secret. It is shown only here.' }),
    createdAt: Instant('When the key was made.'),
    label: nullable({}),
    message: Type.String(),
    correlation_id: CorrelationId,
  }),
  'CreatedAppKey',
)

export const ValidKey = named(
  Type.Object({
    valid: Type.Boolean(),
    planId: nullable({}),
    capabilities: strings,
    subscriptionRef: nullable({ description: 'Opaque.' }),
  }),
  'ValidKey',
)
export const ValidKeyV2 = named(
  Type.Object({
    valid: Type.Boolean(),
    user: Type.Object({ sub: Type.String() }),
    billing_account: Type.Object({
      id: Type.String(),
      providerSlug: Type.String(),
      billingMode: Type.String(),
    }),
    capabilities: strings,
    quota: Type.Unsafe<object | null>({ type: 'object', nullable: true }),
    subscriptionRef: nullable({ description: 'Opaque.' }),
  }),
  'ValidatedKey',
)
export const InvalidKey = named(
  Type.Object({
    valid: Type.Boolean({ description: 'false' }),
    type: Type.String(),
    title: Type.String(),
    status: Type.Integer(),
    detail: Type.String(),
    code: Type.String(),
    error: Type.String(),
    correlation_id: CorrelationId,
  }),
  'InvalidKey',
)

/** Those that every platform has; which form of a valid key there is, is the deployment's choice. */
export const managementSchemas = [
  Domain,
  DomainList,
  OidcClient,
  AppDetail,
  UpdatedApp,
  CreatedApp,
  OwnApps,
  Success,
  Member,
  MemberList,
  ClientSecret,
  AuditLog,
  SignerRouting,
  Manifest,
  Profile,
  ProfileList,
  ProfileDetail,
  CreatedProfile,
  AppKeyList,
  CreatedAppKey,
  InvalidKey,
]
