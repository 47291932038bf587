import { connect as connectHttp2, constants } from 'node:http2'
import { Metadata, credentials } from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Authenticator, serviceCaller } from '../../../core/rpc/callers.ts'
import { correlationHeader, serviceTokenHeader } from '../../../proto/headers.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { startGrpcServer } from '../../../core/rpc/server.ts'
import { grpcService, rpc, streamRpc } from '../../../core/rpc/serve.ts'
import { DomainError } from '../../../proto/errors.ts'
import { UserServiceClient } from '../../../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import {
  SignerServiceClient,
  SignerServiceService,
  type WatchInvalidationsRequest,
  type WatchInvalidationsResponse,
} from '../../../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import { createDatabase } from '../../support/postgres.ts'
import {
  type Rpcs,
  type TestApp,
  type TestCore,
  basicOf,
  bearerOf,
  createCaller,
  outcome,
  refusal,
  serviceToken,
  serviceTokens,
  startProxy,
  startTestCore,
  storedHash,
  lockWaits,
  until,
} from '../support.ts'

type Call = (rpcs: Rpcs, clientId: string) => Promise<unknown>

interface Route {
  readonly name: string
  readonly guard: 'm2m' | 'm2m_basic'
  readonly scope?: string
  /** A malformed request that the caller may make, and one for a missing resource. */
  readonly malformed?: Call
  readonly missing?: Call
  readonly call: Call
}

const credit = { amountUsdMicros: '1', source: 'manual' }
const ada = 'ada'
const nobody = 'nobody'

/** Every RPC that names an app, with the requirements of its guard. */
const routes: readonly Route[] = [
  {
    name: 'UpsertUsers',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.upsertAmongOthers({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.upsertAmongOthers({ clientId, externalUserId: '' }),
  },
  {
    name: 'CreateKeys',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.createKeyAmongOthers({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.createKeyAmongOthers({ clientId }),
    missing: (as, clientId) => as.createKeyAmongOthers({ clientId, externalUserId: nobody }),
  },
  {
    name: 'CreateGrants',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.grantAmongOthers({ ...credit, clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.grantAmongOthers({ ...credit, clientId, source: 'x' }),
    missing: (as, clientId) => as.grantAmongOthers({ ...credit, clientId, externalUserId: nobody }),
  },
  {
    name: 'GetBalances',
    guard: 'm2m_basic',
    call: (as, clientId) => as.balanceAmongOthers({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.balanceAmongOthers({ clientId }),
    missing: (as, clientId) => as.balanceAmongOthers({ clientId, externalUserId: nobody }),
  },
  {
    name: 'ListUsers',
    guard: 'm2m',
    scope: 'users:read',
    call: (as, clientId) => as.listUsers({ clientId }),
    malformed: (as, clientId) => as.listUsers({ clientId, status: 'x' }),
  },
  {
    name: 'UpsertUser',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.upsertUser({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.upsertUser({ clientId }),
  },
  {
    name: 'UpdateUser',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.updateUser({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.updateUser({ clientId, externalUserId: nobody, status: 'x' }),
    missing: (as, clientId) => as.updateUser({ clientId, externalUserId: nobody }),
  },
  {
    name: 'DeactivateUser',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.deactivateUser({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.deactivateUser({ clientId }),
    missing: (as, clientId) => as.deactivateUser({ clientId, externalUserId: nobody }),
  },
  {
    name: 'CreateKey',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.createKey({ clientId, externalUserId: ada }),
    malformed: (as, clientId) =>
      as.createKey({ clientId, externalUserId: nobody, idempotencyKey: ' ' }),
    missing: (as, clientId) => as.createKey({ clientId, externalUserId: nobody }),
  },
  {
    name: 'ListKeys',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.listKeys({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.listKeys({ clientId, externalUserId: nobody, limit: 2000 }),
    missing: (as, clientId) => as.listKeys({ clientId, externalUserId: nobody }),
  },
  {
    name: 'RevokeKey',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.revokeKey({ clientId, externalUserId: ada, keyId: 'x' }),
    malformed: (as, clientId) => as.revokeKey({ clientId, keyId: 'x' }),
    missing: (as, clientId) => as.revokeKey({ clientId, externalUserId: ada, keyId: 'x' }),
  },
  {
    name: 'MintUserToken',
    guard: 'm2m',
    scope: 'users:token',
    call: (as, clientId) => as.mintUserToken({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.mintUserToken({ clientId, externalUserId: nobody, scope: ' ' }),
    missing: (as, clientId) => as.mintUserToken({ clientId, externalUserId: nobody }),
  },
  {
    name: 'MintUserTokens',
    guard: 'm2m',
    scope: 'users:token',
    call: (as, clientId) => as.mintAmongOthers({ clientId, externalUserId: ada }),
    malformed: (as, clientId) =>
      as.mintAmongOthers({ clientId, externalUserId: nobody, scope: ' ' }),
    missing: (as, clientId) => as.mintAmongOthers({ clientId, externalUserId: nobody }),
  },
  {
    name: 'GetAllowance',
    guard: 'm2m',
    scope: 'users:read',
    call: (as, clientId) => as.getAllowance({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.getAllowance({ clientId }),
    missing: (as, clientId) => as.getAllowance({ clientId, externalUserId: nobody }),
  },
  {
    name: 'CreateGrant',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.createGrant({ clientId, externalUserId: ada, amountUsdMicros: '1' }),
    malformed: (as, clientId) =>
      as.createGrant({
        clientId,
        externalUserId: nobody,
        amountUsdMicros: '1',
        idempotencyKey: ' ',
      }),
    missing: (as, clientId) =>
      as.createGrant({ clientId, externalUserId: nobody, amountUsdMicros: '1' }),
  },
  {
    name: 'GetLimits',
    guard: 'm2m',
    scope: 'users:read',
    call: (as, clientId) => as.getLimits({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.getLimits({ clientId }),
    missing: (as, clientId) => as.getLimits({ clientId, externalUserId: nobody }),
  },
  {
    name: 'SetLimits',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) =>
      as.setLimits({ clientId, externalUserId: ada, limits: { callsPerMinute: 1, maxPrices: [] } }),
    malformed: (as, clientId) => as.setLimits({ clientId, externalUserId: nobody }),
    missing: (as, clientId) =>
      as.setLimits({
        clientId,
        externalUserId: nobody,
        limits: { callsPerMinute: 1, maxPrices: [] },
      }),
  },
  {
    name: 'ClearLimits',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.clearLimits({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.clearLimits({ clientId }),
    missing: (as, clientId) => as.clearLimits({ clientId, externalUserId: nobody }),
  },
  {
    name: 'GetBalance',
    guard: 'm2m_basic',
    call: (as, clientId) => as.getBalance({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.getBalance({ clientId }),
    missing: (as, clientId) => as.getBalance({ clientId, externalUserId: nobody }),
  },
  {
    name: 'ListLoss',
    guard: 'm2m_basic',
    call: (as, clientId) => as.listLoss({ clientId }),
    malformed: (as, clientId) => as.listLoss({ clientId, cursor: 'x' }),
  },
  {
    name: 'QueryUsage',
    guard: 'm2m_basic',
    call: (as, clientId) => as.queryUsage({ clientId }),
    malformed: (as, clientId) => as.queryUsage({ clientId, groupBy: 'x' }),
  },
  {
    name: 'CheckCaller (m2m)',
    guard: 'm2m',
    scope: 'users:read',
    call: (as, clientId) => as.checkCaller({ clientId, kind: 'm2m', scope: 'users:read' }),
  },
  {
    name: 'CheckCaller (m2m_basic)',
    guard: 'm2m_basic',
    call: (as, clientId) => as.checkCaller({ clientId, kind: 'm2m_basic' }),
  },
]
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

describe('stopping', () => {
  it('lets a running call finish, rejects new ones, and ends within three seconds', async () => {
    const dying = await startTestCore()
    const made = await dying.newApp()
    await dying.as(made.basic).upsertUser({ clientId: made.clientId, externalUserId: ada })
    const blocker = await dying.sql.connect()
    await blocker.query('begin')
    await blocker.query('select 1 from end_users for update')
    const running = dying
      .as(made.basic)
      .updateUser({ clientId: made.clientId, externalUserId: ada, email: 'late@example.com' })
    await until(async () => ((await dying.sql.query(lockWaits)).rowCount ?? 0) > 0)
    const begin = performance.now()
    const stops = [dying.core.stop(), dying.core.stop()]
    const late = createCaller(dying.core.target)
    expect(await outcome(late.as(made.basic).listUsers({ clientId: made.clientId }))).toBe(
      'UNAVAILABLE',
    )
    late.close()
    await blocker.query('commit')
    blocker.release()
    expect((await running).user?.email).toBe('late@example.com')
    await Promise.all(stops)
    expect(performance.now() - begin).toBeLessThan(3_000)
    await dying.stop()
  })

  it('stops waiting for a call that hangs', async () => {
    const dying = await startTestCore()
    const made = await dying.newApp()
    await dying.as(made.basic).upsertUser({ clientId: made.clientId, externalUserId: ada })
    const blocker = await dying.sql.connect()
    await blocker.query('begin')
    await blocker.query('select 1 from end_users for update')
    const hanging = outcome(
      dying.as(made.basic).updateUser({ clientId: made.clientId, externalUserId: ada }),
    )
    await until(async () => ((await dying.sql.query(lockWaits)).rowCount ?? 0) > 0)
    const begin = performance.now()
    await dying.core.stop()
    expect(await hanging).toBe('UNAVAILABLE')
    // The call had its time and was then ended. The database would have let it wait for ten
    // seconds.
    expect(performance.now() - begin).toBeGreaterThan(2_000)
    expect(performance.now() - begin).toBeLessThan(8_000)
    await blocker.query('rollback')
    blocker.release()
    await dying.stop()
  })

  it('resolves a second stop with the first', async () => {
    const dying = await startTestCore()
    const order: string[] = []
    await Promise.all([
      dying.core.stop().then(() => order.push('first')),
      dying.core.stop().then(() => order.push('second')),
    ])
    expect(order).toEqual(['first', 'second'])
    expect(await dying.core.ready()).toMatchObject({ database: 'unavailable' })
    await dying.stop()
  })
})

describe('when PostgreSQL is unavailable', () => {
  it('returns UNAVAILABLE, and recovers without a restart', async () => {
    const database = await createDatabase()
    const url = new URL(database.url)
    const proxy = await startProxy({ host: url.hostname, port: Number(url.port) })
    const through = Object.assign(new URL(database.url), {
      hostname: '127.0.0.1',
      port: String(proxy.port),
    }).href
    const remote = await startTestCore({ DATABASE_URL: through, REDIS_URL: '' })
    const made = await remote.newApp()
    const rpcs = remote.as(made.basic)
    const calls = (): Promise<unknown>[] => [
      rpcs.listUsers({ clientId: made.clientId }),
      rpcs.upsertUser({ clientId: made.clientId, externalUserId: ada }),
      rpcs.getBalance({ clientId: made.clientId, externalUserId: ada }),
      rpcs.createGrant({
        clientId: made.clientId,
        externalUserId: ada,
        amountUsdMicros: '1',
        idempotencyKey: 'k',
      }),
      remote.as().verifyApiKey({ apiKey: 'x' }),
      remote.as().getAccess({ clientId: made.clientId, externalUserId: ada }),
    ]
    await rpcs.upsertUser({ clientId: made.clientId, externalUserId: ada })
    expect(await reasonsOf(calls())).toEqual(['OK', 'OK', 'OK', 'OK', 'TOKEN_INVALID', 'OK'])

    // Cut running calls, then keep the database unavailable.
    const cut = reasonsOf(calls())
    proxy.mode('refuse')
    for (const end of await cut) expect(['OK', 'UNAVAILABLE', 'TOKEN_INVALID']).toContain(end)
    for (let i = 0; i < 3; i++) {
      expect(await reasonsOf(calls())).toEqual([
        'UNAVAILABLE',
        'UNAVAILABLE',
        'UNAVAILABLE',
        'UNAVAILABLE',
        'TOKEN_INVALID',
        'UNAVAILABLE',
      ])
    }
    expect(await remote.core.ready()).toMatchObject({ database: 'unavailable' })
    expect((await remote.as().getJwks()).keys).toHaveLength(2)

    proxy.mode('pass')
    await until(async () => (await outcome(rpcs.listUsers({ clientId: made.clientId }))) === 'OK')
    expect(await reasonsOf(calls())).toEqual(['OK', 'OK', 'OK', 'OK', 'TOKEN_INVALID', 'OK'])
    expect(await remote.core.ready()).toMatchObject({ database: 'ok' })
    await remote.stop()
    proxy.stop()
    await database.drop()
  })

  it('survives a connection that breaks inside a transaction', async () => {
    const blocker = await core.sql.connect()
    await blocker.query('begin')
    await blocker.query('select 1 from end_users for update')
    const calls = Array.from({ length: 8 }, () =>
      outcome(core.as(app.basic).updateUser({ clientId: app.clientId, externalUserId: ada })),
    )
    const waiting = `application_name = 'tollgate-core' and wait_event_type = 'Lock' and datname = current_database()`
    await until(
      async () =>
        (await core.sql.query(`select 1 from pg_stat_activity where ${waiting}`)).rowCount === 8,
    )
    await core.sql.query(`select pg_terminate_backend(pid) from pg_stat_activity where ${waiting}`)
    expect(await Promise.all(calls)).toEqual(calls.map(() => 'UNAVAILABLE'))
    await blocker.query('rollback')
    blocker.release()
    expect(await outcome(core.as(app.basic).listUsers({ clientId: app.clientId }))).toBe('OK')
  })

  it('ends a call in limited time when connections hang', async () => {
    const database = await createDatabase()
    const url = new URL(database.url)
    const proxy = await startProxy({ host: url.hostname, port: Number(url.port) })
    const remote = await startTestCore({
      DATABASE_URL: Object.assign(new URL(database.url), {
        hostname: '127.0.0.1',
        port: String(proxy.port),
      }).href,
    })
    const made = await remote.newApp()
    proxy.mode('hang')
    const begin = performance.now()
    expect(await outcome(remote.as(made.basic).listUsers({ clientId: made.clientId }))).toBe(
      'UNAVAILABLE',
    )
    expect(performance.now() - begin).toBeLessThan(8_000)
    proxy.mode('refuse')
    await remote.stop()
    proxy.stop()
    await database.drop()
  })
})

describe('a stream with a slow reader', () => {
  it('is ended, so that the number of waiting messages is limited', async () => {
    const sent = { count: 0 }
    const done = Promise.withResolvers<void>()
    const deps = {
      host: '127.0.0.1',
      port: 0,
      authenticator: unused,
      serviceTokens,
      log: silentLog(),
      metrics: createMetrics('core'),
      operatorLog: { record: async () => {} },
    }
    const watchInvalidations = streamRpc(
      serviceCaller('sidecar'),
      async (
        _request: WatchInvalidationsRequest,
        emit: (message: WatchInvalidationsResponse) => void,
        context,
      ) => {
        for (; !context.signal.aborted && sent.count < 200_000; sent.count++) {
          emit({ kind: 'key', id: 'x'.repeat(36), endsBefore: 0n })
          if (sent.count % 100 === 0) await new Promise(setImmediate)
        }
        done.resolve()
      },
    )
    const never = rpc(serviceCaller('sidecar'), async () => {
      throw new Error('not asked for')
    })
    const signer = grpcService(SignerServiceService, {
      verifyApiKey: never,
      getAccess: never,
      watchInvalidations,
    })
    const listening = await startGrpcServer([signer], deps)
    const session = connectHttp2(`http://127.0.0.1:${listening.port}`)
    const stream = session.request({
      [constants.HTTP2_HEADER_METHOD]: 'POST',
      [constants.HTTP2_HEADER_PATH]: '/tollgate.signer.v1.SignerService/WatchInvalidations',
      'content-type': 'application/grpc',
      te: 'trailers',
      [serviceTokenHeader]: serviceToken,
    })
    stream.end(Buffer.from([0, 0, 0, 0, 0]))
    await done.promise
    expect(sent.count).toBeLessThan(50_000)
    session.destroy()
    await listening.stop(100)
  })

  it('is not ended for a reader that keeps up', async () => {
    const all = 30_000
    const deps = {
      host: '127.0.0.1',
      port: 0,
      authenticator: unused,
      serviceTokens,
      log: silentLog(),
      metrics: createMetrics('core'),
      operatorLog: { record: async () => {} },
    }
    const watchInvalidations = streamRpc(
      serviceCaller('sidecar'),
      async (
        _request: WatchInvalidationsRequest,
        emit: (message: WatchInvalidationsResponse) => void,
      ) => {
        for (let i = 0; i < all; i++) {
          emit({ kind: 'key', id: String(i), endsBefore: 0n })
          if (i % 1_000 === 0) await new Promise((resolve) => setTimeout(resolve, 20))
        }
      },
    )
    const never = rpc(serviceCaller('sidecar'), async () => {
      throw new Error('not asked for')
    })
    const signer = grpcService(SignerServiceService, {
      verifyApiKey: never,
      getAccess: never,
      watchInvalidations,
    })
    const listening = await startGrpcServer([signer], deps)
    const client = new SignerServiceClient(
      `127.0.0.1:${listening.port}`,
      credentials.createInsecure(),
    )
    const metadata = new Metadata()
    metadata.set(serviceTokenHeader, serviceToken)
    const heard: string[] = []
    for await (const message of client.watchInvalidations({}, metadata)) heard.push(message.id)
    expect(heard).toHaveLength(all)
    expect(heard.at(-1)).toBe(String(all - 1))
    client.close()
    await listening.stop(100)
  })
})

const notAsked = async (): Promise<never> => {
  throw new Error('not asked for')
}
const unused: Authenticator = {
  m2mByBasic: notAsked,
  m2mByToken: notAsked,
  userByToken: notAsked,
  actorByToken: notAsked,
  userByBuilderKey: notAsked,
  provisionerByBasic: notAsked,
  accountBySession: notAsked,
  memberOf: notAsked,
}

describe('a malformed call', () => {
  it('is rejected without harm: garbage bytes, an unknown method, a message that is too large', async () => {
    const path = '/tollgate.identity.v1.UserService/ListUsers'
    expect(await rawStatus(path, Buffer.from([0, 0, 0, 0, 2, 0x0a, 0xff]))).not.toBe('0')
    expect(
      await rawStatus('/tollgate.identity.v1.UserService/DropUsers', Buffer.from([0, 0, 0, 0, 0])),
    ).toBe('12')
    const long = await outcome(
      core
        .as(app.basic)
        .listUsers({ clientId: app.clientId, cursor: 'x'.repeat(17 * 1024 * 1024) }),
    )
    expect(long).not.toBe('OK')
    expect(await outcome(core.as(app.basic).listUsers({ clientId: app.clientId }))).toBe('OK')
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

/** Sends bytes as a gRPC call. Resolves with the grpc-status. */
async function rawStatus(path: string, body: Buffer): Promise<string> {
  const session = connectHttp2(`http://${core.core.target}`)
  const stream = session.request({
    [constants.HTTP2_HEADER_METHOD]: 'POST',
    [constants.HTTP2_HEADER_PATH]: path,
    'content-type': 'application/grpc',
    te: 'trailers',
    [serviceTokenHeader]: serviceToken,
    authorization: app.basic,
  })
  const { promise, resolve, reject } = Promise.withResolvers<string>()
  stream.on('response', (headers) => {
    if (headers['grpc-status'] !== undefined) resolve(String(headers['grpc-status']))
  })
  stream.on('trailers', (headers) => resolve(String(headers['grpc-status'])))
  stream.on('error', (error) =>
    reject(new DomainError('UNAVAILABLE', 'the stream broke', { cause: error })),
  )
  stream.resume()
  stream.end(body)
  return promise.finally(() => session.close())
}
