import { Type } from 'typebox'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { del, get, post, put } from '../../http/endpoint.ts'
import { CorrelationId, IdempotencyHeader, addSchemas, named, ref } from '../../http/schemas.ts'
import { Instant, Success, required } from '../schemas.ts'
import { operateRules, operateUrl } from './rules.ts'

const url = `${operateUrl}/signers`
const signerUrl = `${url}/:name`
const appsMax = 1_000

const appFields = {
  allApps: Type.Boolean({ description: 'Whether it signs for every app, also future ones.' }),
  clientIds: Type.Array(Type.String({ maxLength: 100 }), {
    maxItems: appsMax,
    description: 'Otherwise the apps that it signs for.',
  }),
}
const mayPushEvents = Type.Boolean({ description: 'Whether it may push events of these apps.' })

const Signer = named(
  Type.Object({
    name: Type.String(),
    ...appFields,
    mayPushEvents,
    createdAt: Instant('When it was created.'),
    secrets: Type.Integer({ description: 'Number of valid secrets.' }),
  }),
  'Signer',
)
const SignerList = named(Type.Object({ signers: Type.Array(ref(Signer)) }), 'SignerList')
const SignerSecrets = named(
  Type.Object({
    secret: Type.String({ description: 'For POST /authorize. It is shown only here.' }),
    eventsSecret: Type.Optional(
      Type.String({ description: 'For POST /events, if it may push events.' }),
    ),
    correlation_id: CorrelationId,
  }),
  'SignerSecrets',
)
const SignerParams = Type.Object({ name: Type.String({ description: "The signer's name." }) })

/** Signers of the deployment, and their secrets (docs/decisions/53.md). */
export function signerRoutes(app: App): void {
  addSchemas(app, [Signer, SignerList, SignerSecrets])
  listSigners(app)
  createSigner(app)
  updateSigner(app)
  rotateSigner(app)
  deleteSigner(app)
}

const listSigners = get({
  ...operateRules,
  url,
  operationId: 'listSigners',
  summary: 'List the signers',
  description: 'Lists the signers without their secrets, except the one with WEBHOOK_SECRET.',
  response: { 200: ref(SignerList) },
  handler: async ({ core }) => core.signers.listSigners({}),
})

const createSigner = post({
  ...operateRules,
  url,
  refuses: ['CONFLICT', 'NOT_FOUND'],
  operationId: 'createSigner',
  summary: 'Make a signer',
  description: 'Makes a signer for these apps and returns its secrets once.',
  headers: IdempotencyHeader,
  body: Type.Object(
    { name: required('Lower-case letters, digits and hyphens.'), ...appFields, mayPushEvents },
    { additionalProperties: false },
  ),
  response: { 201: ref(SignerSecrets) },
  handler: async ({ body, headers, core, correlationId }, reply) => {
    const idempotencyKey = headers['idempotency-key']
    const { credentials } = await core.signers.createSigner({ ...body, idempotencyKey })
    const secrets = requireField(credentials, 'credentials')
    return reply.code(201).send({ ...secrets, correlation_id: correlationId })
  },
})

const updateSigner = put({
  ...operateRules,
  url: signerUrl,
  operationId: 'updateSigner',
  summary: 'Replace the apps that a signer signs for',
  description: 'Replaces the apps. Sidecars are notified at once.',
  params: SignerParams,
  body: Type.Object(appFields, { additionalProperties: false }),
  response: { 200: ref(Signer) },
  handler: async ({ params, body, core }) =>
    requireField((await core.signers.updateSigner({ ...params, ...body })).signer, 'signer'),
})

const rotateSigner = post({
  ...operateRules,
  url: `${signerUrl}/rotate`,
  refuses: ['CONFLICT'],
  operationId: 'rotateSigner',
  summary: 'Make new secrets for a signer',
  description: 'Makes new secrets and returns them once. The old ones stay valid for the overlap.',
  params: SignerParams,
  headers: IdempotencyHeader,
  body: Type.Object(
    {
      overlapSeconds: Type.Integer({
        minimum: 0,
        maximum: 2_592_000,
        description: 'Seconds after which the old secrets end; 0 ends them at once.',
      }),
    },
    { additionalProperties: false },
  ),
  response: { 200: ref(SignerSecrets) },
  handler: async ({ params, body, headers, core, correlationId }) => {
    const request = { ...params, ...body, idempotencyKey: headers['idempotency-key'] }
    const { credentials } = await core.signers.rotateSigner(request)
    return { ...requireField(credentials, 'credentials'), correlation_id: correlationId }
  },
})

const deleteSigner = del({
  ...operateRules,
  url: signerUrl,
  operationId: 'deleteSigner',
  summary: 'Remove a signer',
  description: 'Ends the signer and its secrets. Sidecars are notified at once.',
  params: SignerParams,
  response: { 200: ref(Success) },
  handler: async ({ params, core, correlationId }) => {
    await core.signers.deleteSigner(params)
    return { success: true, correlation_id: correlationId }
  },
})
