import type { TrustRules } from '../../../proto/gen/ts-proto/tollgate/identity/v1/issuers.ts'

/**
 * An access token as a provider documents it, and the rules by which an app trusts it
 * (docs/trusted-issuers.md).
 */
export interface ProviderShape {
  readonly name: string
  /** Path of the issuer URL, as in the token's `iss`. */
  readonly path: string
  readonly alg: 'RS256' | 'ES256'
  /** Header members other than `alg` and `kid`. */
  readonly header: Readonly<Record<string, unknown>>
  readonly claims: Readonly<Record<string, unknown>>
  readonly trust: Partial<TrustRules>
  /** Whether the app configures the address of the provider's keys. */
  readonly pinsKeys?: boolean
  readonly user: string
  /** Claims of a token for another app of the same tenant. */
  readonly others: Readonly<Record<string, unknown>>
}

export const providers: readonly ProviderShape[] = [
  {
    name: 'Auth0',
    path: '/auth0/',
    alg: 'RS256',
    header: { typ: 'JWT' },
    claims: {
      sub: 'auth0|65f0a1b2c3d4e5f6a7b8c9d0',
      aud: ['https://api.shop.example', 'https://shop.eu.auth0.com/userinfo'],
      azp: 'mZ3kQxV0shopweb',
      scope: 'openid profile email',
    },
    trust: {
      audiences: ['https://api.shop.example'],
      clientClaim: 'azp',
      clientValues: ['mZ3kQxV0shopweb'],
    },
    user: 'auth0|65f0a1b2c3d4e5f6a7b8c9d0',
    others: { azp: 'anotherClient' },
  },
  {
    name: 'Keycloak',
    path: '/realms/shop',
    alg: 'RS256',
    header: { typ: 'JWT' },
    claims: {
      jti: 'onrtac:3f1f0d0e-8d4a-4f0b-9b62-0d7c8cbe2a11',
      aud: 'account',
      sub: '8f14e45f-ceea-467f-a0e6-1b2c3d4e5f60',
      typ: 'Bearer',
      azp: 'shop-web',
      sid: 'a2e3b4c5-0000-4000-8000-000000000001',
      acr: '1',
      realm_access: { roles: ['offline_access', 'uma_authorization'] },
      scope: 'openid email profile',
      preferred_username: 'ada',
    },
    trust: { clientClaim: 'azp', clientValues: ['shop-web'], userClaim: 'preferred_username' },
    user: 'ada',
    others: { azp: 'other-web' },
  },
  {
    name: 'Entra',
    path: '/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0',
    alg: 'RS256',
    header: { typ: 'JWT' },
    claims: {
      aud: '6e74172b-be56-4843-9ff4-e66a39bb12e3',
      azp: '7c4d2f00-1111-4b5c-8d6e-2f3a4b5c6d7e',
      azpacr: '0',
      oid: '690222be-ff1a-4d56-abd1-7e4f7d38e474',
      sub: 'HKZpfaHyWadeOouYlitjrI-KffTm222X5rrV3xDqfKQ',
      tid: '9188040d-6c67-4c5b-b112-36a304b66dad',
      scp: 'access_as_user',
      ver: '2.0',
      uti: 'fqiBqXLPj0eQa82S-IYFAA',
    },
    trust: { audiences: ['6e74172b-be56-4843-9ff4-e66a39bb12e3'], userClaim: 'oid' },
    user: '690222be-ff1a-4d56-abd1-7e4f7d38e474',
    others: { aud: '00000000-be56-4843-9ff4-e66a39bb12e3' },
  },
  {
    name: 'Cognito',
    path: '/eu-west-1_EXAMPLE',
    alg: 'RS256',
    // No typ, and no aud in its access tokens.
    header: {},
    claims: {
      sub: 'aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee',
      client_id: '57cbishk4j24pabc1234567890',
      origin_jti: 'aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeee1',
      event_id: '64f513be-32db-42b0-b78e-b02127b4f463',
      token_use: 'access',
      scope: 'aws.cognito.signin.user.admin',
      username: 'ada',
    },
    trust: { clientClaim: 'client_id', clientValues: ['57cbishk4j24pabc1234567890'] },
    user: 'aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee',
    others: { client_id: 'anotherclient' },
  },
  {
    name: 'Clerk',
    path: '/clerk',
    alg: 'RS256',
    header: { typ: 'JWT', cat: 'cl_B7d4PD111AAA' },
    claims: {
      azp: 'https://shop.example',
      fva: [0, -1],
      sid: 'sess_2GbDB4enNdCa5vS1zpC3Xzg9tK9',
      sts: 'active',
      sub: 'user_2GIpXOEpVyJw51rkZn9Kmnc6Sxr',
      v: 2,
    },
    trust: { clientClaim: 'azp', clientValues: ['https://shop.example'] },
    user: 'user_2GIpXOEpVyJw51rkZn9Kmnc6Sxr',
    others: { azp: 'https://evil.example' },
  },
  {
    name: 'Supabase',
    path: '/auth/v1',
    alg: 'ES256',
    header: { typ: 'JWT' },
    claims: {
      aud: 'authenticated',
      sub: 'd0cb6d9a-2c1f-4b07-9f5b-2c9e3a1f0b11',
      role: 'authenticated',
      aal: 'aal1',
      session_id: '5d7e1f00-0000-4000-8000-000000000002',
      is_anonymous: false,
      email: 'ada@example.com',
    },
    trust: { audiences: ['authenticated'], clientClaim: 'role', clientValues: ['authenticated'] },
    pinsKeys: true,
    user: 'd0cb6d9a-2c1f-4b07-9f5b-2c9e3a1f0b11',
    others: { role: 'anon', aud: 'anon' },
  },
]
