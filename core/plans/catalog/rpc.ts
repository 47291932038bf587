import type * as pb from '../../../proto/gen/ts-proto/tollgate/plans/v1/catalog.ts'
import type { M2mCaller, MemberCaller } from '../../rpc/callers.ts'
import { m2mOrMember, member } from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import type { Catalog, ProfileChange } from './catalog.ts'
import {
  type Manifest,
  type Profile,
  type ProfileCapability,
  parseCapabilities,
  parsePolicy,
  parseProfileName,
} from './profile.ts'

export function createCatalogRpc({ catalog }: { catalog: Catalog }) {
  const catalogService: Handlers<pb.CatalogServiceServer> = {
    getManifest: rpc(m2mOrMember(), async (_: pb.GetManifestRequest, caller) => ({
      manifest: renderManifest(await catalog.manifest(caller.appId)),
    })),
    updateManifest: rpc(
      member('edit'),
      async (request: pb.UpdateManifestRequest, caller, context) => {
        const excluded = parseCapabilities(
          request.excludedCapabilities.map(({ pipeline, modelId }) => ({ pipeline, modelId })),
          'excludedCapabilities',
        )
        return { manifest: renderManifest(await catalog.putManifest(caller, excluded, context)) }
      },
    ),
    listProfiles: rpc(m2mOrMember(), async (_: pb.ListProfilesRequest, caller) => {
      const profiles = await catalog.listProfiles(caller.appId)
      return { profiles: profiles.map((profile) => renderProfile(profile, caller)) }
    }),
    getProfile: rpc(m2mOrMember(), async (request: pb.GetProfileRequest, caller) => ({
      profile: renderProfile(await catalog.getProfile(caller.appId, request.id), caller),
    })),
    createProfile: rpc(
      member('edit'),
      async (request: pb.CreateProfileRequest, caller, context) => {
        const profile = await catalog.createProfile(
          caller,
          {
            name: parseProfileName(request.name),
            policy: parsePolicy(request.policyJson),
            capabilities: parseProfileCapabilities(request.capabilities),
          },
          context,
        )
        return { profile: renderProfile(profile, caller) }
      },
    ),
    updateProfile: rpc(
      member('edit'),
      async (request: pb.UpdateProfileRequest, caller, context) => {
        const change = { id: request.id, ...parseChange(request) }
        return {
          profile: renderProfile(await catalog.updateProfile(caller, change, context), caller),
        }
      },
    ),
    deleteProfile: rpc(
      member('edit'),
      async (request: pb.DeleteProfileRequest, caller, context) => {
        await catalog.deleteProfile(caller, request.id, context)
        return {}
      },
    ),
  }
  return { catalogService }
}

const parseChange = ({
  name,
  policyJson,
  capabilities,
}: pb.UpdateProfileRequest): ProfileChange => ({
  ...(name === undefined ? {} : { name: parseProfileName(name) }),
  ...(policyJson === undefined ? {} : { policy: parsePolicy(policyJson) }),
  ...(capabilities === undefined
    ? {}
    : { capabilities: parseProfileCapabilities(capabilities.values) }),
})

const parseProfileCapabilities = (values: readonly pb.ProfileCapability[]): ProfileCapability[] =>
  parseCapabilities(
    values.map(({ pipeline, modelId, discoveryPolicyJson }) => ({
      pipeline,
      modelId,
      discoveryPolicy: discoveryPolicyJson === '' ? null : parsePolicy(discoveryPolicyJson),
    })),
    'capabilities',
  )

// An app may use every capability of the network that it does not exclude, so `capabilities` is
// always empty.
const renderManifest = ({ excluded, version }: Manifest) => ({
  capabilities: [],
  excludedCapabilities: [...excluded],
  manifestVersion: version,
})

const renderProfile = (profile: Profile, { clientId }: M2mCaller | MemberCaller) => ({
  id: profile.id,
  clientId,
  name: profile.name,
  policyJson: JSON.stringify(profile.policy),
  capabilities: profile.capabilities.map(({ pipeline, modelId, discoveryPolicy }) => ({
    pipeline,
    modelId,
    discoveryPolicyJson: discoveryPolicy === null ? '' : JSON.stringify(discoveryPolicy),
  })),
  createdAt: profile.createdAt.toISOString(),
  updatedAt: profile.updatedAt.toISOString(),
})
