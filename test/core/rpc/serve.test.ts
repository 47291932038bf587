import { Metadata, credentials } from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { correlationHeader, serviceTokenHeader } from '../../../proto/headers.ts'
import { UserServiceClient } from '../../../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import {
  type TestApp,
  type TestCore,
  basicOf,
  bearerOf,
  outcome,
  refusal,
  serviceToken,
  startTestCore,
  storedHash,
} from '../support.ts'
import { ada, routes } from './routes.ts'

const m2mRoutes = routes.filter(({ guard }) => guard === 'm2m')
const basicRoutes = routes.filter(({ guard }) => guard === 'm2m_basic')

let core: TestCore
let app: TestApp
let other: TestApp
/** The same app's client without any scope that a route may require. */
let poor: TestApp
let machineToken: string
let userToken: string
beforeAll(async () => {
  core = await startTestCore()
  app = await core.newApp()
  other = await core.newApp()
  poor = await core.newApp()
  for (const { clientId, basic } of [app, other, poor])
    await core.as(basic).upsertUser({ clientId, externalUserId: ada })
  await core.sql.query(`update clients set scopes = '{device:approve}' where client_id = $1`, [
    poor.m2mClientId,
  ])
  machineToken = (await core.as(app.basic).issueMachineToken()).accessToken
  userToken = (
    await core.as(app.basic).mintUserToken({ clientId: app.clientId, externalUserId: ada })
  ).accessToken
})
afterAll(() => core.stop())

const unknownClientId = `app_${'0'.repeat(24)}`
const wrongSecret = () => basicOf(app.m2mClientId, `${app.secret.slice(0, -1)}_`)
const unknownClient = () => basicOf(`m2m_${'0'.repeat(24)}`, app.secret)
/** Client ids that are not an app of the caller, in various ways. */
const notMine = () => [
  other.clientId,
  unknownClientId,
  app.m2mClientId,
  other.m2mClientId,
  '',
  'app_',
  app.clientId.toUpperCase(),
  `${app.clientId} `,
  'x\u0000',
]

const reasonsOf = (calls: Promise<unknown>[]) => Promise.all(calls.map(outcome))

describe('401, the credential', () => {
  it.each(m2mRoutes)(
    '$name rejects a missing or invalid credential before other checks',
    async ({ call, malformed = call }) => {
      const bad = [
        undefined,
        '',
        'Basic',
        'Basic !!!',
        `Basic ${Buffer.from('no colon').toString('base64')}`,
        `Basic ${Buffer.from(':').toString('base64')}`,
        `Basic ${Buffer.from(`${app.m2mClientId}:`).toString('base64')}`,
        wrongSecret(),
        unknownClient(),
        basicOf(app.clientId, app.secret),
        basicOf(app.m2mClientId, other.secret),
        basicOf(`m2m_\u0000`, app.secret),
        `Digest ${app.secret}`,
        'Bearer',
      ]
      for (const clientId of [app.clientId, other.clientId, unknownClientId, app.m2mClientId]) {
        const refused = await reasonsOf(
          bad.map((authorization) => malformed(core.as(authorization), clientId)),
        )
        expect(refused).toEqual(bad.map(() => 'CREDENTIAL_INVALID'))
        const tokens = ['x', 'a.b.c', userToken, `${machineToken}x`].map(bearerOf)
        expect(await reasonsOf(tokens.map((token) => malformed(core.as(token), clientId)))).toEqual(
          tokens.map(() => 'TOKEN_INVALID'),
        )
      }
    },
  )

  it.each(basicRoutes)('$name rejects a wrong pair', async ({ call, malformed = call }) => {
    for (const clientId of [app.clientId, other.clientId, unknownClientId]) {
      expect(
        await reasonsOf(
          [wrongSecret(), unknownClient()].map((authorization) =>
            malformed(core.as(authorization), clientId),
          ),
        ),
      ).toEqual(['CREDENTIAL_INVALID', 'CREDENTIAL_INVALID'])
    }
  })

  it('gives an unknown client and a wrong secret the same response', async () => {
    const [one, two] = await Promise.all(
      [wrongSecret(), unknownClient()].map((basic) =>
        refusal(core.as(basic).listUsers({ clientId: app.clientId })),
      ),
    )
    expect(one?.message).toBe(two?.message)
  })

  it('rejects a secret that has ended', async () => {
    const made = await core.newApp()
    await core.sql.query('update client_secrets set expires_at = $1 where client_id = $2', [
      core.clock.now(),
      made.m2mClientId,
    ])
    expect(await outcome(core.as(made.basic).listUsers({ clientId: made.clientId }))).toBe(
      'CREDENTIAL_INVALID',
    )
  })
})

describe('404, the tenant', () => {
  it.each(routes)(
    "$name gives the same response for every app but the caller's own",
    async ({ call, malformed = call }) => {
      for (const authorization of [app.basic, poor.basic]) {
        const ids = notMine().concat(
          authorization === poor.basic ? [app.clientId] : [poor.clientId],
        )
        const refusals = await Promise.all(
          ids.map((clientId) => refusal(malformed(core.as(authorization), clientId))),
        )
        expect(new Set(refusals.map(({ reason, message }) => `${reason}: ${message}`))).toEqual(
          new Set(['NOT_FOUND: no such app for this credential']),
        )
      }
    },
  )

  it.each(m2mRoutes)('$name finds no other app for a machine token', async ({ call }) => {
    expect(
      await reasonsOf(notMine().map((clientId) => call(core.as(bearerOf(machineToken)), clientId))),
    ).toEqual(notMine().map(() => 'NOT_FOUND'))
  })

  it.each(basicRoutes)('$name returns 404 for credentials other than Basic', async ({ call }) => {
    const callers = [undefined, bearerOf(machineToken), bearerOf(userToken), bearerOf('x')]
    const refusals = await Promise.all(
      callers.map((authorization) => refusal(call(core.as(authorization), app.clientId))),
    )
    expect(new Set(refusals.map(({ reason, message }) => `${reason}: ${message}`))).toEqual(
      new Set(['NOT_FOUND: no such app for this credential']),
    )
  })

  it('sends the same trailers in a similar time for another app and an unknown one', async () => {
    const [foreign, unknown] = [await rawRefusal(other.clientId), await rawRefusal(unknownClientId)]
    expect(foreign.trailers).toEqual(unknown.trailers)
    const times: Record<string, number[]> = { [other.clientId]: [], [unknownClientId]: [] }
    const rpcs = core.as(app.basic)
    for (let i = 0; i < 200; i++) {
      for (const clientId of i % 2 === 0
        ? [other.clientId, unknownClientId]
        : [unknownClientId, other.clientId]) {
        const begin = performance.now()
        await outcome(rpcs.listUsers({ clientId }))
        times[clientId]?.push(performance.now() - begin)
      }
    }
    const median = (of: number[] = []): number => of.toSorted((a, b) => a - b)[100] ?? 0
    const ratio = median(times[other.clientId]) / median(times[unknownClientId])
    expect(ratio).toBeGreaterThan(1 / 1.5)
    expect(ratio).toBeLessThan(1.5)
  })
})

describe('403, the scope', () => {
  it.each(m2mRoutes)(
    '$name rejects a client without $scope before other checks',
    async ({ call, malformed = call, missing = call, scope = '' }) => {
      const { accessToken } = await core.as(poor.basic).issueMachineToken()
      for (const authorization of [poor.basic, bearerOf(accessToken)]) {
        for (const attempt of [call, malformed, missing]) {
          const error = await refusal(attempt(core.as(authorization), poor.clientId))
          expect(`${error.reason}: ${error.message}`).toBe(
            `SCOPE_MISSING: the client lacks the scope ${scope}`,
          )
        }
      }
    },
  )

  it('is not satisfied by a similar scope', async () => {
    const made = await core.newApp()
    await core.sql.query(
      `update clients set scopes = '{admin,*,users,users:reader,"users:read users:write"}' where client_id = $1`,
      [made.m2mClientId],
    )
    expect(await outcome(core.as(made.basic).listUsers({ clientId: made.clientId }))).toBe(
      'SCOPE_MISSING',
    )
  })
})

describe('400, then 404, the request', () => {
  const withMalformed = routes.flatMap(({ name, malformed }) =>
    malformed ? [{ name, malformed }] : [],
  )
  it.each(withMalformed)(
    '$name rejects a malformed request before it looks up resources',
    async ({ malformed }) => {
      expect(await outcome(malformed(core.as(app.basic), app.clientId))).toBe('REQUEST_INVALID')
    },
  )

  const withMissing = routes.flatMap(({ name, missing }) => (missing ? [{ name, missing }] : []))
  it.each(withMissing)('$name returns 404 for a missing resource', async ({ missing }) => {
    expect(await outcome(missing(core.as(app.basic), app.clientId))).toBe('NOT_FOUND')
  })

  it('rejects a check of an unknown kind', async () => {
    for (const kind of ['', 'M2M', 'dashboard', 'm2m']) {
      expect(await outcome(core.as(app.basic).checkCaller({ clientId: app.clientId, kind }))).toBe(
        'REQUEST_INVALID',
      )
    }
  })
})

describe('a valid credential', () => {
  it.each(routes)('$name accepts Basic', async ({ name, call }) => {
    expect(await outcome(freshly((made) => call(core.as(made.basic), made.clientId)))).toBe(
      endOf(name),
    )
  })

  it.each(m2mRoutes)('$name accepts a machine token', async ({ name, call }) => {
    const end = freshly(async (made) => {
      const { accessToken } = await core.as(made.basic).issueMachineToken()
      return call(core.as(bearerOf(accessToken)), made.clientId)
    })
    expect(await outcome(end)).toBe(endOf(name))
  })

  /** On a separate app, because some RPCs end the user. */
  async function freshly(work: (made: TestApp) => Promise<unknown>): Promise<unknown> {
    const made = await core.newApp()
    await core.as(made.basic).upsertUser({ clientId: made.clientId, externalUserId: ada })
    return work(made)
  }

  // The user has no key to revoke.
  const endOf = (name: string): string => (name === 'RevokeKey' ? 'NOT_FOUND' : 'OK')

  it('is accepted with its scheme in upper or lower case and after several blanks', async () => {
    const pair = app.basic.slice('Basic '.length)
    const values = [
      `basic ${pair}`,
      `BASIC ${pair}`,
      `Basic   ${pair}`,
      `bearer ${machineToken}`,
      `BEARER ${machineToken}`,
    ]
    expect(
      await reasonsOf(values.map((value) => core.as(value).listUsers({ clientId: app.clientId }))),
    ).toEqual(values.map(() => 'OK'))
  })

  it('is accepted raw and form-encoded (RFC 6749 section 2.3.1), split at the first colon', async () => {
    const made = await core.newApp()
    const secret = 'a:b+c%20d/é ü%'
    await core.sql.query(`update client_secrets set secret_hash = $1 where client_id = $2`, [
      storedHash(secret),
      made.m2mClientId,
    ])
    const encoded = encodeURIComponent(secret)
    const forms = [
      basicOf(made.m2mClientId, secret),
      basicOf(made.m2mClientId, encoded),
      basicOf(made.m2mClientId, encoded.replaceAll('%20', '+')),
      basicOf(made.m2mClientId.replace('_', '%5F'), encoded),
      basicOf(made.m2mClientId.replace('_', '%5f'), encoded.toLowerCase().replaceAll('%2b', '%2B')),
    ]
    expect(
      await reasonsOf(forms.map((basic) => core.as(basic).listUsers({ clientId: made.clientId }))),
    ).toEqual(forms.map(() => 'OK'))
    for (const wrong of ['a', 'a:b', `${secret}x`, encodeURIComponent(encoded)]) {
      expect(
        await outcome(
          core.as(basicOf(made.m2mClientId, wrong)).listUsers({ clientId: made.clientId }),
        ),
      ).toBe('CREDENTIAL_INVALID')
    }
  })

  it('may use any of several valid secrets', async () => {
    const made = await core.newApp()
    await core.sql.query(
      `
      insert into client_secrets (id, client_id, secret_hash, pepper_id, created_at)
      values (gen_random_uuid(), $1, $2, 'p1', now())`,
      [made.m2mClientId, storedHash('another-secret')],
    )
    for (const secret of [made.secret, 'another-secret']) {
      expect(
        await outcome(
          core.as(basicOf(made.m2mClientId, secret)).listUsers({ clientId: made.clientId }),
        ),
      ).toBe('OK')
    }
  })
})

describe('a user token', () => {
  it("is the only credential for a user's own RPCs", async () => {
    for (const authorization of [undefined, app.basic, bearerOf(machineToken), bearerOf('x')]) {
      const rpcs = core.as(authorization)
      expect(
        await reasonsOf([
          rpcs.getOwnBalance(),
          rpcs.queryOwnUsage(),
          rpcs.checkCaller({ kind: 'user' }),
        ]),
      ).toEqual(['TOKEN_INVALID', 'TOKEN_INVALID', 'TOKEN_INVALID'])
    }
    await core.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: 'grace' })
    const { accessToken } = await core
      .as(app.basic)
      .mintUserToken({ clientId: app.clientId, externalUserId: 'grace' })
    const rpcs = core.as(bearerOf(accessToken))
    expect(
      await reasonsOf([
        rpcs.getOwnBalance(),
        rpcs.queryOwnUsage(),
        rpcs.checkCaller({ kind: 'user' }),
      ]),
    ).toEqual(['OK', 'OK', 'OK'])
    expect(await outcome(rpcs.checkCaller({ kind: 'user', clientId: other.clientId }))).toBe(
      'NOT_FOUND',
    )
  })
})

describe('the correlation id', () => {
  it('is stored in the audit log, unless it is malformed', async () => {
    const client = new UserServiceClient(core.core.target, credentials.createInsecure())
    let userId = ''
    for (const given of ['corr-1.a_B', 'x y', 'x'.repeat(65)]) {
      const metadata = new Metadata()
      metadata.set(serviceTokenHeader, serviceToken)
      metadata.set('authorization', app.basic)
      metadata.set(correlationHeader, given)
      const { promise, resolve, reject } = Promise.withResolvers<string>()
      client.upsertUser(
        {
          clientId: app.clientId,
          externalUserId: 'corr',
          email: undefined,
          status: undefined,
          clearEmail: false,
        },
        metadata,
        (error, response) => (error ? reject(error) : resolve(response.user?.id ?? '')),
      )
      userId = await promise
    }
    client.close()
    const { rows } = await core.sql.query<{ correlation_id: string }>(
      `select correlation_id from audit_log where details->>'userId' = $1`,
      [userId],
    )
    const ids = rows.map(({ correlation_id }) => correlation_id)
    expect(ids).toContain('corr-1.a_B')
    expect(ids.filter((id) => /^[0-9a-f-]{36}$/.test(id))).toHaveLength(2)
  })
})

async function rawRefusal(clientId: string): Promise<{ trailers: object }> {
  const client = new UserServiceClient(core.core.target, credentials.createInsecure())
  const metadata = new Metadata()
  metadata.set(serviceTokenHeader, serviceToken)
  metadata.set('authorization', app.basic)
  const { promise, resolve } = Promise.withResolvers<{ trailers: object }>()
  client.listUsers(
    { clientId, limit: 0, status: undefined, externalUserId: undefined, cursor: undefined },
    metadata,
    (error) =>
      resolve({
        trailers: {
          ...error?.metadata.getMap(),
          date: '',
          code: error?.code,
          details: error?.details,
        },
      }),
  )
  return promise.finally(() => client.close())
}
