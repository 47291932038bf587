import type { IncomingMessage, ServerResponse } from 'node:http'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { DomainError } from '../../../proto/errors.ts'
import type { App } from '../../http/app.ts'
import { renderError } from '../../http/errors.ts'
import type { ListenerDeps } from '../../http/listener.ts'
import { route } from '../../http/route.ts'
import { AuthorizeRequest, Permission, Refusal } from './decision-schemas.ts'

const Decision = Type.Union([Permission, Refusal], { description: 'The decision' })
const refusal = (description: string) =>
  Type.Object({ status: Type.Integer(), reason: Type.String() }, { description })

/** Answers one request of the remote signer. The body must be unread. */
export type Webhook = (request: IncomingMessage, response: ServerResponse) => unknown

/** Where the signer asks, if the sidecar runs in this process. */
export const webhookUrl = '/webhooks/remote-signer'

/** The embedded identity webhook: serves the sidecar's handler on the platform API. */
export function webhookRoutes(app: App, webhook: Webhook, deps: ListenerDeps): void {
  app.post(
    webhookUrl,
    {
      ...route({
        guard: { kind: 'none' },
        unmanaged: true,
        operationId: 'authorizeCall',
        summary: 'Identity webhook of the remote signer',
        description:
          'The remote signer calls it before it signs, to identify the user and to check that the user may spend. The decision is in the body; the HTTP status is always 200. Available only if the sidecar runs in this process.',
        tags: ['signer'],
        security: [{ signerSecret: [] }],
        body: AuthorizeRequest,
        response: {
          200: Decision,
          400: refusal('The body is not a JSON object'),
          401: refusal('The transport secret is wrong'),
        },
      }),
      // Runs before the body parsers, because the handler reads the body itself.
      onRequest: async (request, reply) => {
        reply.hijack()
        for (const [name, value] of Object.entries(reply.getHeaders())) {
          if (value !== undefined) reply.raw.setHeader(name, value)
        }
        try {
          await webhook(request.raw, reply.raw)
        } catch (cause) {
          fail(request, reply, { deps, cause })
        }
      },
    },
    async () => undefined,
  )
}

interface Failure {
  readonly deps: ListenerDeps
  readonly cause: unknown
}

// Fastify does not answer a hijacked reply, so the error is written here.
function fail(request: FastifyRequest, { raw }: FastifyReply, { deps, cause }: Failure): void {
  const { correlationId } = request
  const { publicUrl } = deps
  const error = new DomainError('INTERNAL', 'the webhook failed', { cause })
  request.reason = error.reason
  deps.httpMetrics.failed(request, error)
  if (raw.headersSent) return void raw.destroy()
  const { status, type, body } = renderError({ error, wire: 'problem', correlationId, publicUrl })
  raw.writeHead(status, { 'content-type': type }).end(JSON.stringify(body))
}
