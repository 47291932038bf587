import type { AppView } from './management.ts'
import type { AppRow, ClientRow, DomainRow, MeteringMode, OwnAppRow } from './store.ts'

export const ownApp = (row: OwnAppRow) => ({
  clientId: row.client_id,
  name: row.name,
  // A platform admin also gets apps without being a member.
  role: row.role ?? '',
  isOwner: row.role === 'owner',
  createdAt: row.created_at.toISOString(),
  isTest: row.is_test,
})

/** Defaults for apps without their own signer. */
export interface Deployment {
  readonly defaultDmzUrl: string
  readonly meteringMode: MeteringMode
}

/**
 * Returns an app's signer and metering mode. Only an app with its own signer can set its own mode.
 */
export const toSigner = (row: AppRow, { defaultDmzUrl, meteringMode }: Deployment) =>
  row.dmz_url === ''
    ? { dmzUrl: defaultDmzUrl, meteringMode }
    : { dmzUrl: row.dmz_url, meteringMode: row.signer_metering_mode ?? meteringMode }

export const app = (
  { app: row, publicClient, m2mClient, domains }: AppView,
  { role, ...deployment }: Deployment & { role: string },
) => ({
  clientId: publicClient.client_id,
  name: row.name,
  status: row.status === 'active' ? 'approved' : row.status,
  color: row.color,
  developerName: row.developer_name,
  websiteUrl: row.website_url,
  createdAt: row.created_at.toISOString(),
  oidcClient: client(publicClient),
  m2mOidcClient: client(m2mClient),
  domains: domains.map(domain),
  ...toSigner(row, deployment),
  loginPolicy: row.login_policy,
  loginDomains: row.login_domains,
  loginCredit: row.login_credit,
  isTest: row.is_test,
  role,
})

const client = (row: ClientRow) => ({
  clientId: row.client_id,
  redirectUris: row.redirect_uris,
  postLogoutRedirectUris: row.post_logout_redirect_uris,
  allowedScopes: row.scopes,
  grantTypes: row.grant_types,
  tokenEndpointAuthMethod: row.kind === 'public' ? 'none' : 'client_secret_basic',
  hasSecret: row.secret_starts.length > 0,
  secrets: row.secret_starts.map((createdAt, index) => ({
    createdAt: createdAt.toISOString(),
    expiresAt: row.secret_ends[index]?.toISOString(),
  })),
  initiateLoginUri: row.initiate_login_uri ?? undefined,
  deviceThirdPartyInitiateLogin: row.device_third_party_initiate_login,
})

export const domain = (row: DomainRow) => ({
  id: row.id,
  origin: row.origin,
  createdAt: row.created_at.toISOString(),
})
