import { Type } from 'typebox'
import type {
  Manifest as ManifestMessage,
  Profile as ProfileMessage,
} from '../../proto/gen/es/tollgate/plans/v1/catalog_pb.ts'
import { present } from '../core/client.ts'
import type { App } from '../http/listener.ts'
import {
  CreatedProfile,
  Manifest,
  OpenObject,
  ProfileDetail,
  ProfileList,
  Success,
} from './apps/schemas.ts'
import { AppParams, required } from './request-schemas.ts'
import { route } from '../http/route.ts'
import { ref } from './schemas.ts'

const base = '/api/v1/apps/:clientId'
const tags = ['catalog']

const word = Type.String({ maxLength: 200 })
const ManifestBody = Type.Object(
  {
    excludedCapabilities: Type.Array(
      Type.Object({ pipeline: word, modelId: word }, { additionalProperties: false }),
      { maxItems: 1_000 },
    ),
  },
  { additionalProperties: false },
)

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

/** What an app does not offer, and its discovery profiles (facts 9.3, 9.4). */
export function catalogRoutes(app: App): void {
  manifestRoutes(app)
  profileRoutes(app)
}

function manifestRoutes(app: App): void {
  const url = `${base}/manifest`
  const notModified = {
    304: Type.Unsafe<undefined>({ type: 'null', description: 'As If-None-Match has it' }),
  }

  app.get(
    url,
    route(
      { guard: { kind: 'm2m_or_member' }, deprecated: true },
      {
        summary: 'What the app excludes; nothing means no restriction',
        tags,
        params: AppParams,
        response: { 200: ref(Manifest), ...notModified },
      },
    ),
    async ({ params, headers, core }, reply) => {
      const manifest = toManifest(
        present((await core.catalog.getManifest(params)).manifest, 'manifest'),
      )
      const etag = `"${manifest.manifestVersion}"`
      void reply.header('etag', etag).header('cache-control', 'private, no-cache')
      return matches(headers['if-none-match'], etag) ? reply.code(304).send() : manifest
    },
  )

  app.put(
    url,
    route(
      { guard: { kind: 'member_edit' }, deprecated: true },
      {
        summary: 'Replace what the app excludes',
        tags,
        params: AppParams,
        body: ManifestBody,
        response: { 200: ref(Manifest) },
      },
    ),
    async ({ params, body, core }, reply) => {
      const manifest = toManifest(
        present((await core.catalog.putManifest({ ...params, ...body })).manifest, 'manifest'),
      )
      return reply.header('etag', `"${manifest.manifestVersion}"`).send(manifest)
    },
  )
}

/** If-None-Match (RFC 9110 section 13.1.2): `*`, or a list that is compared weakly. */
function matches(given: string | undefined, etag: string): boolean {
  if (given === undefined) return false
  return (
    given.trim() === '*' || given.split(',').some((one) => one.trim().replace(/^W\//, '') === etag)
  )
}

const toManifest = ({ capabilities, excludedCapabilities, manifestVersion }: ManifestMessage) => ({
  capabilities: capabilities.map(({ pipeline, modelId }) => ({ pipeline, modelId })),
  excludedCapabilities: excludedCapabilities.map(({ pipeline, modelId }) => ({
    pipeline,
    modelId,
  })),
  manifestVersion,
})

function profileRoutes(app: App): void {
  const url = `${base}/discovery-profiles`

  app.get(
    url,
    route(
      { guard: { kind: 'm2m_or_member' } },
      {
        summary: 'List discovery profiles',
        tags,
        params: AppParams,
        response: { 200: ref(ProfileList) },
      },
    ),
    async ({ params, core }) => {
      const { profiles } = await core.catalog.listProfiles(params)
      return { profiles: profiles.map(toProfile) }
    },
  )

  app.post(
    url,
    route(
      { guard: { kind: 'member_edit' }, refuses: ['CONFLICT'] },
      {
        summary: 'Create a discovery profile',
        tags,
        params: AppParams,
        body: CreateBody,
        response: { 201: ref(CreatedProfile) },
      },
    ),
    async ({ params, body, core }, reply) => {
      const { profile } = await core.catalog.createProfile({
        ...params,
        name: body.name,
        policyJson: JSON.stringify(body.policy ?? {}),
        capabilities: toCapabilities(body.capabilities ?? []),
      })
      return reply.code(201).send({ id: present(profile, 'profile').id })
    },
  )

  app.get(
    `${url}/:id`,
    route(
      { guard: { kind: 'm2m_or_member' } },
      {
        summary: 'One discovery profile',
        tags,
        params: ProfileParams,
        response: { 200: ref(ProfileDetail) },
      },
    ),
    async ({ params, core }) => ({
      profile: toProfile(present((await core.catalog.getProfile(params)).profile, 'profile')),
    }),
  )

  app.put(
    `${url}/:id`,
    route(
      { guard: { kind: 'member_edit' } },
      {
        summary: 'Change what is named',
        tags,
        params: ProfileParams,
        body: UpdateBody,
        response: { 200: ref(Success) },
      },
    ),
    async ({ params, body: { name, policy, capabilities }, core, correlationId }) => {
      await core.catalog.updateProfile({
        ...params,
        name,
        policyJson: policy === undefined ? undefined : JSON.stringify(policy),
        capabilities:
          capabilities === undefined ? undefined : { values: toCapabilities(capabilities) },
      })
      return { success: true, correlation_id: correlationId }
    },
  )

  app.delete(
    `${url}/:id`,
    route(
      { guard: { kind: 'member_edit' } },
      {
        summary: 'Delete a discovery profile',
        tags,
        params: ProfileParams,
        response: { 200: ref(Success) },
      },
    ),
    async ({ params, core, correlationId }) => {
      await core.catalog.deleteProfile(params)
      return { success: true, correlation_id: correlationId }
    },
  )
}

const toCapabilities = (
  values: readonly { pipeline: string; modelId: string; discoveryPolicy?: object | null }[],
) =>
  values.map(({ pipeline, modelId, discoveryPolicy }) => ({
    pipeline,
    modelId,
    discoveryPolicyJson: discoveryPolicy ? JSON.stringify(discoveryPolicy) : '',
  }))

const toProfile = (profile: ProfileMessage) => ({
  id: profile.id,
  clientId: profile.clientId,
  name: profile.name,
  policy: toObject(profile.policyJson) ?? {},
  createdAt: profile.createdAt,
  updatedAt: profile.updatedAt,
  capabilities: profile.capabilities.map(({ pipeline, modelId, discoveryPolicyJson }) => ({
    pipeline,
    modelId,
    discoveryPolicy: toObject(discoveryPolicyJson),
  })),
})

function toObject(json: string): object | null {
  const value: unknown = json === '' ? null : JSON.parse(json)
  return typeof value === 'object' ? value : null
}
