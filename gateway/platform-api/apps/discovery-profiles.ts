import { Type } from 'typebox'
import type { Profile as ProfileMessage } from '../../../proto/gen/es/tollgate/plans/v1/catalog_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { del, get, post, put } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant, Success, required } from '../schemas.ts'

const url = '/api/v1/apps/:clientId/discovery-profiles'
const tags = ['catalog']

export const modelFields = {
  pipeline: Type.String(),
  modelId: Type.String({ description: '* is every model.' }),
}
const OpenObject = (description: string) =>
  Type.Unsafe<object>({ type: 'object', additionalProperties: true, description })

const Profile = named(
  Type.Object({
    id: Type.String(),
    clientId: Type.String(),
    name: Type.String(),
    policy: OpenObject('topN, sortBy and filters'),
    createdAt: Instant('When it was created.'),
    updatedAt: Instant('When it last changed.'),
    capabilities: Type.Array(
      Type.Object({
        ...modelFields,
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
const ProfileList = named(
  Type.Object({ profiles: Type.Array(ref(Profile)) }),
  'DiscoveryProfileList',
)
const ProfileDetail = named(Type.Object({ profile: ref(Profile) }), 'DiscoveryProfileDetail')
const CreatedProfile = named(Type.Object({ id: Type.String() }), 'CreatedDiscoveryProfile')

export const word = Type.String({ maxLength: 200 })
const policy = Type.Optional(OpenObject('an object with topN, sortBy and filters'))
const capabilities = Type.Optional(
  Type.Array(
    Type.Object(
      {
        pipeline: word,
        modelId: word,
        discoveryPolicy: Type.Optional(
          Type.Unsafe<object | null>({
            type: 'object',
            nullable: true,
            additionalProperties: true,
          }),
        ),
      },
      { additionalProperties: false },
    ),
    { maxItems: 1_000 },
  ),
)
const CreateBody = Type.Object(
  { name: required('Unique in the app.'), policy, capabilities },
  { additionalProperties: false },
)
const UpdateBody = Type.Object(
  {
    name: Type.Optional(required('Unique in the app.')),
    policy,
    capabilities,
  },
  { additionalProperties: false },
)
const ProfileParams = Type.Object({
  clientId: Type.String({ description: "The app's public client id (app_…)." }),
  id: Type.String({ description: "The profile's id." }),
})

/** An app's discovery profiles, which select the orchestrators that its jobs prefer. */
export function discoveryProfileRoutes(app: App): void {
  addSchemas(app, [Profile, ProfileList, ProfileDetail, CreatedProfile])
  listProfiles(app)
  createProfile(app)
  readProfile(app)
  updateProfile(app)
  deleteProfile(app)
}

const listProfiles = get({
  url,
  guard: { kind: 'm2m_or_member' },
  deprecated: true,
  operationId: 'listDiscoveryProfiles',
  summary: 'List discovery profiles',
  description: 'Every discovery profile of the app, the oldest first; at most 100.',
  tags,
  params: AppParams,
  response: { 200: ref(ProfileList) },
  handler: async ({ params, core }) => {
    const { profiles } = await core.catalog.listProfiles(params)
    return { profiles: profiles.map(toProfile) }
  },
})

const createProfile = post({
  url,
  guard: { kind: 'member_edit' },
  deprecated: true,
  refuses: ['CONFLICT'],
  operationId: 'createDiscoveryProfile',
  summary: 'Create a discovery profile',
  description:
    'Adds a named discovery policy. The name is unique in the app, without regard to case.',
  tags,
  params: AppParams,
  body: CreateBody,
  response: { 201: ref(CreatedProfile) },
  handler: async ({ params, body, core }, reply) => {
    const { profile } = await core.catalog.createProfile({
      ...params,
      name: body.name,
      policyJson: JSON.stringify(body.policy ?? {}),
      capabilities: toCapabilities(body.capabilities ?? []),
    })
    return reply.code(201).send({ id: requireField(profile, 'profile').id })
  },
})

const readProfile = get({
  url: `${url}/:id`,
  guard: { kind: 'm2m_or_member' },
  deprecated: true,
  operationId: 'getDiscoveryProfile',
  summary: 'One discovery profile',
  description: 'Returns one discovery policy with its capabilities.',
  tags,
  params: ProfileParams,
  response: { 200: ref(ProfileDetail) },
  handler: async ({ params, core }) => ({
    profile: toProfile(requireField((await core.catalog.getProfile(params)).profile, 'profile')),
  }),
})

const updateProfile = put({
  url: `${url}/:id`,
  guard: { kind: 'member_edit' },
  deprecated: true,
  operationId: 'updateDiscoveryProfile',
  summary: 'Change a discovery profile',
  description: 'Changes the members in the body and keeps the others.',
  tags,
  params: ProfileParams,
  body: UpdateBody,
  response: { 200: ref(Success) },
  handler: async ({ params, body: { name, policy, capabilities }, core, correlationId }) => {
    await core.catalog.updateProfile({
      ...params,
      name,
      policyJson: policy === undefined ? undefined : JSON.stringify(policy),
      capabilities:
        capabilities === undefined ? undefined : { values: toCapabilities(capabilities) },
    })
    return { success: true, correlation_id: correlationId }
  },
})

const deleteProfile = del({
  url: `${url}/:id`,
  guard: { kind: 'member_edit' },
  deprecated: true,
  operationId: 'deleteDiscoveryProfile',
  summary: 'Delete a discovery profile',
  description: 'Deletes a discovery policy. No other resource depends on it.',
  tags,
  params: ProfileParams,
  response: { 200: ref(Success) },
  handler: async ({ params, core, correlationId }) => {
    await core.catalog.deleteProfile(params)
    return { success: true, correlation_id: correlationId }
  },
})

const toCapabilities = (
  values: readonly { pipeline: string; modelId: string; discoveryPolicy?: object | null }[],
) =>
  values.map(({ pipeline, modelId, discoveryPolicy }) => ({
    pipeline,
    modelId,
    discoveryPolicyJson: discoveryPolicy ? JSON.stringify(discoveryPolicy) : '',
  }))

const toProfile = (profile: ProfileMessage) => ({
  ...profile,
  policy: toObject(profile.policyJson) ?? {},
  capabilities: profile.capabilities.map((capability) => ({
    ...capability,
    discoveryPolicy: toObject(capability.discoveryPolicyJson),
  })),
})

function toObject(json: string): object | null {
  const value: unknown = json === '' ? null : JSON.parse(json)
  return typeof value === 'object' ? value : null
}
