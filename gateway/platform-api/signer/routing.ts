import { Type } from 'typebox'
import type { App } from '../../http/app.ts'
import { route } from '../../http/route.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams } from '../schemas.ts'

const routingFields = {
  dmzUrl: Type.String({ description: 'The remote signer.' }),
  jwksUrl: Type.String({ description: "The issuer's keys." }),
  webhookUrl: Type.String({ description: 'The identity webhook, set on the signer.' }),
  meteringMode: Type.String({ description: 'stream or direct' }),
}
const SignerRouting = named(
  Type.Object({
    ...routingFields,
    clientId: Type.String(),
    routing: Type.Object(
      {
        signerApiUrl: Type.String(),
        remoteDmzUrl: Type.String(),
        jwksUri: Type.String(),
        identityMode: Type.String(),
        meteringMode: Type.String(),
      },
      { description: 'The same again, as existing clients read it.' },
    ),
    patterns: Type.Object({ directDmz: Type.Object(routingFields) }),
  }),
  'SignerRouting',
)

/** Where an app's jobs are signed. */
export function routingRoutes(app: App): void {
  addSchemas(app, [SignerRouting])
  app.get(
    '/api/v1/apps/:clientId/signer/routing',
    route(
      { guard: { kind: 'm2m_or_member' } },
      {
        summary: 'Where to sign and how the signer is set up',
        tags: ['apps'],
        params: AppParams,
        response: { 200: ref(SignerRouting) },
      },
    ),
    async ({ params, core }) => {
      const { dmzUrl, jwksUrl, webhookUrl, meteringMode } = await core.management.getRouting(params)
      const flat = { dmzUrl, jwksUrl, webhookUrl, meteringMode }
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
  )
}
