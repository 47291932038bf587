import { Type } from 'typebox'
import type { ProvisionUserResponse } from '../../proto/gen/es/tollgate/keys/v1/builder_pb.ts'
import type { App } from '../http/app.ts'
import { post } from '../http/endpoint.ts'
import { provisioningReasons } from '../http/route.ts'
import { IdempotencyHeader, addSchemas, asDocumented, named, ref } from '../http/schemas.ts'
import { AppParams, Email, required, text } from '../platform-api/schemas.ts'

const BuilderUser = named(
  Type.Object({
    id: Type.String({ description: 'Our id of the user.' }),
    clientId: Type.String(),
    externalUserId: Type.String(),
    email: Type.Optional(Email),
    status: Type.String({ description: 'active or inactive' }),
    apiKey: Type.Optional(Type.String({ description: "The user's key. It is shown only here." })),
  }),
  'BuilderUser',
)

const NewBuilderUser = Type.Object({
  externalUserId: required("The integrator's id of the user, at most 200 bytes of UTF-8."),
  email: Type.Optional(Type.String({ maxLength: 320, description: 'an e-mail address' })),
  connection: Type.Optional(
    text('Connection of the identity provider for a new user; the default connection when absent.'),
  ),
  issueApiKey: Type.Optional(
    Type.Boolean({
      default: true,
      description:
        'Whether the answer includes a key. An existing user gets a key only if this is true and the user has no key.',
    }),
  ),
})

/** Adds the route that creates users at the app's identity provider and here. */
export function userRoutes(app: App): void {
  addSchemas(app, [BuilderUser])
  post({
    url: '/api/v1/apps/:clientId/users',
    guard: { kind: 'provisioner' },
    limit: 'users',
    refuses: [...provisioningReasons, 'PROVIDER_UNAVAILABLE'],
    operationId: 'createUser',
    summary: 'Create a user, or update one',
    description:
      'Creates the user at the identity provider and here, with a key (201), or updates the attributes in the body (200). Repeated and simultaneous requests are safe: only one creates the user. An existing key is never replaced.',
    tags: ['users'],
    params: AppParams,
    headers: IdempotencyHeader,
    body: NewBuilderUser,
    documentedBody: asDocumented(NewBuilderUser, { formats: { email: 'email' } }),
    response: { 200: ref(BuilderUser), 201: ref(BuilderUser) },
    handler: async ({ params, headers, body, core }, reply) => {
      const user = await core.builderUsers.provisionUser({
        ...params,
        ...body,
        idempotencyKey: headers['idempotency-key'],
      })
      return reply
        .code(user.created ? 201 : 200)
        .header('cache-control', 'no-store')
        .send(toUser(user))
    },
  })(app)
}

const toUser = ({
  id,
  clientId,
  externalUserId,
  email,
  status,
  apiKey,
}: ProvisionUserResponse) => ({
  id,
  clientId,
  externalUserId,
  ...(email === undefined ? {} : { email }),
  status,
  ...(apiKey === undefined ? {} : { apiKey }),
})
