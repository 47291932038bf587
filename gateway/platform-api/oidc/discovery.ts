import { getOrInsert } from '../../../core/lib/maps.ts'
import { Type } from 'typebox'
import { m2mScopes, publicVocabulary } from '../../../proto/scopes.ts'
import type { App } from '../../http/app.ts'
import { get } from '../../http/endpoint.ts'
import type { CoreCalls } from '../../core/client.ts'
import { type CachedDocument, answerCached, cacheDocument } from '../../http/cached-document.ts'
import type { KeySet } from './key-set.ts'

const Address = Type.String({ format: 'uri' })
const strings = Type.Array(Type.String())

const Discovery = Type.Object({
  issuer: Address,
  authorization_endpoint: Address,
  token_endpoint: Address,
  userinfo_endpoint: Address,
  jwks_uri: Address,
  device_authorization_endpoint: Address,
  registration_endpoint: Type.Optional(Address),
  introspection_endpoint: Address,
  revocation_endpoint: Address,
  end_session_endpoint: Address,
  authorization_response_iss_parameter_supported: Type.Boolean(),
  response_types_supported: strings,
  response_modes_supported: strings,
  grant_types_supported: strings,
  scopes_supported: strings,
  subject_types_supported: strings,
  id_token_signing_alg_values_supported: strings,
  claims_parameter_supported: Type.Boolean(),
  request_parameter_supported: Type.Boolean(),
  request_uri_parameter_supported: Type.Boolean(),
  prompt_values_supported: strings,
  token_endpoint_auth_methods_supported: strings,
  introspection_endpoint_auth_methods_supported: strings,
  revocation_endpoint_auth_methods_supported: strings,
  code_challenge_methods_supported: strings,
  claims_supported: strings,
})

/** Path at the edge where clients register (RFC 7591). */
export const registrationPath = '/api/v1/oidc/register'

/** Every scope that a client can have. */
const scopes = [...publicVocabulary, ...m2mScopes]
const claims = [
  'sub',
  'iss',
  'aud',
  'exp',
  'iat',
  'auth_time',
  'nonce',
  'email',
  'email_verified',
  'name',
]
const secretMethods = ['client_secret_basic', 'client_secret_post']

export interface DiscoveryDeps {
  readonly publicUrl: string
  /** The algorithm to publish while core, which has the keys, does not answer. */
  readonly tokenAlg: string
  readonly keySet: KeySet
  readonly grantTypes: string[]
  /** Origin of the builder API's edge, where clients register. */
  readonly edgeUrl?: string | undefined
}

// RFC 8414 section 3.1 puts the well-known part before the issuer's path, OpenID Connect Discovery
// after it.
const addresses = [
  ['/api/v1/oidc/.well-known/openid-configuration', 'getOpenIdConfiguration'],
  ['/.well-known/openid-configuration', 'getOpenIdConfigurationAtRoot'],
  ['/.well-known/oauth-authorization-server/api/v1/oidc', 'getAuthorizationServerMetadata'],
] as const

/** OpenID Connect Discovery, at the issuer and at the origin's root, and RFC 8414. */
export function discoveryRoutes(app: App, deps: DiscoveryDeps): void {
  metadataRoutes(app, deps, addresses)
}

/** Serves the document at `addresses`. */
export function metadataRoutes(
  app: App,
  deps: DiscoveryDeps,
  addresses: readonly (readonly [string, string])[],
): void {
  const readDocument = documentReader(deps)
  for (const [path, operationId] of addresses) {
    get({
      url: path,
      guard: { kind: 'none' },
      document: true,
      operationId,
      summary: 'Discovery document',
      description:
        "Returns the issuer's metadata: endpoints and capabilities, as in OpenID Connect Discovery and RFC 8414. All of its addresses return the same document.",
      tags: ['oidc'],
      response: { 200: Discovery, 304: Type.Null({ description: 'Not changed' }) },
      handler: (request, reply) => {
        const document = readDocument(() => request.core)
        return answerCached(request, reply, { document, maxAge: 3_600 })
      },
    })(app)
  }
}

/**
 * Caches the document by the current signing key's algorithm, because TOKEN_ALG may have changed
 * since the first start.
 */
function documentReader({ keySet, tokenAlg, ...deps }: DiscoveryDeps) {
  const withAlg = (alg: string) => ({
    ...documentOf(deps),
    id_token_signing_alg_values_supported: [alg],
  })
  const held = new Map<string, CachedDocument<ReturnType<typeof withAlg>>>()
  const documentFor = (alg = tokenAlg) => getOrInsert(held, alg, () => cacheDocument(withAlg(alg)))
  return (core: () => CoreCalls) => {
    const keys = keySet.read(core)
    if (!(keys instanceof Promise)) return documentFor(keys.value.keys[0]?.alg)
    return keys.then(
      ({ value }) => documentFor(value.keys[0]?.alg),
      () => documentFor(),
    )
  }
}

/** Returns the document. It lists only what works now. */
function documentOf({
  publicUrl,
  grantTypes,
  edgeUrl,
}: Pick<DiscoveryDeps, 'publicUrl' | 'grantTypes' | 'edgeUrl'>) {
  const issuer = `${publicUrl}/api/v1/oidc`
  return {
    issuer,
    authorization_endpoint: `${issuer}/auth`,
    token_endpoint: `${issuer}/token`,
    userinfo_endpoint: `${issuer}/me`,
    jwks_uri: `${issuer}/jwks`,
    device_authorization_endpoint: `${issuer}/device/auth`,
    ...(edgeUrl === undefined ? {} : { registration_endpoint: edgeUrl + registrationPath }),
    introspection_endpoint: `${issuer}/token/introspection`,
    revocation_endpoint: `${issuer}/token/revocation`,
    end_session_endpoint: `${issuer}/session/end`,
    // RFC 9207 section 3.
    authorization_response_iss_parameter_supported: true,
    response_types_supported: ['code'],
    response_modes_supported: ['query'],
    grant_types_supported: grantTypes,
    scopes_supported: scopes,
    subject_types_supported: ['public'],
    // OpenID Connect Discovery section 3: if a document omits request_uri, it counts as supported.
    claims_parameter_supported: false,
    request_parameter_supported: false,
    request_uri_parameter_supported: false,
    prompt_values_supported: ['none', 'login', 'consent', 'select_account'],
    token_endpoint_auth_methods_supported: ['none', ...secretMethods],
    introspection_endpoint_auth_methods_supported: secretMethods,
    revocation_endpoint_auth_methods_supported: ['none', ...secretMethods],
    code_challenge_methods_supported: ['S256'],
    claims_supported: claims,
  }
}
