import swagger from '@fastify/swagger'
import { Type } from 'typebox'
import { textMember } from '../body.ts'
import type { App, ListenerDeps } from '../listener.ts'
import { route } from '../route.ts'
import { allowanceRoutes } from './allowances.ts'
import { endUserRoutes } from './end-user.ts'
import { keyRoutes } from './keys.ts'
import { oidcRoutes } from './oidc.ts'
import { documentOptions } from './openapi.ts'
import { tokenRoutes } from './tokens.ts'
import { usageRoutes } from './usage.ts'
import { userRoutes } from './users.ts'
import { type Webhook, webhookRoutes } from './webhook.ts'

export interface PlatformDeps extends ListenerDeps {
  /** Of the tokens that core signs. */
  readonly tokenAlg: string
  readonly webhook?: Webhook | undefined
}

const rules = { guard: { kind: 'none' } } as const

/** Everything at the platform listener (surface B). */
export async function platformRoutes(app: App, deps: PlatformDeps): Promise<void> {
  const { publicUrl, webhook } = deps
  await app.register(swagger, documentOptions(publicUrl))
  app.addHook('onRequest', async (request, reply) => {
    const successor = request.routeOptions.config.rules?.successor
    if (successor === undefined) return
    const clientId = encodeURIComponent(textMember(request.params, 'clientId') ?? '')
    const link = `<${publicUrl}${successor.replace(':clientId', clientId)}>; rel="successor-version"`
    void reply.header('deprecation', 'true').header('link', link)
  })
  app.get('/health', route(rules, {
    summary: 'Whether the process answers', tags: ['service'],
    response: { 200: Type.Object({ status: Type.String() }) },
  }), async () => ({ status: 'ok' }))
  app.get('/api/v1/openapi.json', route(rules, {
    summary: 'This document', tags: ['service'],
    response: { 200: Type.Object({}, { additionalProperties: true, description: 'OpenAPI 3.0.3' }) },
  }), async (_, reply) => reply
    .header('cache-control', 'public, max-age=300').type('application/json').send(JSON.stringify(app.swagger())))
  oidcRoutes(app, deps)
  userRoutes(app)
  tokenRoutes(app)
  keyRoutes(app)
  allowanceRoutes(app)
  usageRoutes(app)
  endUserRoutes(app)
  if (webhook) webhookRoutes(app, webhook, deps)
}
