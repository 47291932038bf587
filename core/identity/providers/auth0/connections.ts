import { LRUCache } from 'lru-cache'
import { isObject, readText, type JsonObject } from '../../../lib/json.ts'
import type { Log } from '../../../lib/log.ts'
import type { CallBounds } from '../directory.ts'
import { type ManagementApi, unavailable } from './api.ts'

export interface Connection {
  readonly name: string
  /** `auth0` for a user database, `email` for one-time codes by mail. User ids begin with it. */
  readonly strategy: string
  readonly hasUsernames: boolean
  readonly hasPasswords: boolean
}

const rememberMs = 600_000

/**
 * Connections in which users are created, cached for ten minutes. An unknown or unusable connection
 * is the operator's mistake: logs it and throws PROVIDER_UNAVAILABLE.
 */
export function createConnections({
  api,
  log,
}: {
  readonly api: ManagementApi
  readonly log: Log
}) {
  const remembered = new LRUCache<string, Connection>({ max: 100, ttl: rememberMs })

  async function get(name: string, bounds: CallBounds): Promise<Connection> {
    const known = remembered.get(name)
    if (known) return known
    const query = new URLSearchParams({ name, fields: 'name,strategy,options' })
    const { body } = await api({ method: 'GET', path: `/api/v2/connections?${query}` }, bounds)
    const row: unknown = Array.isArray(body) ? body[0] : undefined
    const connection = isObject(row) ? parseConnection(row) : null
    if (connection?.name !== name) {
      log.error(
        { provider: 'auth0', connection: name },
        'AUTH0_CONNECTION names a connection that does not exist or cannot create users',
      )
      throw unavailable()
    }
    remembered.set(name, connection)
    return connection
  }

  return { get }
}

function parseConnection(row: JsonObject): Connection | null {
  const [name, strategy] = [readText(row['name']), readText(row['strategy'])]
  if (strategy !== 'auth0' && strategy !== 'email') return null
  const isDatabase = strategy === 'auth0'
  const options = isObject(row['options']) ? row['options'] : {}
  return {
    name,
    strategy,
    hasUsernames: isDatabase && takesUsernames(options),
    hasPasswords: isDatabase,
  }
}

/** Checks the older option and the attributes that replace it. */
function takesUsernames(options: JsonObject): boolean {
  if (options['requires_username'] === true) return true
  const attributes = isObject(options['attributes']) ? options['attributes'] : {}
  const username = isObject(attributes['username']) ? attributes['username'] : {}
  const signup = isObject(username['signup']) ? username['signup'] : {}
  return signup['status'] === 'required' || signup['status'] === 'optional'
}
