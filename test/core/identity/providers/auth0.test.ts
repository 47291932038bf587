import { createServer } from 'node:http'
import * as fc from 'fast-check'
import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  it,
  onTestFinished,
} from 'vitest'
import { readUserProvider } from '../../../../core/identity/providers/config.ts'
import { openUserProvider } from '../../../../core/identity/providers/open.ts'
import type { ProviderUser, UserProvider } from '../../../../core/identity/providers/provider.ts'
import { createEnvReader } from '../../../../core/lib/env.ts'
import { listen } from '../../../../core/lib/http.ts'
import { silentLog } from '../../../../core/lib/log.ts'
import { type AppId, externalUserId } from '../../../../core/shared/ids.ts'
import { type FakeAuth0, startAuth0 } from '../../../fakes/auth0.ts'
import { type TestApp, type TestCore, atOnce, outcome, startTestCore } from '../../support.ts'

let test: TestCore
let auth0: FakeAuth0
let app: TestApp
let appId: AppId
let provider: UserProvider

beforeAll(async () => {
  test = await startTestCore()
})
afterAll(() => test.stop())

beforeEach(async () => {
  auth0 = await startAuth0()
  app = await test.newApp()
  const { rows } = await test.sql.query<{ app_id: AppId }>(
    'select app_id from clients where client_id = $1',
    [app.clientId],
  )
  appId = rows[0]?.app_id ?? ('' as AppId)
  provider = open()
})
afterEach(() => auth0.stop())

/** Opens a provider as in another process, with its own token, connections and waits. */
function open(env: Readonly<Record<string, string>> = {}, budgetMs = 30_000): UserProvider {
  const reader = createEnvReader({ ...auth0.env, ...env })
  const config = readUserProvider(reader)
  expect(reader.problems).toEqual([])
  const { now } = test.clock
  return openUserProvider({ pool: test.sql, log: silentLog(), now, budgetMs }, config)
}

const user = (external: string, more: Partial<ProviderUser> = {}): ProviderUser => ({
  app: appId,
  externalUserId: externalUserId(external),
  ...more,
})

const calls = (method: string, path: string): number =>
  auth0.calls.filter((call) => call.method === method && call.path.startsWith(path)).length

const creations = (): number => calls('POST', '/api/v2/users')

const rows = async () =>
  (
    await test.sql.query<{ external_user_id: string; claim: string | null }>(
      'select external_user_id, claim from provider_users where app_id = $1 order by 1',
      [appId],
    )
  ).rows

describe('creating a user at Auth0', () => {
  it("stores the external id and the client id in the user's metadata", async () => {
    const { providerUserId, created } = await provider.ensureUser(
      user('ada', { email: 'ada@example.com' }),
    )
    expect(created).toBe(true)
    expect(auth0.users.get(providerUserId)).toMatchObject({
      connection: 'Username-Password-Authentication',
      email: 'ada@example.com',
      metadata: { externalUserId: 'ada', appClientId: app.clientId },
    })
    // The address is not verified, and no mail is sent to it.
    expect(auth0.calls.find(({ path }) => path === '/api/v2/users')?.body).toMatchObject({
      email_verified: false,
      verify_email: false,
    })
  })

  it('sends no request for a known user', async () => {
    const first = await provider.ensureUser(user('ada', { email: 'ada@example.com' }))
    const before = auth0.calls.length
    for (const email of ['ada@example.com', '', null, undefined])
      expect(await provider.ensureUser(user('ada', { email }))).toEqual({
        ...first,
        created: false,
      })
    expect(auth0.calls).toHaveLength(before)
  })

  it('creates one user for two hundred concurrent calls in several processes', async () => {
    const processes = [provider, open(), open()]
    const ensured = await atOnce(200, (n) =>
      processes[n % processes.length]!.ensureUser(user('ada', { email: 'ada@example.com' })),
    )
    expect(auth0.users.size).toBe(1)
    expect(new Set(ensured.map(({ providerUserId }) => providerUserId)).size).toBe(1)
    expect(ensured.filter(({ created }) => created)).toHaveLength(1)
    expect(creations()).toBe(1)
    expect(await rows()).toEqual([{ external_user_id: 'ada', claim: null }])
  })

  it('never uses the search, because its index is delayed', async () => {
    await atOnce(10, (n) => provider.ensureUser(user(`user-${n % 3}`)))
    expect(calls('GET', '/api/v2/users?')).toBe(0)
    expect(auth0.users.size).toBe(3)
  })

  it('creates one user when the response is lost', async () => {
    let lost = 0
    auth0.faults = ({ method }) => (method === 'POST' && lost++ < 3 ? 'lose answer' : 'none')
    const { created } = await provider.ensureUser(user('ada', { email: 'ada@example.com' }))
    expect(created).toBe(true)
    expect(auth0.users.size).toBe(1)
  })

  it('finishes a creation that an earlier caller began', async () => {
    let n = 0
    auth0.faults = ({ path }) =>
      path !== '/api/v2/users' ? 'none' : n++ === 0 ? 'lose answer' : 403
    expect(await outcome(open().ensureUser(user('ada', { email: 'a@example.com' })))).toBe(
      'PROVIDER_UNAVAILABLE',
    )
    expect(auth0.users.size).toBe(1)
    expect(await rows()).toEqual([])
    auth0.faults = () => 'none'
    // The caller now sends another address than the one stored at the provider.
    const ensured = await provider.ensureUser(user('ada', { email: 'b@example.com' }))
    expect(ensured.created).toBe(true)
    expect([...auth0.users.values()].map(({ email }) => email)).toEqual(['b@example.com'])
  })

  it('takes over from a process that ended midway', async () => {
    await test.sql.query(
      `insert into provider_users (app_id, external_user_id, directory, claim, claimed_until, created_at, updated_at)
      values ($1, 'ada', $2, gen_random_uuid(), $3, $3, $3)`,
      [appId, `auth0:${new URL(auth0.url).host}`, new Date(test.clock.now().getTime() + 20_000)],
    )
    expect(await outcome(open({}, 400).ensureUser(user('ada')))).toBe('PROVIDER_UNAVAILABLE')
    expect(auth0.users.size).toBe(0)
    test.clock.advance(20_000)
    expect((await provider.ensureUser(user('ada'))).created).toBe(true)
  })

  it('throws PROVIDER_UNAVAILABLE when another call took over its claim', async () => {
    const answer = Promise.withResolvers<void>()
    let posts = 0
    auth0.faults = ({ method, path }) =>
      method === 'POST' && path === '/api/v2/users' && posts++ === 0 ? answer.promise : 'none'
    const slow = outcome(open().ensureUser(user('ada')))
    await expect.poll(() => posts).toBe(1)
    test.clock.advance(20_000)
    expect((await open().ensureUser(user('ada'))).created).toBe(true)
    answer.resolve()
    expect(await slow).toBe('PROVIDER_UNAVAILABLE')
    expect(auth0.users.size).toBe(1)
  })

  it('never sends its secret to a redirect target', async () => {
    const server = createServer((request, response) =>
      response.writeHead(307, { location: auth0.url + request.url }).end(),
    )
    const elsewhere = await listen(server, { host: '127.0.0.1', port: 0, setting: 'none' })
    onTestFinished(() => elsewhere.stop(0))
    const redirected = open({ AUTH0_DOMAIN: elsewhere.url }, 400)
    expect(await outcome(redirected.ensureUser(user('ada')))).toBe('PROVIDER_UNAVAILABLE')
    expect(auth0.calls).toEqual([])
  })

  it('creates two users for two similar external ids', async () => {
    const colliding = ['ada lovelace', 'ada-lovelace', 'ada_lovelace', 'Ada Lovelace', 'ada☃']
    for (const external of colliding) await provider.ensureUser(user(external))
    expect(auth0.users.size).toBe(colliding.length)
  })

  it('keeps the users of two apps apart', async () => {
    await provider.ensureUser(user('ada'))
    const other = await test.newApp()
    const { rows } = await test.sql.query<{ app_id: AppId }>(
      'select app_id from clients where client_id = $1',
      [other.clientId],
    )
    await provider.ensureUser({ ...user('ada'), app: rows[0]!.app_id })
    expect([...auth0.users.values()].map(({ metadata }) => metadata['appClientId'])).toEqual([
      app.clientId,
      other.clientId,
    ])
  })

  it('gives each external id its own valid Auth0 id', async () => {
    const ids = new Map<string, string>()
    await fc.assert(
      fc.asyncProperty(fc.string({ minLength: 1, unit: 'binary' }), async (text) => {
        const external = externalUserId(Buffer.from(text).toString('hex').slice(0, 200))
        const { providerUserId } = await provider.ensureUser(user(external))
        expect(providerUserId).toMatch(/^auth0\|[0-9a-f]{32}$/)
        expect(ids.get(providerUserId) ?? external).toBe(external)
        ids.set(providerUserId, external)
      }),
      { numRuns: 30 },
    )
  })
})

describe('changing the e-mail address', () => {
  const emails = () => [...auth0.users.values()].map(({ email }) => email)

  it('writes a new address once', async () => {
    await provider.ensureUser(user('ada', { email: 'ada@example.com' }))
    await provider.ensureUser(user('ada', { email: 'ada@example.org' }))
    await provider.ensureUser(user('ada', { email: 'ada@example.org' }))
    expect(emails()).toEqual(['ada@example.org'])
    expect(calls('PATCH', '/api/v2/users/')).toBe(1)
  })

  it('keeps the address when the call has an empty one or no address', async () => {
    await provider.ensureUser(user('ada', { email: 'ada@example.com' }))
    await provider.ensureUser(user('ada'))
    await provider.ensureUser(user('ada', { email: '' }))
    expect(emails()).toEqual(['ada@example.com'])
    expect(calls('PATCH', '/api/v2/users/')).toBe(0)
  })

  it("rejects another user's address and takes nothing over", async () => {
    await provider.ensureUser(user('ada', { email: 'ada@example.com' }))
    await provider.ensureUser(user('bob', { email: 'bob@example.com' }))
    for (const external of ['bob', 'eve'])
      expect(await outcome(provider.ensureUser(user(external, { email: 'ada@example.com' })))).toBe(
        'REQUEST_INVALID',
      )
    expect(emails()).toEqual(['ada@example.com', 'bob@example.com'])
    expect((await rows()).map((row) => row.external_user_id)).toEqual(['ada', 'bob'])
    expect((await provider.ensureUser(user('eve'))).created).toBe(true)
  })

  it('creates a user again that the provider has lost', async () => {
    await provider.ensureUser(user('ada', { email: 'ada@example.com' }))
    auth0.users.clear()
    expect(await provider.ensureUser(user('ada', { email: 'ada@example.org' }))).toMatchObject({
      created: false,
    })
    expect(emails()).toEqual(['ada@example.org'])
  })
})

describe('connections', () => {
  it('come from the settings, the first by default', async () => {
    const several = open({ AUTH0_CONNECTION: 'mail-only, codes' })
    await several.ensureUser(user('ada', { email: 'ada@example.com' }))
    await several.ensureUser(user('bob', { email: 'bob@example.com', connection: 'codes' }))
    expect([...auth0.users.values()].map(({ connection }) => connection)).toEqual([
      'mail-only',
      'codes',
    ])
    expect([...auth0.users.keys()].map((id) => id.split('|')[0])).toEqual(['auth0', 'email'])
  })

  it('are rejected without a request if not in the settings', async () => {
    expect(await outcome(provider.ensureUser(user('ada', { connection: 'corporate' })))).toBe(
      'REQUEST_INVALID',
    )
    expect(auth0.calls).toEqual([])
  })

  it('require an address where users sign in with it', async () => {
    const mail = open({ AUTH0_CONNECTION: 'mail-only' })
    expect(await outcome(mail.ensureUser(user('ada')))).toBe('REQUEST_INVALID')
    expect(creations()).toBe(0)
    expect(await rows()).toEqual([])
  })

  it.each(['missing', 'corporate'])(
    'throw PROVIDER_UNAVAILABLE for a wrong setting: %s',
    async (connection) => {
      const wrong = open({ AUTH0_CONNECTION: connection })
      expect(await outcome(wrong.ensureUser(user('ada')))).toBe('PROVIDER_UNAVAILABLE')
    },
  )
})

describe('tokens of the Management API', () => {
  it('are fetched once for all callers', async () => {
    await atOnce(50, (n) => provider.ensureUser(user(`user-${n}`)))
    expect(auth0.tokenRequests).toBe(1)
  })

  it('are fetched once more when Auth0 refuses the current one', async () => {
    await provider.ensureUser(user('ada'))
    auth0.revokeTokens()
    await atOnce(20, (n) => provider.ensureUser(user(`user-${n}`)))
    expect(auth0.tokenRequests).toBe(2)
  })

  it('are not fetched again when the new one is also refused', async () => {
    auth0.faults = ({ path }) => (path === '/oauth/token' ? 'none' : 401)
    expect(await outcome(provider.ensureUser(user('ada')))).toBe('PROVIDER_UNAVAILABLE')
    expect(auth0.tokenRequests).toBe(2)
  })

  it('are fetched ahead of expiry', async () => {
    auth0.tokenSeconds = 0
    await provider.ensureUser(user('ada'))
    await provider.ensureUser(user('bob'))
    expect(auth0.tokenRequests).toBeGreaterThan(1)
    expect(auth0.users.size).toBe(2)
  })

  it.each([
    ['a wrong secret', { AUTH0_CLIENT_SECRET: 'wrong-secret-of-the-tests-0123456789' }],
    ['a wrong audience', { AUTH0_MANAGEMENT_AUDIENCE: 'https://elsewhere.example/' }],
  ])('cannot be fetched with %s', async (_, env) => {
    expect(await outcome(open(env).ensureUser(user('ada')))).toBe('PROVIDER_UNAVAILABLE')
    expect(await rows()).toEqual([])
  })
})

describe('a slow, busy or unavailable provider', () => {
  it('creates all users within its rate limit', async () => {
    auth0.budget = 12
    await atOnce(25, (n) => provider.ensureUser(user(`user-${n}`)))
    expect(auth0.users.size).toBe(25)
    // One response announces that the budget is spent, and only the requests already sent may be
    // refused.
    expect(creations()).toBeLessThan(25 + 3 * 8)
  })

  it('succeeds after several 429, also at the token endpoint', async () => {
    let refused = 0
    auth0.faults = () => (refused++ < 6 ? 429 : 'none')
    expect((await provider.ensureUser(user('ada'))).created).toBe(true)
  })

  it('is not waited for beyond the bounds', async () => {
    auth0.budget = 0
    expect(await outcome(open({}, 100).ensureUser(user('ada')))).toBe('PROVIDER_UNAVAILABLE')
    expect(await rows()).toEqual([])
  })

  it.each([
    ['is lost', 'lose request'],
    ['is answered with 500', 500],
    ['is answered with 503', 503],
  ] as const)(
    'leaves no row when every request %s, and succeeds when repeated',
    async (_, fault) => {
      auth0.faults = () => fault
      expect(await outcome(open({}, 300).ensureUser(user('ada')))).toBe('PROVIDER_UNAVAILABLE')
      expect(await rows()).toEqual([])
      auth0.faults = () => 'none'
      expect((await provider.ensureUser(user('ada'))).created).toBe(true)
      expect(auth0.users.size).toBe(1)
    },
  )

  it('creates each user once despite occasional failures', async () => {
    const faults = [
      'none',
      'lose answer',
      'late',
      503,
      'none',
      'lose request',
      429,
      'none',
    ] as const
    let n = 0
    auth0.faults = () => faults[n++ % faults.length]!
    const ensured = await atOnce(40, (i) => provider.ensureUser(user(`user-${i % 20}`)))
    expect(auth0.users.size).toBe(20)
    expect(ensured.filter(({ created }) => created)).toHaveLength(20)
  })

  it('is not needed for known users', async () => {
    const known = await provider.ensureUser(user('ada'))
    await auth0.stop()
    expect(await provider.ensureUser(user('ada'))).toEqual({ ...known, created: false })
  })
})

describe('settings', () => {
  const problems = (env: Readonly<Record<string, string>>): string[] => {
    const reader = createEnvReader(env)
    readUserProvider(reader)
    return [...reader.problems]
  }

  it('accept a domain', () => {
    const env = { ...auth0.env, AUTH0_DOMAIN: 'example.eu.auth0.com' }
    expect(readUserProvider(createEnvReader(env))).toMatchObject({
      auth0: {
        url: 'https://example.eu.auth0.com',
        audience: 'https://example.eu.auth0.com/api/v2/',
      },
    })
  })

  it.each(['http://example.com', 'https://example.com/path', 'https://u:p@example.com', 'a b'])(
    'reject %s as a domain',
    (domain) => {
      expect(problems({ ...auth0.env, AUTH0_DOMAIN: domain }).join()).toContain('AUTH0_DOMAIN')
    },
  )

  it('report missing values', () => {
    expect(problems({ USER_PROVIDER: 'auth0' }).join()).toContain('AUTH0_CLIENT_SECRET')
    expect(problems({})).toEqual([])
  })
})

describe('the local provider', () => {
  it('creates nothing and returns whether the app has the user', async () => {
    const local = open({ USER_PROVIDER: 'local' })
    const first = await local.ensureUser(user('ada'))
    expect(first.created).toBe(true)
    await test.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
    expect(await local.ensureUser(user('ada', { connection: 'any' }))).toEqual({
      ...first,
      created: false,
    })
    expect(auth0.calls).toEqual([])
  })
})
