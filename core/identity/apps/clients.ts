import { DomainError } from '../../../proto/errors.ts'
import { createBatchLoader } from '../../lib/concurrency.ts'
import { newSecret, uuidV7 } from '../../lib/crypto.ts'
import type { Db } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import {
  type AppId,
  type ClientId,
  type RegisteredClientId,
  appId,
  isClientId,
  isM2mClientId,
  isRegisteredClientId,
} from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import type { M2mCaller } from '../../rpc/callers.ts'
import type { LoginPolicy } from '../types.ts'
import * as store from './store.ts'

export const clientSecretPrefix = 'svc_cs_'
const validSecretsMax = 5

export type ClientsDeps = Shared & {
  /** Seconds for which older secrets stay valid after a rotation. */
  readonly secretOverlapSeconds: number
}

/**
 * An app's own public client or a client registered with the app, with the fields that people see.
 */
export interface PublicClient {
  readonly appId: AppId
  readonly clientId: ClientId | RegisteredClientId
  /** The app's own public client, which identifies the app in tokens. */
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
  /** URL of the app's signer; empty for the deployment's signer. */
  readonly dmzUrl: string
  readonly loginPolicy: LoginPolicy
  /** E-mail domains that may log in under the policy `domains`. */
  readonly loginDomains: readonly string[]
}

/** OAuth clients of apps: look-up, authentication and the secrets of M2M clients. */
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

  /**
   * Returns the M2M client of the first pair with the right secret. Otherwise throws
   * CREDENTIAL_INVALID; an unknown client takes the same work.
   */
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

  /**
   * Returns the current M2M client by id, without a credential; null if it is missing or its app is
   * not active.
   */
  async function findM2m(clientId: string): Promise<M2mCaller | null> {
    const [row] = await findM2mRows(clientId)
    return row ? toCaller(row, null) : null
  }

  /** Returns the public client by id; null if it is missing or its app is not active. */
  async function findPublic(clientId: string): Promise<PublicClient | null> {
    const client = await findPublicOrDisabled(clientId)
    return client?.isAppActive ? client : null
  }

  /** Same as `findPublic`, but also finds the client of a disabled app. */
  async function findPublicOrDisabled(clientId: string): Promise<PublicClient | null> {
    if (!isClientId(clientId) && !isRegisteredClientId(clientId)) return null
    const row = await findPublicRow(clientId)
    return row && toPublicClient(clientId, row)
  }

  /**
   * Returns the app of a public client id, including disabled apps: for operators. Throws NOT_FOUND
   * if it is missing.
   */
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
   * Creates a secret of the app's M2M client. Older secrets expire after the overlap or, with
   * `revokeOld`, now; `endedIds` are then their ids. Throws CONFLICT when too many secrets are
   * valid. The app's row must be locked.
   */
  async function rotateSecret(db: Db, app: AppId, request: { revokeOld: boolean }) {
    const at = now()
    const client = pickClient(await store.findClients(db, app, at), 'm2m')
    const end = request.revokeOld ? at : addSeconds(at, secretOverlapSeconds)
    const olderIds = await store.endSecrets(db, client.client_id, { at, end })
    if ((await store.countValidSecrets(db, client.client_id, at)) >= validSecretsMax) {
      throw new DomainError(
        'CONFLICT',
        `a client may have ${validSecretsMax} valid secrets; revoke the old ones`,
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

/** Returns the client of this kind. Every app has one of each kind. */
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

/**
 * Puts the name in quotation marks, so that people see where it ends. Replaces quotation marks
 * inside the name.
 */
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
    // A registered client chooses its own name, so show the app's name, too.
    appName: name === null ? row.app_name : `${quoted(name)} (registered with ${row.app_name})`,
    appColor: row.app_color,
    isAppActive: row.app_status === 'active',
    dmzUrl: row.dmz_url,
    loginPolicy: row.login_policy,
    loginDomains: row.login_domains,
  }
}
