import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { envelope } from '../../core/metering/harness.ts'
import { basicOf, storedHash } from '../../core/support.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { asRecord } from '../support.ts'
import { type Builder, type Tenant, startBuilder, verdictOf } from './support.ts'

const accessToken = 'urn:ietf:params:oauth:token-type:access_token'
const exchange = {
  grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
  subject_token_type: accessToken,
}
const signer = 'https://svc.example/api/v1/oidc'

let builder: Builder
let mine: Tenant
let theirs: Tenant
let key: string
let jwt: string
beforeAll(async () => {
  builder = await startBuilder()
  mine = await builder.newTenant('mine')
  theirs = await builder.newTenant('theirs')
  key = await newKey(mine, 'ada')
  jwt = mine.userToken.slice('Bearer '.length)
})
afterAll(() => builder.stop())

async function newKey(tenant: Tenant, externalUserId: string): Promise<string> {
  const { body } = await builder.ask('POST', `/api/v1/apps/${tenant.clientId}/users`, {
    authorization: tenant.tenantBasic,
    json: { externalUserId, issueApiKey: true },
  })
  return registerSecret(String(body['apiKey']))
}

const tokenOf = (clientId: string): string => `/api/v1/apps/${clientId}/oidc/token`
const unknownApp = (): string => `app_${randomBytes(12).toString('hex')}`

/** Spends 30 USD; Starter includes 5. */
const spend = ({ real: { core } }: Builder, auth_id: string) =>
  core.as().ingestEvents({
    envelopes: [
      envelope({
        auth_id,
        session_id: auth_id,
        current_time: core.clock.now().toISOString(),
        computed_fee: '10000000000000000',
      }),
    ],
  })

type Form = Readonly<Record<string, string>> | string

const post = (
  form: Form,
  { authorization = null as string | null, clientId = mine.clientId } = {},
) => builder.ask('POST', tokenOf(clientId), { form, authorization })

const claimsOf = (token: unknown): Record<string, unknown> =>
  asRecord(JSON.parse(Buffer.from(String(token).split('.')[1] ?? '', 'base64url').toString()))

describe('exchange', () => {
  it.each([
    ['an sk_ key', () => key],
    ['a user JWT', () => jwt],
  ])('answers %s with the whole signer session', async (_what, subject) => {
    const { status, headers, body } = await post({ ...exchange, subject_token: subject() })
    expect(status).toBe(200)
    expect(headers.get('cache-control')).toBe('no-store')
    expect(headers.get('pragma')).toBe('no-cache')
    registerSecret(String(body['access_token']))
    expect(body).toEqual({
      access_token: expect.stringMatching(/^[\w-]+\.[\w-]+\.[\w-]+$/),
      token_type: 'Bearer',
      expires_in: 300,
      scope: 'sign:job',
      signer_url: 'http://localhost:8935',
      discovery_url: 'http://localhost:8935/discover-orchestrators',
      issued_token_type: accessToken,
      correlation_id: headers.get('x-correlation-id'),
      has_access: true,
      can_spend: true,
      balance_usd_micros: 5_000_000,
    })
    expect(claimsOf(body['access_token'])).toMatchObject({
      client_id: mine.clientId,
      azp: mine.clientId,
      external_user_id: 'ada',
      sub: 'ada',
      scope: 'sign:job',
      token_use: 'signer',
    })
    // It ends with the JWT from which it came; keys are tested below.
    const origins = subject() === jwt ? [claimsOf(jwt)['jti']] : []
    expect(claimsOf(body['access_token'])['descends_from']).toEqual(expect.arrayContaining(origins))
  })

  it("names the app's signer and its discovery URL", async () => {
    await builder.real.core.sql.query(
      `update apps set dmz_url = 'https://signer.example/'
       where id = (select app_id from clients where client_id = $1)`,
      [theirs.clientId],
    )
    const subject_token = await newKey(theirs, 'sue')
    const { body } = await post({ ...exchange, subject_token }, { clientId: theirs.clientId })
    registerSecret(String(body['access_token']))
    expect(body).toMatchObject({
      signer_url: 'https://signer.example/',
      discovery_url: 'https://signer.example/discover-orchestrators',
    })
  })

  it('returns has_access false and balance 0 for an exhausted user', async () => {
    const subject_token = await newKey(mine, 'broke')
    await spend(builder, `${mine.clientId}:broke`)
    const { status, body } = await post({ ...exchange, subject_token })
    registerSecret(String(body['access_token']))
    expect(status).toBe(200)
    expect(body).toMatchObject({ has_access: false, balance_usd_micros: 0 })
  })

  it('returns a token that expires with the exchanged JWT', async () => {
    const { accessToken: token } = await builder.real.core
      .as(mine.basic)
      .mintUserToken({ clientId: mine.clientId, externalUserId: 'ada' })
    builder.real.core.clock.advance(200_000)
    const { body } = await post({ ...exchange, subject_token: registerSecret(token) })
    registerSecret(String(body['access_token']))
    expect(body['expires_in']).toBe(100)
    jwt = registerSecret(
      (
        await builder.real.core
          .as(mine.basic)
          .mintUserToken({ clientId: mine.clientId, externalUserId: 'ada' })
      ).accessToken,
    )
  })

  it.each([
    ["the app's M2M client", () => mine.basic],
    ["the platform's M2M client", () => theirs.basic],
  ])('accepts the credentials of %s', async (_who, authorization) => {
    if (authorization() === theirs.basic) await own(theirs, true)
    const answer = await post(
      { ...exchange, subject_token: key },
      { authorization: authorization() },
    )
    registerSecret(String(answer.body['access_token']))
    expect(verdictOf(answer)).toBe('200')
    await own(theirs, false)
    // It descends from everything that may end: the key and the client's secret.
    const { rows: ends } = await builder.real.core.sql.query<{ id: string }>(
      `select 'key:' || id as id from api_keys where secret_hash = $1
       union all select s.id::text from client_secrets s where s.client_id = $2`,
      [storedHash(key), authorization() === mine.basic ? mine.m2mClientId : theirs.m2mClientId],
    )
    expect(ends).toHaveLength(2)
    expect(claimsOf(answer.body['access_token'])['descends_from']).toEqual(
      expect.arrayContaining(ends.map(({ id }) => id)),
    )
  })

  it('accepts all names of the signer, with or without a final slash', async () => {
    for (const name of [signer, `${signer}/`, 'livepeer-clearinghouse', 'livepeer-remote-signer']) {
      const answer = await post({ ...exchange, subject_token: key, audience: name, resource: name })
      registerSecret(String(answer.body['access_token']))
      expect([name, verdictOf(answer)]).toEqual([name, '200'])
    }
  })

  it('accepts a key prefixed with its user, and with no other user', async () => {
    const subject = await newKey(mine, 'ada???>>>')
    const digits = subject.slice('sk_'.length)
    const named = (externalUserId: string) =>
      `sk_${Buffer.from(externalUserId).toString('base64url')}_${digits}`
    expect(named('ada???>>>')).toContain('Pz8_Pj4-_')
    const right = await post({ ...exchange, subject_token: registerSecret(named('ada???>>>')) })
    registerSecret(String(right.body['access_token']))
    expect(claimsOf(right.body['access_token'])['sub']).toBe('ada???>>>')
    const wrong = await post({ ...exchange, subject_token: registerSecret(named('ada')) })
    expect(verdictOf(wrong)).toBe('400 invalid_grant')
  })

  async function own(tenant: Tenant, owned: boolean): Promise<void> {
    await builder.real.core.sql.query(
      `insert into billing_settings (app_id, is_platform_owned, serves_every_app, updated_at)
       select app_id, true, $2, now() from clients where client_id = $1
       on conflict (app_id) do update set is_platform_owned = true, serves_every_app = $2`,
      [tenant.clientId, owned],
    )
  }
})

/**
 * Each row has a fault, plus the faults of all later rows; the first one determines the refusal.
 */
const rows: {
  fault: string
  form: Readonly<Record<string, string>>
  verdict: string
  /** Start of the error description, if neighbouring rows have the same verdict. */
  says?: string
}[] = [
  {
    fault: 'no grant_type',
    form: { grant_type: '' },
    verdict: '400 invalid_request',
    says: 'grant_type',
  },
  {
    fault: 'another grant_type',
    form: { grant_type: 'client_credentials' },
    verdict: '400 invalid_request',
    says: 'grant_type',
  },
  {
    fault: 'a blank subject_token',
    form: { subject_token: ' ' },
    verdict: '400 invalid_request',
    says: 'subject_token',
  },
  {
    fault: 'another subject_token_type',
    form: { subject_token_type: 'urn:ietf:params:oauth:token-type:jwt' },
    verdict: '400 unsupported_token_type',
  },
  {
    fault: 'half of the client credentials',
    form: { client_id: 'm2m_0123456789abcdef01234567' },
    verdict: '401 invalid_client',
  },
  {
    fault: 'another requested_token_type',
    form: { requested_token_type: 'urn:ietf:params:oauth:token-type:jwt' },
    verdict: '400 invalid_request',
  },
  {
    fault: 'another resource',
    form: { resource: 'https://other.example' },
    verdict: '400 invalid_target',
  },
  {
    fault: 'another audience beside the right resource',
    form: { resource: signer, audience: 'https://other.example' },
    verdict: '400 invalid_target',
  },
  {
    fault: 'an unknown subject',
    form: { subject_token: `sk_${'x'.repeat(49)}` },
    verdict: '400 invalid_grant',
  },
]

describe('order of refusals', () => {
  it.each(rows.map((row, index) => ({ ...row, index })))(
    'reports $fault before all later faults',
    async ({ index, verdict, says = '' }) => {
      const form = rows.slice(index).reduceRight((later, row) => ({ ...later, ...row.form }), {
        ...exchange,
        subject_token: key,
      })
      const answer = await post(form)
      expect(verdictOf(answer)).toBe(verdict)
      expect(answer.body).toEqual({
        error: expect.any(String),
        error_description: expect.stringMatching(new RegExp(`^${says}`)),
        correlation_id: answer.headers.get('x-correlation-id'),
      })
      expect(answer.headers.get('cache-control')).toBe('no-store')
    },
  )

  it('handles a target of only slashes the same way, in little time', async () => {
    const slashes = `${'/'.repeat(300_000)}x`
    for (const target of [{ audience: slashes }, { resource: slashes }])
      expect(verdictOf(await post({ ...exchange, subject_token: key, ...target }))).toBe(
        '400 invalid_target',
      )
  })

  it('starts with the type and the size of the body', async () => {
    const json = await builder.ask('POST', tokenOf(mine.clientId), { json: exchange })
    expect(verdictOf(json)).toBe('400 invalid_request')
    const refusals: readonly [Record<string, string>, RegExp][] = [
      [{ 'content-type': 'multipart/form-data; boundary=x' }, /^send the body as /],
      [{ 'content-encoding': 'gzip' }, /^send the body without Content-Encoding$/],
    ]
    for (const [headers, description] of refusals) {
      const ask = { form: { ...exchange, subject_token: key }, headers }
      const answer = await builder.ask('POST', tokenOf(mine.clientId), ask)
      expect(verdictOf(answer)).toBe('400 invalid_request')
      expect(answer.body['error_description']).toMatch(description)
    }
    const typed = await builder.ask('POST', tokenOf(mine.clientId), {
      form: { ...exchange, subject_token: key },
      headers: { 'content-type': 'APPLICATION/x-www-form-urlencoded; charset=UTF-8' },
    })
    registerSecret(String(typed.body['access_token']))
    expect(typed.status).toBe(200)
    const large = await post({ ...exchange, subject_token: 'x'.repeat(1_100_000) })
    expect(large.status).toBe(413)
    const twice = `${new URLSearchParams(exchange).toString()}&subject_token=a&subject_token=b`
    expect(verdictOf(await post(twice))).toBe('400 invalid_request')
    const many = `${new URLSearchParams(exchange).toString()}${'&audience=x'.repeat(17)}`
    expect((await post(many)).body['error_description']).toBe(
      'audience must be at most 16 names of the signer',
    )
  })

  it.each([
    ['a wrong secret', () => basicOf(mine.m2mClientId, 'svc_cs_wrong')],
    ["another app's M2M client", () => theirs.basic],
    ['the tenant, which is not a client here', () => mine.tenantBasic],
    ['a Bearer credential', () => mine.machineToken],
    ['a secret without a client id', () => basicOf('', 'x')],
  ])('%s gets 401 before the tokens are checked', async (_who, authorization) => {
    const form = { ...exchange, subject_token: 'x', requested_token_type: 'x' }
    const answer = await post(form, { authorization: authorization() })
    expect(verdictOf(answer)).toBe('401 invalid_client')
    expect(answer.headers.get('www-authenticate')).toMatch(/^Basic /)
  })

  it('counts unauthenticated refusals', async () => {
    const { metrics } = builder.real.core
    const count = async () => {
      const text = await metrics.getSingleMetricAsString('tollgate_tokens_anonymous_refusals_total')
      const line = /action="app_oidc_token_exchange",reason="CREDENTIAL_INVALID"[^}]*\} (\d+)/
      return Number(line.exec(text)?.[1] ?? 0)
    }
    const before = await count()
    const authorization = basicOf(mine.m2mClientId, 'svc_cs_wrong')
    await post({ ...exchange, subject_token: key }, { authorization })
    expect(await count()).toBe(before + 1)
  })
})

describe('subject', () => {
  it.each([
    ['of another app', () => ({ clientId: theirs.clientId, subject: key })],
    ['at an app that does not exist', () => ({ clientId: unknownApp(), subject: key })],
    ["at the M2M client's id", () => ({ clientId: mine.m2mClientId, subject: key })],
    ['that is a JWT of another app', () => ({ clientId: theirs.clientId, subject: jwt })],
    ['that is a key of the platform API', () => subjectOf(mine.apiKey)],
    ['that is a machine token', () => subjectOf(mine.machineToken)],
    ['that is a client secret', () => subjectOf('Bearer svc_cs_x')],
    ['that is not a token', () => subjectOf('Bearer a.b.c')],
    ['whose checksum is wrong', () => subjectOf(`Bearer ${key.slice(0, -1)}${flip(key)}`)],
  ])('%s is invalid_grant', async (_what, ask) => {
    const { clientId, subject } = ask()
    const answer = await post({ ...exchange, subject_token: subject }, { clientId })
    expect(verdictOf(answer)).toBe('400 invalid_grant')
  })

  it('is not treated as a client secret when the user part of its key contains cs_', async () => {
    const user = 'ab\u0733\u{1f600}'
    const part = Buffer.from(user).toString('base64url')
    expect(part).toContain('cs_')
    const digits = (await newKey(mine, user)).slice('sk_'.length)
    const url = `${builder.real.url}/api/v1/apps/${mine.clientId}/oidc/token`
    const statusOf = async (subject_token: string) =>
      (
        await fetch(url, {
          method: 'POST',
          body: new URLSearchParams({ ...exchange, subject_token }),
        })
      ).status
    expect(await statusOf(registerSecret(`sk_${part}_${digits}`))).toBe(200)
    expect(await statusOf(`sk_svc_cs_${digits}`)).toBe(400)
    expect(await statusOf(`svc_cs_${digits}`)).toBe(400)
    expect(await statusOf(`${mine.clientId}_svc_cs_${digits}`)).toBe(400)
  })

  it('rejects a signer JWT, which could renew itself', async () => {
    const { body } = await post({ ...exchange, subject_token: key })
    const again = await post({
      ...exchange,
      subject_token: registerSecret(String(body['access_token'])),
    })
    expect(verdictOf(again)).toBe('400 invalid_grant')
  })

  it("rejects a deactivated user's key and JWT", async () => {
    const subject_token = await newKey(mine, 'gone')
    const name = { clientId: mine.clientId, externalUserId: 'gone' }
    const token = (await builder.real.core.as(mine.basic).mintUserToken(name)).accessToken
    await builder.real.core.as(mine.basic).deactivateUser(name)
    for (const subject of [subject_token, registerSecret(token)])
      expect(verdictOf(await post({ ...exchange, subject_token: subject }))).toBe(
        '400 invalid_grant',
      )
  })

  it('returns a token newer than the deactivation when its user is reactivated within a second', async () => {
    const { core } = builder.real
    await newKey(mine, 'back')
    const name = { clientId: mine.clientId, externalUserId: 'back' }
    core.clock.advance(500)
    await core.as(mine.basic).deactivateUser(name)
    await core.as(mine.basic).updateUser({ ...name, status: 'active' })
    const { accessToken } = await core.as(mine.basic).mintUserToken(name)
    const answer = await post({ ...exchange, subject_token: registerSecret(accessToken) })
    registerSecret(String(answer.body['access_token']))
    expect(claimsOf(answer.body['access_token'])['iat']).toBe(
      Math.ceil(core.clock.now().getTime() / 1000),
    )
    core.clock.advance(500)
  })

  it('stores its key as a hash, like other keys', async () => {
    const { rowCount } = await builder.real.core.sql.query(
      'select from api_keys where secret_hash = $1 and prefix = $2',
      [storedHash(key), key.slice(0, 9)],
    )
    expect(rowCount).toBe(1)
  })

  it("needs the app's scope sign:job", async () => {
    const app = await builder.newTenant('mute')
    const subject_token = await newKey(app, 'sue')
    await builder.real.core.sql.query(
      "update clients set scopes = '{openid}' where client_id = $1",
      [app.clientId],
    )
    const answer = await post({ ...exchange, subject_token }, { clientId: app.clientId })
    expect(verdictOf(answer)).toBe('400 invalid_grant')
  })
})

const subjectOf = (bearer: string) => ({
  clientId: mine.clientId,
  subject: bearer.slice('Bearer '.length),
})
const flip = (text: string): string => (text.endsWith('0') ? '1' : '0')

describe('with enforcement of allowances', () => {
  it('returns 402 insufficient_allowance to an exhausted user', async () => {
    const strict = await startBuilder({ ENFORCE_ALLOWANCE_ON_EXCHANGE: 'true' })
    try {
      const { clientId, userToken } = await strict.newTenant('strict')
      await spend(strict, `${clientId}:ada`)
      const answer = await strict.ask('POST', tokenOf(clientId), {
        form: { ...exchange, subject_token: userToken.slice('Bearer '.length) },
      })
      expect(verdictOf(answer)).toBe('402 insufficient_allowance')
    } finally {
      await strict.stop()
    }
  }, 60_000)
})
