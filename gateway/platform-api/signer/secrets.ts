import { Type } from 'typebox'
import type { App } from '../../http/app.ts'
import { del, get, post } from '../../http/endpoint.ts'
import { CorrelationId, IdempotencyHeader, addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant, Success, nullable, oneOf, required } from '../schemas.ts'

const url = '/api/v1/apps/:clientId/signer-secrets'
const tags = ['signer']
const purposes = ['decisions', 'events'] as const

const secretFields = {
  id: Type.String({ description: 'The part of the secret that identifies it.' }),
  purpose: oneOf(
    purposes,
    'The route that it opens: POST /authorize of sidecars, or POST /events.',
  ),
  createdAt: Instant('When it was created.'),
}
const SignerSecretList = named(
  Type.Object({
    secrets: Type.Array(
      Type.Object({
        ...secretFields,
        expiresAt: nullable({
          format: 'date-time',
          description: 'End of its overlap; null if it is valid until it is revoked.',
        }),
      }),
    ),
  }),
  'SignerSecretList',
)
const CreatedSignerSecret = named(
  Type.Object({
    ...secretFields,
    secret: Type.String({ description: 'The full secret. It is shown only here.' }),
    oldSecretsExpireAt: nullable({
      format: 'date-time',
      description: 'When the older secrets of the purpose end; null if they stay valid.',
    }),
    message: Type.String(),
    correlation_id: CorrelationId,
  }),
  'CreatedSignerSecret',
)
const SecretBody = Type.Object(
  {
    purpose: oneOf(
      purposes,
      'The route that it opens: POST /authorize of sidecars, or POST /events.',
    ),
    overlapSeconds: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: 2_592_000,
        description:
          'Seconds after which the older secrets of the purpose end, at most 30 days; 0 ends them at once. Absent: they stay valid.',
      }),
    ),
  },
  { additionalProperties: false },
)

/**
 * Secrets of an app's own signer, which requests decisions about that app's users and pushes their
 * events (docs/decisions/53.md).
 */
export function signerSecretRoutes(app: App): void {
  addSchemas(app, [SignerSecretList, CreatedSignerSecret])
  listSignerSecrets(app)
  createSignerSecret(app)
  revokeSignerSecret(app)
}

const listSignerSecrets = get({
  url,
  guard: { kind: 'member_own' },
  operationId: 'listSignerSecrets',
  summary: "List the secrets of the app's own signer",
  description:
    'Lists the valid secrets, without their text: at most five for decisions and five for events.',
  tags,
  params: AppParams,
  response: { 200: ref(SignerSecretList) },
  handler: async ({ params, core }) => core.appSecrets.listAppSecrets(params),
})

const createSignerSecret = post({
  url,
  guard: { kind: 'member_own' },
  refuses: ['CONFLICT'],
  operationId: 'createSignerSecret',
  summary: "Make a secret for the app's own signer",
  description:
    "Makes a secret and returns it once. A signer that sends it as Bearer gets decisions about this app's users, or pushes their events. For other apps' users it gets 403 signer_not_bound. Use overlapSeconds for a rotation.",
  tags,
  params: AppParams,
  headers: IdempotencyHeader,
  body: SecretBody,
  response: { 201: ref(CreatedSignerSecret) },
  handler: async ({ params, body, headers, core, correlationId }, reply) => {
    const { details, secret, oldSecretsExpireAt } = await core.appSecrets.createAppSecret({
      ...params,
      ...body,
      idempotencyKey: headers['idempotency-key'],
    })
    return reply.code(201).send({
      ...details,
      secret,
      oldSecretsExpireAt,
      message: 'Store the secret now; it is not shown again.',
      correlation_id: correlationId,
    })
  },
})

const revokeSignerSecret = del({
  url,
  guard: { kind: 'member_own' },
  operationId: 'revokeSignerSecret',
  summary: "Revoke a secret of the app's own signer",
  description:
    'Revokes the secret. Sidecars are notified at once; a sidecar that core cannot reach accepts it until core reaches it again.',
  tags,
  params: AppParams,
  querystring: Type.Object({ secretId: required('The id of the secret.') }),
  response: { 200: ref(Success) },
  handler: async ({ params, query: { secretId }, core, correlationId }) => {
    await core.appSecrets.revokeAppSecret({ ...params, id: secretId })
    return { success: true, correlation_id: correlationId }
  },
})
