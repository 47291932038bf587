import { GrantType, TokenType } from '../../proto/oauth.ts'
import type { Example } from '../platform-api/docs/openapi.ts'

const clientId = 'app_0123456789abcdef01234567'
const user = {
  id: '3f0e8d1c-6f0a-4c55-9a0e-5d2a0c1b7e43',
  clientId,
  externalUserId: 'user-123',
  email: 'ada@example.com',
  status: 'active',
}

/** Keyed by method and path: `post /api/v1/apps/{clientId}/users`. */
export const examples: Readonly<Record<string, Example>> = {
  'post /api/v1/apps/{clientId}/users': {
    body: { externalUserId: 'user-123', email: 'ada@example.com' },
    answers: {
      200: user,
      201: { ...user, apiKey: 'sk_…' },
    },
  },
  'post /api/v1/apps/{clientId}/oidc/token': {
    body: {
      grant_type: GrantType.tokenExchange,
      subject_token: 'sk_…',
      subject_token_type: TokenType.accessToken,
    },
    answers: {
      200: {
        access_token: 'eyJhbGciOiJSUzI1NiIsInR5cCI6ImF0K2p3dCJ9.…',
        token_type: 'Bearer',
        expires_in: 300,
        scope: 'sign:job',
        signer_url: 'https://signer.example.com',
        discovery_url: 'https://signer.example.com/discover-orchestrators',
        issued_token_type: TokenType.accessToken,
        correlation_id: '0b0f3c5e-2f7a-4a4e-9a53-3c1a6c2f9d10',
        has_access: true,
        can_spend: true,
        balance_usd_micros: 4200000,
      },
    },
  },
  'get /api/v1/apps/{clientId}/usage': {
    answers: {
      200: {
        clientId,
        meter: 'network_fee_usd_micros',
        actor: 'user-123',
        subjects: [`${clientId}:user-123`],
        rows: [
          {
            subject: `${clientId}:user-123`,
            windowStart: '2026-04-01T00:00:00.000Z',
            windowEnd: '2026-05-01T00:00:00.000Z',
            value: 800000,
            valueExact: '800000',
            groupBy: {
              client_id: clientId,
              external_user_id: 'user-123',
              pipeline: 'text-to-image',
            },
          },
        ],
      },
    },
  },
}
