import { DomainError } from '../../../../proto/errors.ts'
import { newSecret } from '../../../lib/crypto.ts'
import { isObject, readText } from '../../../lib/json.ts'
import type { Auth0Config } from '../config.ts'
import type { CallBounds, Directory, DirectoryUser, NewDirectoryUser } from '../directory.ts'
import {
  type Auth0Deps,
  type ManagementAnswer,
  createManagementApi,
  readMessage,
  unavailable,
} from './api.ts'
import { type Connection, createConnections } from './connections.ts'

/**
 * Auth0 as a directory. We derive a user's id from the app and the external id, so a second
 * creation is a conflict. The user is then read by id, which does not depend on Auth0's delayed
 * search index.
 */
export function createAuth0Directory({ config, log }: Auth0Deps): Directory {
  const api = createManagementApi({ config, log })
  const connections = createConnections({ api, log })

  async function createUser(user: NewDirectoryUser, bounds: CallBounds): Promise<DirectoryUser> {
    const connection = await connections.get(allowedConnection(config, user.connection), bounds)
    const body = newUserBody(user, connection)
    const id = `${connection.strategy}|${user.name}`
    const answer = await api({ method: 'POST', path: '/api/v2/users', body }, bounds)
    if (answer.status === 201) return { providerUserId: id, email: user.email }
    if (answer.status !== 409) throw refusalOf(answer)
    const existing = await readUser(id, bounds)
    if (existing) return existing
    throw new DomainError(
      'REQUEST_INVALID',
      'another user of the identity provider has this e-mail address; leave it out or send another one',
    )
  }

  async function readUser(id: string, bounds: CallBounds): Promise<DirectoryUser | null> {
    const fields = '?fields=user_id,email&include_fields=true'
    const answer = await api({ method: 'GET', path: pathOf(id) + fields }, bounds)
    if (answer.status === 404) return null
    if (answer.status !== 200 || !isObject(answer.body)) throw unavailable()
    return { providerUserId: id, email: readText(answer.body['email']) || null }
  }

  async function changeEmail(
    { providerUserId, email }: DirectoryUser,
    bounds: CallBounds,
  ): Promise<boolean> {
    // Auth0 uses the user's own connection and refuses another one.
    const body = { email, email_verified: false, verify_email: false }
    const answer = await api({ method: 'PATCH', path: pathOf(providerUserId), body }, bounds)
    if (answer.status === 404) return false
    if (answer.status === 200) return true
    throw refusalOf(answer)
  }

  return { name: `auth0:${new URL(config.url).host}`, createUser, changeEmail }
}

const pathOf = (id: string): string => `/api/v2/users/${encodeURIComponent(id)}`

function allowedConnection({ connections }: Auth0Config, name: string | undefined): string {
  if (name === undefined || name === '') return connections[0]
  if (connections.includes(name)) return name
  throw new DomainError('REQUEST_INVALID', `connection must be one of: ${connections.join(', ')}`)
}

/** A random password that is never stored or shown: users set their own on the provider's pages. */
const unknownPassword = (): string => newSecret('Aa1!')

function newUserBody(user: NewDirectoryUser, connection: Connection) {
  const { name, username, email, externalUserId, clientId } = user
  if (email === null && !connection.hasUsernames)
    throw new DomainError(
      'REQUEST_INVALID',
      `email is required: users of the connection ${connection.name} sign in with it`,
    )
  return {
    connection: connection.name,
    user_id: name,
    ...(email === null ? {} : { email, email_verified: false, verify_email: false }),
    ...(connection.hasUsernames ? { username } : {}),
    ...(connection.hasPasswords ? { password: unknownPassword() } : {}),
    app_metadata: { externalUserId, appClientId: clientId },
  }
}

/**
 * Converts a 4xx response about this user into REQUEST_INVALID. Anything else is
 * PROVIDER_UNAVAILABLE.
 */
function refusalOf({ status, body }: ManagementAnswer): DomainError {
  if (status < 400 || status >= 500 || status === 404) return unavailable()
  const message = readMessage(body)
  return new DomainError(
    'REQUEST_INVALID',
    `the identity provider refuses the user${message === '' ? '' : `: ${message}`}`,
  )
}
