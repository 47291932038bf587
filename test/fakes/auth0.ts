import { randomUUID } from 'node:crypto'
import { type IncomingMessage, type ServerResponse, createServer } from 'node:http'
import { type JsonObject, isObject, readText } from '../../core/lib/json.ts'
import { registerSecret } from '../support/run/secrecy.ts'

/**
 * Outcome of a request: answered; lost before or after it is processed; answered late, or after a
 * promise; refused with a status.
 */
export type Fault = 'none' | 'lose request' | 'lose answer' | 'late' | Promise<unknown> | number

export interface FakeCall {
  readonly method: string
  readonly path: string
  readonly body: JsonObject
}

export interface FakeAuth0User {
  readonly id: string
  readonly connection: string
  email: string | null
  readonly username: string | null
  readonly metadata: JsonObject
  readonly createdAt: number
}

export interface FakeConnection {
  readonly name: string
  readonly strategy: string
  readonly options: JsonObject
}

export const clientId = 'auth0-client-of-the-tests'
export const clientSecret = registerSecret('auth0-secret-of-the-tests-0123456789abcdef')

interface Reply {
  readonly status: number
  readonly body: unknown
}

const lateMs = 150
const permissions = ['create:users', 'read:users', 'update:users', 'read:connections']

/**
 * The part of Auth0's Management API that this project uses, as documented: tokens that expire, a
 * request budget per window, user ids and addresses that are unique in a connection, exact reads by
 * id, and a search that lags by seconds.
 */
export async function startAuth0() {
  const server = createServer((request, response) => {
    serve(request, response).catch(() => response.destroy())
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  const url = `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`
  const users = new Map<string, FakeAuth0User>()
  const tokens = new Set<string>()
  let window = { begin: 0, spent: 0 }

  const fake = {
    url,
    users,
    calls: [] as FakeCall[],
    tokenRequests: 0,
    /** Returns the outcome of each request. */
    faults: (() => 'none') as (call: FakeCall) => Fault,
    /** Reported lifetime of tokens in seconds; they are valid until `revokeTokens`. */
    tokenSeconds: 86_400,
    /** Requests per window of one second; null for no limit. */
    budget: null as number | null,
    searchLagMs: 2_000,
    connections: [
      {
        name: 'Username-Password-Authentication',
        strategy: 'auth0',
        options: { requires_username: true },
      },
      { name: 'mail-only', strategy: 'auth0', options: {} },
      { name: 'codes', strategy: 'email', options: {} },
      { name: 'corporate', strategy: 'samlp', options: {} },
    ] as FakeConnection[],
    /** Invalidates all tokens, as if they had expired. */
    revokeTokens: () => tokens.clear(),
    /** Settings of core. */
    env: {
      USER_PROVIDER: 'auth0',
      AUTH0_DOMAIN: url,
      AUTH0_CLIENT_ID: clientId,
      AUTH0_CLIENT_SECRET: clientSecret,
    },
    stop: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const call = await readCall(request)
    fake.calls.push(call)
    const fault = fake.faults(call)
    if (fault === 'lose request') return void response.destroy()
    if (typeof fault === 'number') return send(response, refusal(fault, 'told to answer so'))
    const reply = answer(call, request.headers.authorization ?? '')
    if (fault === 'lose answer') return void response.destroy()
    if (fault === 'late') await new Promise((resolve) => setTimeout(resolve, lateMs))
    if (fault instanceof Promise) await fault
    send(response, reply)
  }

  function answer(call: FakeCall, authorization: string): Reply {
    if (call.path === '/oauth/token') return issueToken(call.body)
    if (!tokens.has(authorization.replace(/^Bearer /, ''))) return refusal(401, 'Invalid token')
    if (!spend()) return refusal(429, 'Global limit has been reached')
    return route(call)
  }

  /** Takes one request from the budget of the current window. */
  function spend(): boolean {
    const begin = Math.floor(Date.now() / 1_000)
    if (window.begin !== begin) window = { begin, spent: 0 }
    if (fake.budget !== null && window.spent >= fake.budget) return false
    window.spent += 1
    return true
  }

  function issueToken(body: JsonObject): Reply {
    fake.tokenRequests += 1
    const isKnown = body['client_id'] === clientId && body['client_secret'] === clientSecret
    if (!isKnown || body['audience'] !== `${url}/api/v2/`)
      return { status: 401, body: { error: 'access_denied', error_description: 'Unauthorized' } }
    const token = randomUUID()
    tokens.add(token)
    return {
      status: 200,
      body: {
        access_token: token,
        token_type: 'Bearer',
        expires_in: fake.tokenSeconds,
        scope: permissions.join(' '),
      },
    }
  }

  function route({ method, path, body }: FakeCall): Reply {
    const { pathname, searchParams } = new URL(path, url)
    if (pathname === '/api/v2/connections')
      return {
        status: 200,
        body: fake.connections.filter(({ name }) => name === searchParams.get('name')),
      }
    if (pathname === '/api/v2/users' && method === 'POST') return createUser(body)
    if (pathname === '/api/v2/users') return search(searchParams.get('q') ?? '')
    const id = decodeURIComponent(pathname.replace(/^\/api\/v2\/users\//, ''))
    const user = users.get(id)
    if (!user) return refusal(404, 'The user does not exist.')
    return method === 'PATCH' ? changeUser(user, body) : { status: 200, body: render(user) }
  }

  function createUser(body: JsonObject): Reply {
    const connection = fake.connections.find(({ name }) => name === body['connection'])
    if (!connection) return refusal(400, 'The connection does not exist.')
    const problem = problemOf(body, connection)
    if (problem !== null) return refusal(400, problem)
    const id = `${connection.strategy}|${readText(body['user_id'])}`
    const email = readText(body['email']) || null
    const username = readText(body['username']) || null
    const others = [...users.values()].filter((user) => user.connection === connection.name)
    const isTaken = others.some(
      (user) =>
        (email !== null && user.email === email) ||
        (username !== null && user.username === username),
    )
    if (users.has(id) || isTaken) return refusal(409, 'The user already exists.')
    const metadata = isObject(body['app_metadata']) ? body['app_metadata'] : {}
    const createdAt = Date.now()
    const user = { id, connection: connection.name, email, username, metadata, createdAt }
    users.set(id, user)
    return { status: 201, body: render(user) }
  }

  function changeUser(user: FakeAuth0User, body: JsonObject): Reply {
    const email = readText(body['email'])
    if (!isEmail(email)) return refusal(400, "Object didn't pass validation for format email")
    const others = [...users.values()].filter((other) => other !== user)
    if (others.some((other) => other.email === email && other.connection === user.connection))
      return refusal(400, 'The specified new email already exists')
    user.email = email
    return { status: 200, body: render(user) }
  }

  // Returns only users older than `searchLagMs`, so callers must not rely on it.
  function search(query: string): Reply {
    const indexed = [...users.values()].filter(
      ({ createdAt }) => createdAt + fake.searchLagMs < Date.now(),
    )
    const value = /:"?([^"]*)"?$/.exec(query)?.[1]
    return {
      status: 200,
      body: indexed.filter(({ metadata }) => metadata['externalUserId'] === value).map(render),
    }
  }

  function send(response: ServerResponse, { status, body }: Reply): void {
    const reset = window.begin + 1
    response.writeHead(status, {
      'content-type': 'application/json',
      ...(fake.budget === null
        ? {}
        : {
            'x-ratelimit-limit': fake.budget,
            'x-ratelimit-remaining': Math.max(fake.budget - window.spent, 0),
            'x-ratelimit-reset': reset,
          }),
    })
    response.end(JSON.stringify(body))
  }

  return fake
}

export type FakeAuth0 = Awaited<ReturnType<typeof startAuth0>>

const render = ({ id, email, username, metadata }: FakeAuth0User) => ({
  user_id: id,
  ...(email === null ? {} : { email, email_verified: false }),
  ...(username === null ? {} : { username }),
  app_metadata: metadata,
  identities: [{ user_id: id.split('|')[1], provider: id.split('|')[0], isSocial: false }],
})

const refusal = (statusCode: number, message: string): Reply => ({
  status: statusCode,
  body: { statusCode, error: 'Error', message },
})

const isEmail = (text: string): boolean => /^[^@\s]+@[^@\s]+\.[^@\s]+$/.test(text)
const userFields = new Set([
  'connection',
  'user_id',
  'email',
  'email_verified',
  'verify_email',
  'username',
  'password',
  'app_metadata',
])

/**
 * Returns what is wrong with the body of a create request, by the documentation; null if it is
 * valid.
 */
function problemOf(body: JsonObject, { strategy, options }: FakeConnection): string | null {
  const unknown = Object.keys(body).find((field) => !userFields.has(field))
  if (unknown !== undefined) return `Additional properties not allowed: ${unknown}`
  const [email, username, password] = ['email', 'username', 'password'].map((field) =>
    readText(body[field]),
  )
  if (email && !isEmail(email)) return "Object didn't pass validation for format email"
  if (strategy === 'email') return email ? null : 'Missing required property: email'
  if (strategy !== 'auth0') return 'Cannot create user for this connection'
  if (!password || password.length > 72) return 'Missing required property: password'
  if (!/[a-z]/.test(password) || !/[A-Z]/.test(password) || !/\d/.test(password))
    return 'PasswordStrengthError: Password is too weak'
  const hasUsernames = options['requires_username'] === true
  if (username && !hasUsernames)
    return 'Cannot set username for connection without requires_username'
  if (hasUsernames && !/^[a-z0-9_+\-.!#$'^`~@]{1,15}$/.test(username ?? ''))
    return 'Username can only contain 1 to 15 letters, digits and signs'
  return email || hasUsernames ? null : 'Missing required property: email'
}

async function readCall(request: IncomingMessage): Promise<FakeCall> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk as Buffer)
  const text = Buffer.concat(chunks).toString('utf8')
  const body: unknown = text === '' ? {} : JSON.parse(text)
  return { method: request.method ?? '', path: request.url ?? '', body: isObject(body) ? body : {} }
}
