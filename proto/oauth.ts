/** Wire names of OAuth: grant types and token types. */

export const GrantType = {
  authorizationCode: 'authorization_code',
  clientCredentials: 'client_credentials',
  refreshToken: 'refresh_token',
  /** RFC 8628 section 3.4. */
  deviceCode: 'urn:ietf:params:oauth:grant-type:device_code',
  /** RFC 8693 section 2.1. */
  tokenExchange: 'urn:ietf:params:oauth:grant-type:token-exchange',
} as const
export type GrantType = (typeof GrantType)[keyof typeof GrantType]

/**
 * Grant types (RFC 7591 section 2) of a new app's public client. An owner may choose among the same
 * types.
 */
export const publicGrantTypes = [
  GrantType.authorizationCode,
  GrantType.refreshToken,
  GrantType.deviceCode,
] as const

/** Grant types of an app's M2M client. */
export const m2mGrantTypes = [GrantType.clientCredentials, GrantType.tokenExchange] as const

/** Token types of RFC 8693 section 3, and two names for API keys. */
export const TokenType = {
  accessToken: 'urn:ietf:params:oauth:token-type:access_token',
  jwt: 'urn:ietf:params:oauth:token-type:jwt',
  apiKey: 'urn:svc:oauth:token-type:api_key',
  legacyApiKey: 'urn:pymthouse:oauth:token-type:api_key',
} as const
