import { credentials, Metadata } from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { serviceTokenHeader } from '../../../proto/headers.ts'
import { SignerServiceClient } from '../../../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import {
  type TestApp,
  type TestCore,
  day,
  outcome,
  serviceToken,
  startTestCore,
  storedHash,
  until,
} from '../support.ts'

const accessToken = 'urn:ietf:params:oauth:token-type:access_token'
const grantType = 'urn:ietf:params:oauth:grant-type:token-exchange'

let core: TestCore
let app: TestApp

beforeAll(async () => {
  core = await startTestCore()
  app = await core.newApp()
})

afterAll(() => core?.stop())

const nameOf = (externalUserId: string) => ({ clientId: app.clientId, externalUserId })
const mint = async (user: string) =>
  (await core.as(app.basic).mintUserToken(nameOf(user))).accessToken

async function open(user: string): Promise<string> {
  await core.as(app.basic).upsertUser(nameOf(user))
  const request = {
    subjectToken: await mint(user),
    subjectTokenType: accessToken,
    audiences: [],
    resources: [],
  }
  return (await core.as(app.basic).exchangeToken(request)).accessToken
}

/** Returns the messages that core's watchers receive from now on. */
async function watch(): Promise<string[]> {
  const heard: string[] = []
  const client = new SignerServiceClient(core.core.target, credentials.createInsecure())
  onTestFinished(() => client.close())
  const metadata = new Metadata()
  metadata.set(serviceTokenHeader, serviceToken)
  const stream = client.watchInvalidations({}, metadata)
  onTestFinished(() => stream.cancel())
  stream.on(
    'data',
    ({ kind, id }: { kind: string; id: string }) => void heard.push(`${kind} ${id}`),
  )
  stream.on('error', () => undefined)
  // The watch is known to be open only when it has received a message.
  await until(async () => {
    const { grant } = await core
      .as(app.basic)
      .createGrant({ ...nameOf('ada'), amountUsdMicros: '1' })
    return grant !== undefined && heard.length > 0
  })
  return heard
}

describe('a signer session', () => {
  it('returns its user, allowance and expiry', async () => {
    const token = await open('ada')
    const { identity, access, expiresAt, scope } = await core.as().verifySignerSession({ token })
    expect(identity).toMatchObject({ clientId: app.clientId, externalUserId: 'ada' })
    expect(access).toMatchObject({ active: true, remainingUsdAttos: (5n * 10n ** 18n).toString() })
    expect([Number(expiresAt), scope]).toEqual([
      Math.floor((core.clock.now().getTime() + day) / 1000),
      'sign:job',
    ])
  })

  it('is stored only as a hash', async () => {
    const token = await open('ada')
    const { rows } = await core.sql.query('select id from signer_sessions where token_hash = $1', [
      storedHash(token),
    ])
    expect(rows).toHaveLength(1)
    const { rows: all } = await core.sql.query<{ text: string }>(
      'select signer_sessions::text as text from signer_sessions',
    )
    expect(all.map(({ text }) => text).join()).not.toContain(token)
  })

  it('ends after a day, when revoked, and with its user, and notifies watchers', async () => {
    const heard = await watch()
    const idOf = async (token: string) =>
      (await core.as().verifySignerSession({ token })).identity?.keyId ?? ''
    const revoked = await open('bob')
    const ended = await open('bob')
    const ids = [await idOf(revoked), await idOf(ended)]
    await core.as(app.basic).revokeSignerSession({ ...nameOf('bob'), id: ids[0] ?? '' })
    expect(await outcome(core.as().verifySignerSession({ token: revoked }))).toBe('TOKEN_INVALID')
    expect(await outcome(core.as().verifySignerSession({ token: ended }))).toBe('OK')
    await core.as(app.basic).deactivateUser(nameOf('bob'))
    expect(await outcome(core.as().verifySignerSession({ token: ended }))).toBe('TOKEN_INVALID')
    await until(() => heard.includes(`token ${ids[0]}`) && heard.includes(`key ${ids[1]}`))

    const late = await open('carl')
    core.clock.advance(day)
    expect(await outcome(core.as().verifySignerSession({ token: late }))).toBe('TOKEN_INVALID')
  })

  it('cannot be revoked or listed by another app', async () => {
    const other = await core.newApp()
    await open('ada')
    const [session] = (await core.as(app.basic).listSignerSessions(nameOf('ada'))).sessions
    expect(
      await outcome(
        core.as(other.basic).revokeSignerSession({ ...nameOf('ada'), id: session?.id ?? '' }),
      ),
    ).toBe('NOT_FOUND')
    expect(await outcome(core.as(other.basic).listSignerSessions(nameOf('ada')))).toBe('NOT_FOUND')
  })

  it('adds audit entries when opened, refused and revoked', async () => {
    const wrong = {
      subjectToken: 'x.y.z',
      subjectTokenType: accessToken,
      audiences: [],
      resources: [],
    }
    expect(await outcome(core.as(app.basic).exchangeToken(wrong))).toBe('GRANT_INVALID')
    const entries = async () => {
      const { rows } = await core.sql.query<{ action: string; status: string }>(`
      select distinct action, status from audit_log where action like 'signer_session%' order by action, status`)
      return rows.map(({ action, status }) => `${action} ${status}`)
    }
    // The audit entry of a refusal is written after the response.
    await until(async () => (await entries()).length === 3)
    expect(await entries()).toEqual([
      'signer_session_revoked success',
      'signer_session_token_exchange refused',
      'signer_session_token_exchange success',
    ])
  })
})

describe('an exchange for a user with nothing left to spend', () => {
  const exchange = async (to: ReturnType<TestCore['as']>, poor: TestApp) => {
    const user = { clientId: poor.clientId, externalUserId: 'poor' }
    await core.as(poor.basic).upsertUser(user)
    const { accessToken: subjectToken } = await core.as(poor.basic).mintUserToken(user)
    return to.exchangeToken({
      clientId: poor.clientId,
      grantType,
      subjectToken,
      subjectTokenType: accessToken,
      audiences: [],
      resources: [],
    })
  }

  it('returns hasAccess false, and ALLOWANCE_EXHAUSTED when that is enforced', async () => {
    const poor = await core.newApp({ starterUsdMicros: '0' })
    expect((await exchange(core.as(), poor)).session).toMatchObject({
      hasAccess: false,
      canSpend: false,
      balanceUsdMicros: '0',
    })
    const strict = await core.startAnother({ ENFORCE_ALLOWANCE_ON_EXCHANGE: 'true' })
    expect(await outcome(exchange(strict.as(), poor))).toBe('ALLOWANCE_EXHAUSTED')
  })
})

describe('concurrent exchanges', () => {
  it('use their own token and credential and have one audit entry each', async () => {
    const other = await core.newApp()
    const names = ['one', 'two', 'three', 'four']
    await Promise.all(names.map((name) => core.as(app.basic).upsertUser(nameOf(name))))
    const [good = '', ended = '', stale = '', misplaced = ''] = await Promise.all(names.map(mint))
    await core.as(app.basic).revokeToken({ token: ended })
    await core.as(app.basic).deactivateUser(nameOf('three'))
    const call = (subjectToken: string, clientId = app.clientId, authorization?: string) => ({
      request: {
        clientId,
        grantType,
        subjectToken,
        subjectTokenType: accessToken,
        requestedTokenType: undefined,
        audiences: [],
        resources: [],
        scope: undefined,
      },
      authorization,
      correlationId: `together-${subjectToken.slice(-8)}`,
    })
    const { answers } = await core.as().exchangeTokens({
      calls: [
        call(good),
        call(ended),
        call(good, app.clientId, app.basic),
        call(stale),
        call(misplaced, other.clientId),
        call(good, app.clientId, other.basic),
        call(misplaced),
      ],
    })
    expect(answers.map(({ response, refusal }) => refusal?.reason ?? response?.scope)).toEqual([
      'sign:job',
      'GRANT_INVALID',
      'sign:job',
      'GRANT_INVALID',
      'NOT_FOUND',
      'NOT_FOUND',
      'sign:job',
    ])
    const { rows } = await core.sql.query<{ correlation_id: string; count: string }>(`
      select correlation_id, count(*)::text as count from audit_log
      where action = 'app_oidc_token_exchange' and status = 'success' and correlation_id like 'together-%'
      group by 1`)
    expect(Object.fromEntries(rows.map(({ correlation_id: id, count }) => [id, count]))).toEqual({
      [`together-${good.slice(-8)}`]: '2',
      [`together-${misplaced.slice(-8)}`]: '1',
    })
  })

  it('do not fail for impossible ids', async () => {
    const known = { jti: crypto.randomUUID(), issuedAt: 1n }
    const checks = ['\0', 'a name'].map((grant) =>
      core.as().checkToken({ ...known, grants: [grant] }),
    )
    expect((await Promise.all(checks)).map(({ revoked }) => revoked)).toEqual([true, false])
  })
})
