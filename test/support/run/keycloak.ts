import { generateKeyPairSync, randomUUID } from 'node:crypto'
import { asRecord } from '../../gateway/support.ts'
import { registerSecret } from './secrecy.ts'

/** Clients of a realm. Each can get tokens for itself, and for users with their password. */
export const clientIds = ['shop-web', 'brief-web', 'other-web'] as const
export type RealmClient = (typeof clientIds)[number]

/** Lifetime of tokens of `brief-web` in seconds; those of the others live for a day. */
const briefSeconds = 60

/** A realm of a real Keycloak, with one user. */
export interface Realm {
  readonly issuer: string
  readonly username: string
  /**
   * Returns the user's access token, requested with the client's secret and the user's password.
   */
  userToken(clientId?: RealmClient): Promise<string>
  /** Returns an access token of the client itself. */
  serviceToken(clientId?: RealmClient): Promise<string>
  /** Signs with a new key from now on; earlier keys stay published. */
  rotateKeys(): Promise<void>
  remove(): Promise<void>
}

/** Creates a realm in the Keycloak that the environment names (.ci/services.sh). */
export async function createRealm(env: NodeJS.ProcessEnv = process.env): Promise<Realm> {
  const url = env['TEST_KEYCLOAK_URL'] ?? ''
  const [admin = '', adminPassword = ''] = (env['TEST_KEYCLOAK_ADMIN'] ?? '').split(':')
  const realm = `realm-${randomUUID()}`
  const secret = registerSecret(randomUUID())
  const person = { username: 'ada', password: registerSecret(randomUUID()) }

  const tokenOf = async (of: string, form: Readonly<Record<string, string>>): Promise<string> => {
    const body = new URLSearchParams(form)
    const at = `${url}/realms/${of}/protocol/openid-connect/token`
    return registerSecret(String((await answerOf(at, { method: 'POST', body }))['access_token']))
  }

  /**
   * Calls its administration API with a new token, because administrator tokens live for a minute.
   */
  async function manage(method: string, path: string, body?: object): Promise<void> {
    const token = await tokenOf('master', {
      grant_type: 'password',
      client_id: 'admin-cli',
      username: admin,
      password: registerSecret(adminPassword),
    })
    await answerOf(`${url}/admin/realms${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
  }

  let priority = 100
  await manage('POST', '', {
    realm,
    enabled: true,
    accessTokenLifespan: 86_400,
    clients: clientIds.map((clientId) => clientOf(clientId, secret)),
    users: [userOf(person)],
    components: { [keyProvider]: [keyOf(priority)] },
  })

  const client = (clientId: RealmClient) => ({ client_id: clientId, client_secret: secret })
  return {
    issuer: `${url}/realms/${realm}`,
    username: person.username,
    userToken: (clientId = 'shop-web') =>
      tokenOf(realm, { grant_type: 'password', ...client(clientId), ...person }),
    serviceToken: (clientId = 'shop-web') =>
      tokenOf(realm, { grant_type: 'client_credentials', ...client(clientId) }),
    rotateKeys: () =>
      manage('POST', `/${realm}/components`, {
        ...keyOf((priority += 100)),
        providerType: keyProvider,
      }),
    remove: () => manage('DELETE', `/${realm}`),
  }
}

/**
 * Returns the JSON of the response, or {} if it is empty. Throws with the full response unless the
 * status is 2xx.
 */
async function answerOf(url: string, init: RequestInit): Promise<Record<string, unknown>> {
  const response = await fetch(url, init)
  const text = await response.text()
  if (!response.ok) throw new Error(`Keycloak answers ${response.status} at ${url}: ${text}`)
  return text === '' ? {} : asRecord(JSON.parse(text))
}

const clientOf = (clientId: RealmClient, secret: string) => ({
  clientId,
  secret,
  serviceAccountsEnabled: true,
  directAccessGrantsEnabled: true,
  attributes: clientId === 'brief-web' ? { 'access.token.lifespan': String(briefSeconds) } : {},
})

const userOf = ({ username, password }: { username: string; password: string }) => ({
  username,
  enabled: true,
  email: `${username}@example.com`,
  firstName: 'Ada',
  lastName: 'Lovelace',
  credentials: [{ type: 'password', value: password, temporary: false }],
})

const keyProvider = 'org.keycloak.keys.KeyProvider'

/** Generates the key here, because Keycloak needs seconds for one. */
const keyOf = (priority: number) => ({
  name: `key-${priority}`,
  providerId: 'rsa',
  config: {
    priority: [String(priority)],
    enabled: ['true'],
    active: ['true'],
    algorithm: ['RS256'],
    privateKey: [
      generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({
        type: 'pkcs8',
        format: 'pem',
      }),
    ],
  },
})
