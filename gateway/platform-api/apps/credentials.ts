import { Type } from 'typebox'
import { DomainError } from '../../../proto/errors.ts'
import type { App } from '../../http/app.ts'
import { post } from '../../http/endpoint.ts'
import { CorrelationId, IdempotencyHeader, addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant, oneOf } from '../schemas.ts'

const ClientSecret = named(
  Type.Object({
    clientId: Type.String({ description: 'The M2M client (m2m_…).' }),
    clientSecret: Type.String({ description: 'Shown only here.' }),
    target: Type.String(),
    createdAt: Instant('When the secret was created.'),
    oldSecretsExpireAt: Instant('When the older secrets end.'),
    revokedKeys: Type.Integer({ description: 'API keys that ended with the older secrets.' }),
    message: Type.String(),
    correlation_id: CorrelationId,
  }),
  'ClientSecret',
)

/** Secrets of an app's M2M client. */
export function credentialRoutes(app: App): void {
  addSchemas(app, [ClientSecret])
  post({
    url: '/api/v1/apps/:clientId/credentials',
    guard: { kind: 'member_edit' },
    refuses: ['CONFLICT'],
    operationId: 'rotateClientSecret',
    summary: 'Make a new secret of the M2M client',
    description:
      'Makes a new secret of the M2M client and returns it once. Older secrets work until oldSecretsExpireAt, so that the app can switch; with revokeOld=true they end at once.',
    tags: ['apps'],
    params: AppParams,
    headers: IdempotencyHeader,
    querystring: Type.Object({
      target: Type.Optional(oneOf(['m2m', 'public'], 'm2m; the public client never has a secret')),
      revokeOld: Type.Optional(
        oneOf(
          ['true', 'false'],
          'true ends the older secrets at once, with the tokens, signer sessions and API keys that were made with them',
        ),
      ),
      keepKeys: Type.Optional(
        oneOf(['true', 'false'], 'true keeps API keys that were made with older secrets'),
      ),
    }),
    response: { 200: ref(ClientSecret) },
    handler: async ({
      params,
      query: { target, revokeOld, keepKeys },
      headers,
      core,
      correlationId,
    }) => {
      if (target !== 'm2m')
        throw new DomainError(
          'REQUEST_INVALID',
          'target must be m2m: the public client never has a secret',
        )
      const secret = await core.management.rotateClientSecret({
        ...params,
        revokeOld: revokeOld === 'true',
        keepKeys: keepKeys === 'true',
        idempotencyKey: headers['idempotency-key'],
      })
      return {
        clientId: secret.m2mClientId,
        clientSecret: secret.clientSecret,
        target,
        createdAt: secret.createdAt,
        oldSecretsExpireAt: secret.oldSecretsExpireAt,
        revokedKeys: secret.revokedKeys,
        message: 'Store the secret now; it is not shown again.',
        correlation_id: correlationId,
      }
    },
  })(app)
}
