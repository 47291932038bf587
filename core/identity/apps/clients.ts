import { DomainError } from '../../../proto/errors.ts'
import { createBatchLoader } from '../../lib/concurrency.ts'
import { newSecret, uuidV7 } from '../../lib/crypto.ts'
import type { Db, Pool } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import {
  type AppId,
  type ClientId,
  type RegisteredClientId,
  appId,
  isClientId,
  isM2mClientId,
  isRegisteredClientId,
} from '../../platform/ids.ts'
import type { Secrets } from '../../platform/secrets.ts'
import type { M2mCaller } from '../../rpc/callers.ts'
import type { LoginPolicy } from '../types.ts'
import * as store from './store.ts'

export const clientSecretPrefix = 'svc_cs_'
const validSecretsMax = 5

export interface ClientsDeps {
  readonly pool: Pool
  readonly secrets: Secrets
  /** How long older secrets stay valid beside a new one. */
  readonly secretOverlapSeconds: number
  readonly now: Now
}

/** The public client of an app, or one that registered with it, with what it shows to people. */
export interface PublicClient {
  readonly appId: AppId
  readonly clientId: ClientId | RegisteredClientId
  /** The app's own client, by which tokens name the app. */
  readonly publicClientId: ClientId
  readonly scopes: readonly string[]
  readonly grantTypes: readonly string[]
  readonly redirectUris: readonly string[]
  readonly postLogoutRedirectUris: readonly string[]
  readonly initiateLoginUri: string | null
  readonly deviceThirdPartyInitiateLogin: boolean
  readonly appName: string
  readonly appColor: string
  readonly isAppActive: boolean
  /** Where the app's signer answers; empty for the deployment's. */
  readonly dmzUrl: string
  readonly loginPolicy: LoginPolicy
  /** Whose addresses may log in under the policy `domains`. */
  readonly loginDomains: readonly string[]
}

/** The OAuth clients of apps: who they are, and the secrets of the M2M clients. */
export function createClients({ pool, secrets, secretOverlapSeconds, now }: ClientsDeps) {
  const findM2mRows = createBatchLoader(async (ids: readonly string[]) => {
    const rows = Map.groupBy(
      await store.findM2mClients(pool, [...new Set(ids)], now()),
      (row) => row.client_id,
    )
    return (id) => rows.get(id) ?? []
  })

  const findPublicRow = createBatchLoader(async (ids: readonly string[]) => {
    const rows = await store.findPublicClients(pool, [...new Set(ids)])
    const byId = new Map(rows.map((row) => [row.client_id, row]))
    return (id) => byId.get(id) ?? null
  })

  /** The M2M client of the first pair whose secret is right. CREDENTIAL_INVALID otherwise, after the same work for unknown clients. */
  async function authenticate(
    pairs: readonly { id: string; secret: string }[],
  ): Promise<M2mCaller> {
    for (const { id, secret } of pairs) {
      const rows = isM2mClientId(id) ? await findM2mRows(id) : []
      const match = rows.find(
        (row) =>
          row.secret_hash !== null &&
          row.pepper_id !== null &&
          secrets.matches(secret, { hash: row.secret_hash, pepperId: row.pepper_id }),
      )
      if (rows.length === 0) secrets.store(secret)
      if (match) return toCaller(match, match.secret_id)
    }
    throw new DomainError('CREDENTIAL_INVALID', 'the client id or secret is wrong')
  }

  /** The M2M client of that id as it is now, with no credential; null when there is none or its app is not active. */
  async function findM2m(clientId: string): Promise<M2mCaller | null> {
    const [row] = await findM2mRows(clientId)
    return row ? toCaller(row, null) : null
  }

  /** The public client of that id; null when there is none or its app is not active. */
  async function findPublic(clientId: string): Promise<PublicClient | null> {
    const client = await findPublicOrDisabled(clientId)
    return client?.isAppActive ? client : null
  }

  /** As `findPublic`, and also the client of a disabled app. */
  async function findPublicOrDisabled(clientId: string): Promise<PublicClient | null> {
    if (!isClientId(clientId) && !isRegisteredClientId(clientId)) return null
    const row = await findPublicRow(clientId)
    return row && toPublicClient(clientId, row)
  }

  /** The app of a public client id, disabled ones too: for operators. NOT_FOUND when there is none. */
  async function appOf(clientId: string): Promise<AppId> {
    const client = isClientId(clientId) ? await findPublicOrDisabled(clientId) : null
    if (!client)
      throw new DomainError(
        'NOT_FOUND',
        'no app has this client id; it begins with app_, and ./tollgate app list shows it',
      )
    return client.appId
  }

  /**
   * A new secret of the app's M2M client. Older secrets expire after the overlap, or now: then their ids are the
   * `endedIds`. CONFLICT when too many secrets are valid. The app's row must be locked.
   */
  async function rotateSecret(db: Db, app: AppId, request: { revokeOld: boolean }) {
    const at = now()
    const client = pickClient(await store.findClients(db, app, at), 'm2m')
    const end = request.revokeOld ? at : addSeconds(at, secretOverlapSeconds)
    const olderIds = await store.endSecrets(db, client.client_id, { at, end })
    if ((await store.countValidSecrets(db, client.client_id, at)) >= validSecretsMax) {
      throw new DomainError(
        'CONFLICT',
        `a client may have ${validSecretsMax} secrets that work; revoke the old ones`,
      )
    }
    const clientSecret = newSecret(clientSecretPrefix)
    await store.insertClientSecret(db, {
      id: uuidV7(at.getTime()),
      clientId: client.client_id,
      ...secrets.store(clientSecret),
      at,
    })
    return {
      m2mClientId: client.client_id,
      clientSecret,
      createdAt: at.toISOString(),
      oldSecretsExpireAt: end.toISOString(),
      endedIds: request.revokeOld ? olderIds : [],
    }
  }

  return { authenticate, findM2m, findPublic, findPublicOrDisabled, appOf, rotateSecret }
}

export type Clients = ReturnType<typeof createClients>

/** The client of that kind. Every app has one of each kind. */
export function pickClient(
  clients: readonly store.ClientRow[],
  kind: 'public' | 'm2m',
): store.ClientRow {
  const client = clients.find((candidate) => candidate.kind === kind)
  if (!client) throw new Error(`an app lacks its ${kind} client`)
  return client
}

function toCaller(row: store.M2mClientRow, secretId: string | null): M2mCaller {
  if (!isClientId(row.public_client_id) || !isM2mClientId(row.client_id))
    throw new Error('malformed client id in clients')
  return {
    kind: 'm2m',
    appId: appId(row.app_id),
    clientId: row.public_client_id,
    m2mClientId: row.client_id,
    scopes: row.scopes,
    publicScopes: row.public_scopes,
    grants: secretId === null ? [] : [secretId],
  }
}

/** The name in quotation marks, so that people see where it ends. It can hold none of these itself. */
const quoted = (name: string): string => `“${name.replaceAll(/["“”]/g, '’')}”`

function toPublicClient(
  clientId: ClientId | RegisteredClientId,
  row: store.PublicClientRow,
): PublicClient {
  if (!isClientId(row.public_client_id)) throw new Error('malformed client id in clients')
  const { registered_name: name, public_scopes: publicScopes } = row
  return {
    appId: appId(row.app_id),
    clientId,
    publicClientId: row.public_client_id,
    // The app may have lost scopes since the client registered.
    scopes: row.scopes.filter((scope) => publicScopes.includes(scope)),
    grantTypes: row.grant_types,
    redirectUris: row.redirect_uris,
    postLogoutRedirectUris: row.post_logout_redirect_uris,
    initiateLoginUri: row.initiate_login_uri,
    deviceThirdPartyInitiateLogin: row.device_third_party_initiate_login,
    // Nobody vouches for the name that a client gives itself, so people see whose client it is.
    appName: name === null ? row.app_name : `${quoted(name)} (registered with ${row.app_name})`,
    appColor: row.app_color,
    isAppActive: row.app_status === 'active',
    dmzUrl: row.dmz_url,
    loginPolicy: row.login_policy,
    loginDomains: row.login_domains,
  }
}
