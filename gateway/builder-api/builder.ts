import { Type } from 'typebox'
import type { App } from '../http/app.ts'
import { get } from '../http/endpoint.ts'
import type { ListenerDeps } from '../http/listener.ts'
import { collectDocument, documentRoutes } from './docs.ts'
import { tokenRoutes } from './token.ts'
import { usageRoutes } from './usage.ts'
import { userRoutes } from './users.ts'

/** Adds all routes of the builder API's listener (docs/builder-api.md). */
export async function builderRoutes(app: App, deps: ListenerDeps): Promise<void> {
  await collectDocument(app, deps.publicUrl)
  healthRoute(app)
  await documentRoutes(app, deps)
  userRoutes(app)
  tokenRoutes(app, deps)
  usageRoutes(app)
}

export function healthRoute(app: App): void {
  get({
    url: '/health',
    guard: { kind: 'none' },
    operationId: 'getHealth',
    summary: 'Whether the process answers',
    description:
      'Returns "ok" as soon as the process serves requests. It does not check the parts that the process depends on.',
    tags: ['service'],
    response: {
      200: { description: 'ok', content: { 'text/plain': { schema: Type.String() } } },
    },
    handler: (_, reply) => reply.type('text/plain; charset=utf-8').send('ok'),
  })(app)
}
