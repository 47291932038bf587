import { Type } from 'typebox'
import type { Manifest as ManifestMessage } from '../../../proto/gen/es/tollgate/plans/v1/catalog_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { matchesEtag } from '../../http/headers.ts'
import { route } from '../../http/route.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, NotModified } from '../schemas.ts'
import { modelFields, word } from './discovery-profiles.ts'

const url = '/api/v1/apps/:clientId/manifest'
const tags = ['catalog']

const Manifest = named(
  Type.Object({
    capabilities: Type.Array(Type.Object(modelFields)),
    excludedCapabilities: Type.Array(Type.Object(modelFields)),
    manifestVersion: Type.String({ description: 'empty when nothing is excluded' }),
  }),
  'Manifest',
)

const ManifestBody = Type.Object(
  {
    excludedCapabilities: Type.Array(
      Type.Object({ pipeline: word, modelId: word }, { additionalProperties: false }),
      { maxItems: 1_000 },
    ),
  },
  { additionalProperties: false },
)

/** Pipelines and models that an app excludes. */
export function manifestRoutes(app: App): void {
  addSchemas(app, [Manifest])
  readManifest(app)
  replaceManifest(app)
}

function readManifest(app: App): void {
  app.get(
    url,
    route(
      { guard: { kind: 'm2m_or_member' }, deprecated: true },
      {
        operationId: 'getManifest',
        summary: 'The pipelines and models that the app excludes',
        description:
          'Returns the pipelines and models that the app does not offer, with an ETag for If-None-Match; an empty list means no restriction. Kept for older integrators.',
        tags,
        params: AppParams,
        response: { 200: ref(Manifest), 304: NotModified },
      },
    ),
    async ({ params, headers, core }, reply) => {
      const manifest = toManifest(
        requireField((await core.catalog.getManifest(params)).manifest, 'manifest'),
      )
      const etag = `"${manifest.manifestVersion}"`
      void reply.header('etag', etag).header('cache-control', 'private, no-cache')
      return matchesEtag(headers['if-none-match'], etag) ? reply.code(304).send() : manifest
    },
  )
}

function replaceManifest(app: App): void {
  app.put(
    url,
    route(
      { guard: { kind: 'member_edit' }, deprecated: true, refuses: ['CONFLICT'] },
      {
        operationId: 'replaceManifest',
        summary: 'Replace the excluded pipelines and models',
        description:
          'Replaces the whole list of pipelines and models that the app does not offer; * as modelId means every model of the pipeline. Returns 409 with `conflicts` if a plan names one of them.',
        tags,
        params: AppParams,
        body: ManifestBody,
        response: { 200: ref(Manifest) },
      },
    ),
    async ({ params, body, core }, reply) => {
      const manifest = toManifest(
        requireField((await core.catalog.putManifest({ ...params, ...body })).manifest, 'manifest'),
      )
      return reply.header('etag', `"${manifest.manifestVersion}"`).send(manifest)
    },
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
