import { Type } from 'typebox'
import type { App } from '../../http/app.ts'
import { get } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, WebAddress, oneOf } from '../schemas.ts'

const meteringModes = ['stream', 'direct'] as const
const MeteringMode = oneOf(meteringModes, 'The way events arrive.')

const routingFields = {
  dmzUrl: WebAddress('The remote signer.'),
  jwksUrl: WebAddress("The issuer's keys."),
  webhookUrl: WebAddress('The identity webhook, set on the signer.'),
  meteringMode: MeteringMode,
}
const SignerRouting = named(
  Type.Object({
    ...routingFields,
    clientId: Type.String(),
    routing: Type.Object(
      {
        signerApiUrl: WebAddress('dmzUrl'),
        remoteDmzUrl: WebAddress('dmzUrl'),
        jwksUri: WebAddress('jwksUrl'),
        identityMode: Type.String(),
        meteringMode: MeteringMode,
      },
      { description: 'The same values for existing clients.' },
    ),
    patterns: Type.Object({ directDmz: Type.Object(routingFields) }),
  }),
  'SignerRouting',
)

/** Where an app's jobs are signed. */
export function routingRoutes(app: App): void {
  addSchemas(app, [SignerRouting])
  get({
    url: '/api/v1/apps/:clientId/signer/routing',
    guard: { kind: 'm2m_or_member' },
    operationId: 'getSignerRouting',
    summary: "The signer's address and setup",
    description:
      "Returns the address of the app's remote signer, and the settings that its operator needs. meteringMode is stream if events arrive by Kafka, and direct if the signer's side pushes them; an app with its own signer sets it itself.",
    tags: ['apps'],
    params: AppParams,
    response: { 200: ref(SignerRouting) },
    handler: async ({ params, core }) => {
      const flat = await core.management.getRouting(params)
      const { dmzUrl, jwksUrl, meteringMode } = flat
      return {
        ...flat,
        clientId: params.clientId,
        routing: {
          signerApiUrl: dmzUrl,
          remoteDmzUrl: dmzUrl,
          jwksUri: jwksUrl,
          identityMode: 'webhook',
          meteringMode,
        },
        patterns: { directDmz: flat },
      }
    },
  })(app)
}
