import { Type } from 'typebox'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get, put } from '../../http/endpoint.ts'
import { matchesEtag } from '../../http/headers.ts'
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

const readManifest = get({
  url,
  guard: { kind: 'm2m_or_member' },
  deprecated: true,
  operationId: 'getManifest',
  summary: 'The pipelines and models that the app excludes',
  description:
    'Returns the pipelines and models that the app does not offer, with an ETag for If-None-Match; an empty list means no restriction. Kept for older integrators.',
  tags,
  params: AppParams,
  response: { 200: ref(Manifest), 304: NotModified },
  handler: async ({ params, headers, core }, reply) => {
    const { manifest: answer } = await core.catalog.getManifest(params)
    const manifest = requireField(answer, 'manifest')
    const etag = `"${manifest.manifestVersion}"`
    void reply.header('etag', etag).header('cache-control', 'private, no-cache')
    return matchesEtag(headers['if-none-match'], etag) ? reply.code(304).send() : manifest
  },
})

const replaceManifest = put({
  url,
  guard: { kind: 'member_edit' },
  deprecated: true,
  refuses: ['CONFLICT'],
  operationId: 'replaceManifest',
  summary: 'Replace the excluded pipelines and models',
  description:
    'Replaces the whole list of pipelines and models that the app does not offer; * as modelId means every model of the pipeline. Returns 409 with `conflicts` if a plan names one of them.',
  tags,
  params: AppParams,
  body: ManifestBody,
  response: { 200: ref(Manifest) },
  handler: async ({ params, body, core }, reply) => {
    const { manifest: answer } = await core.catalog.updateManifest({ ...params, ...body })
    const manifest = requireField(answer, 'manifest')
    return reply.header('etag', `"${manifest.manifestVersion}"`).send(manifest)
  },
})
