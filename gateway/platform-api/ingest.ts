import { randomUUID } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { equalSecrets } from '../../core/lib/crypto.ts'
import { type Reloadable, currentValue } from '../../core/lib/settings/reloadable.ts'
import { DomainError } from '../../proto/errors.ts'
import { bearerToken, readAuthorization } from '../auth/credentials.ts'
import type { App } from '../http/app.ts'
import { textMember } from '../http/body.ts'
import { route } from '../http/route.ts'
import type { Limits } from '../limits/limiter.ts'
import { CorrelationId, addSchemas, named, ref } from '../http/schemas.ts'

const eventType = 'create_signed_ticket'
const AnyEvent = Type.Object(
  {},
  { additionalProperties: true, description: 'A create_signed_ticket event' },
)

const IngestDiagnosis = named(
  Type.Object({
    ok: Type.Boolean(),
    diagnostic: Type.Boolean({ description: 'Always true: this route does not meter anything.' }),
    ingested: Type.Boolean({ description: 'Always false.' }),
    duplicate: Type.Boolean({
      description: 'Always false: this route does not look up stored events.',
    }),
    requestId: Type.String(),
    clientId: Type.String(),
    externalUserId: Type.String(),
    correlation_id: CorrelationId,
  }),
  'IngestDiagnosis',
)

export interface IngestDeps {
  readonly ingestSecret?: Reloadable<string | undefined>
  readonly limits?: Limits | undefined
}

/** Checks an event as the collector would, without storing it. */
export function ingestRoutes(app: App, { ingestSecret, limits }: IngestDeps): void {
  addSchemas(app, [IngestDiagnosis])
  app.post(
    '/api/v1/ingest/events',
    {
      ...route({
        guard: { kind: 'secret' },
        limit: 'failures',
        refuses: ['NOT_FOUND'],
        operationId: 'diagnoseEvent',
        summary: 'Diagnose a metering event without metering it',
        description:
          "Parses an event like the collector and returns its user and type. It stores nothing; use it to check a signer's setup.",
        tags: ['service'],
        body: AnyEvent,
        documentedBody: { ...AnyEvent, minProperties: 1 },
        response: { 200: ref(IngestDiagnosis) },
      }),
      onRequest: async (request, reply) => {
        await limits?.admitCredential(request, reply)
        requireSecret(request, currentValue(ingestSecret))
      },
    },
    async ({ body, core, correlationId }) => {
      const event = parseEvent(body)
      await core.apps.findApp({ clientId: event.clientId })
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

// Replaces a missing secret with a random one, so that every request is refused.
const unknownSecret = randomUUID()

function requireSecret(request: FastifyRequest, secret: string | undefined): void {
  const token = bearerToken(readAuthorization(request.raw.rawHeaders)) ?? ''
  const right = equalSecrets(token, secret ?? unknownSecret)
  if (!right) throw new DomainError('TOKEN_INVALID', 'send the ingest secret as Bearer')
}

/** Reads each field from the envelope, otherwise from its `data`. */
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
    clientId: requireText(member('client_id') ?? clientOfAuth, 'client_id'),
    externalUserId: requireText(
      member('usage_subject', 'external_user_id') ?? userOfAuth,
      'usage_subject or external_user_id',
    ),
    requestId: requireText(member('request_id', 'id'), 'request_id or id'),
  }
}

function splitOnce(text: string): [string?, string?] {
  const colon = text.indexOf(':')
  return colon < 0 ? [] : [text.slice(0, colon), text.slice(colon + 1)]
}

function requireText(text: string | undefined, name: string): string {
  if (text === undefined || text === '')
    throw new DomainError('REQUEST_INVALID', `${name} is required`)
  return text
}
