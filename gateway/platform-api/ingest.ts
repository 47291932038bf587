import { randomUUID } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { equalSecrets } from '../../core/lib/crypto.ts'
import { DomainError } from '../../proto/errors.ts'
import { textMember } from '../http/body.ts'
import { readAuthorization } from '../auth/credentials.ts'
import type { App } from '../http/listener.ts'
import { route } from '../http/route.ts'
import { IngestDiagnosis, ref } from './schemas.ts'

const eventType = 'create_signed_ticket'
const AnyEvent = Type.Object(
  {},
  { additionalProperties: true, description: 'A create_signed_ticket event' },
)

/** Looks at an event as the collector would, and keeps nothing of it (service specification, metering events). */
export function ingestRoutes(
  app: App,
  { ingestSecret }: { ingestSecret?: string | undefined },
): void {
  app.post(
    '/api/v1/ingest/events',
    {
      ...route(
        { guard: { kind: 'secret' } },
        {
          summary: 'Diagnose a metering event; nothing is metered here',
          tags: ['service'],
          body: AnyEvent,
          response: { 200: ref(IngestDiagnosis) },
        },
      ),
      onRequest: async (request) => requireSecret(request, ingestSecret),
    },
    async ({ body, core, correlationId }) => {
      const event = parseEvent(body)
      await core.apps.find({ clientId: event.clientId })
      return {
        ok: true,
        diagnostic: true,
        ingested: false,
        duplicate: false,
        requestId: event.requestId,
        clientId: event.clientId,
        externalUserId: event.externalUserId,
        correlation_id: correlationId,
      }
    },
  )
}

// Any value that is not known beforehand: an unset secret lets nobody in.
const nobody = randomUUID()

function requireSecret(request: FastifyRequest, secret: string | undefined): void {
  const [, given] = /^bearer +(\S+) *$/i.exec(readAuthorization(request.raw.rawHeaders) ?? '') ?? []
  const right = equalSecrets(given ?? '', secret ?? nobody)
  if (!right) throw new DomainError('TOKEN_INVALID', 'send the ingest secret as Bearer')
}

/** The envelope's own members, or those of its `data`. */
function parseEvent(body: object) {
  const data: unknown = Object.getOwnPropertyDescriptor(body, 'data')?.value
  const member = (...names: string[]): string | undefined =>
    names
      .flatMap((name) => [textMember(body, name), textMember(data, name)])
      .find((text) => text?.trim())
  if (member('type') !== eventType)
    throw new DomainError('REQUEST_INVALID', `type must be ${eventType}`)
  const [clientOfAuth, userOfAuth] = splitOnce(member('auth_id') ?? '')
  return {
    clientId: required(member('client_id') ?? clientOfAuth, 'client_id'),
    externalUserId: required(
      member('usage_subject', 'external_user_id') ?? userOfAuth,
      'usage_subject or external_user_id',
    ),
    requestId: required(member('request_id', 'id'), 'request_id or id'),
  }
}

function splitOnce(text: string): [string?, string?] {
  const colon = text.indexOf(':')
  return colon < 0 ? [] : [text.slice(0, colon), text.slice(colon + 1)]
}

function required(text: string | undefined, name: string): string {
  if (text === undefined || text === '')
    throw new DomainError('REQUEST_INVALID', `${name} is required`)
  return text
}
