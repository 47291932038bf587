import { Type } from 'typebox'
import type { RegisteredClient } from '../../../proto/gen/es/tollgate/identity/v1/registrations_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { del, get, post, put } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { registrationPath } from '../../platform-api/oidc/discovery.ts'

const strings = Type.Array(Type.String())

const Registration = named(
  Type.Object({
    client_id: Type.String(),
    client_id_issued_at: Type.Integer({ description: 'Unix seconds.' }),
    redirect_uris: strings,
    token_endpoint_auth_method: Type.String({ description: 'none' }),
    grant_types: strings,
    response_types: strings,
    scope: Type.String(),
    client_name: Type.String(),
    client_uri: Type.Optional(Type.String()),
    software_id: Type.Optional(Type.String()),
    software_version: Type.Optional(Type.String()),
    registration_client_uri: Type.String(),
    registration_access_token: Type.String(),
  }),
  'Registration',
)

// Core validates the members, with the error codes of RFC 7591.
const Metadata = Type.Object({}, { additionalProperties: true })
const Params = Type.Object({ registeredClientId: Type.String() })

const common = { guard: { kind: 'secret' }, wire: 'oauth', limit: 'edge' } as const
const metadataRefusals = [
  'CLIENT_METADATA_INVALID',
  'REDIRECT_URI_INVALID',
  'SOFTWARE_STATEMENT_INVALID',
  'SOFTWARE_STATEMENT_UNAPPROVED',
] as const
const tags = ['registration']
const address = registrationPath + '/:registeredClientId'

/** Dynamic client registration (RFC 7591) and its management (RFC 7592). */
export function registrationRoutes(app: App, edgeUrl: string): void {
  addSchemas(app, [Registration])
  register(app, edgeUrl)
  read(app, edgeUrl)
  replace(app, edgeUrl)
  remove(app)
}

function register(app: App, edgeUrl: string): void {
  post({
    url: registrationPath,
    ...common,
    refuses: [...metadataRefusals, 'CONFLICT'],
    operationId: 'registerClient',
    summary: 'Register a client',
    description: 'Registers a public client (RFC 7591) with an initial access token as Bearer.',
    tags,
    body: Metadata,
    response: { 201: ref(Registration) },
    handler: async ({ body, core }, reply) => {
      const { client } = await core.registrations.registerClient({ metadata: JSON.stringify(body) })
      return reply.code(201).send(toRegistration(client, edgeUrl))
    },
  })(app)
}

function read(app: App, edgeUrl: string): void {
  get({
    url: address,
    ...common,
    operationId: 'getRegistration',
    summary: 'Read a registration',
    description: 'Returns the registration (RFC 7592) of the registration access token.',
    tags,
    params: Params,
    response: { 200: ref(Registration) },
    handler: async ({ params, core }) =>
      toRegistration((await core.registrations.getRegistration(params)).client, edgeUrl),
  })(app)
}

function replace(app: App, edgeUrl: string): void {
  put({
    url: address,
    ...common,
    refuses: metadataRefusals,
    operationId: 'updateRegistration',
    summary: 'Replace a registration',
    description: 'Replaces all metadata of the client (RFC 7592).',
    tags,
    params: Params,
    body: Metadata,
    response: { 200: ref(Registration) },
    handler: async ({ params, body, core }) => {
      const metadata = JSON.stringify(body)
      const { client } = await core.registrations.updateRegistration({ ...params, metadata })
      return toRegistration(client, edgeUrl)
    },
  })(app)
}

const remove = del({
  url: address,
  ...common,
  operationId: 'deleteRegistration',
  summary: 'Delete a registration',
  description: 'Deletes the client (RFC 7592) and ends every login with it.',
  tags,
  params: Params,
  response: { 204: Type.Null({ description: 'Deleted' }) },
  handler: async ({ params, core }, reply) => {
    await core.registrations.deleteRegistration(params)
    return reply.code(204).send(null)
  },
})

function toRegistration(answer: RegisteredClient | undefined, edgeUrl: string) {
  const client = requireField(answer, 'client')
  return {
    client_id: client.registeredClientId,
    client_id_issued_at: Math.floor(Date.parse(client.createdAt) / 1000),
    redirect_uris: client.redirectUris,
    token_endpoint_auth_method: 'none',
    grant_types: client.grantTypes,
    response_types: ['code'],
    scope: client.scope,
    client_name: client.clientName,
    ...(client.clientUri === undefined ? {} : { client_uri: client.clientUri }),
    ...(client.softwareId === undefined ? {} : { software_id: client.softwareId }),
    ...(client.softwareVersion === undefined ? {} : { software_version: client.softwareVersion }),
    registration_client_uri: `${edgeUrl}${registrationPath}/${client.registeredClientId}`,
    registration_access_token: client.registrationAccessToken,
  }
}
