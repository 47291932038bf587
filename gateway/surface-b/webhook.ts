import type { IncomingMessage, ServerResponse } from 'node:http'
import { Type } from 'typebox'
import type { App } from '../listener.ts'
import { route } from '../route.ts'

/** Answers one request of the remote signer, body unread. */
export type Webhook = (request: IncomingMessage, response: ServerResponse) => unknown

/** The embedded identity webhook: the sidecar's handler at the platform's address. */
export function webhookRoutes(app: App, webhook: Webhook): void {
  app.post('/webhooks/remote-signer', {
    ...route({ guard: { kind: 'none' } }, {
      summary: 'Identity webhook of the remote signer', tags: ['signer'],
      response: { 200: Type.Object({}, { additionalProperties: true, description: 'The decision' }) },
    }),
    // Before any parser, so that the handler reads the body itself.
    onRequest: async (request, reply) => {
      reply.hijack()
      for (const [name, value] of Object.entries(reply.getHeaders())) {
        if (value !== undefined) reply.raw.setHeader(name, value)
      }
      await webhook(request.raw, reply.raw)
    },
  }, async () => undefined)
}
