import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { GrantType, TokenType } from '../../../proto/oauth.ts'
import {
  type ForeignIssuer,
  newForeignKey,
  signForeign,
  startForeignIssuer,
} from '../../support/web/foreign-issuer.ts'
import { type Managing, logInTo, manage } from '../../support/web/people.ts'
import { type TestApp, type TestCore, begin, outcome, startTestCore } from '../support.ts'

const key = await newForeignKey('k1')

let idp: ForeignIssuer
let core: TestCore
let app: TestApp
let owner: Managing
beforeAll(async () => {
  idp = await startForeignIssuer([key])
  // No OUTBOUND_ALLOW: the operator chose the address.
  core = await startTestCore({ JWT_ISSUER: `${idp.url}/`, JWT_AUDIENCE: 'tollgate' })
  app = await core.newApp()
  owner = manage(core, { session: (await logInTo(core, app, 'owner')).token })
})
afterAll(async () => {
  await idp.stop()
  await core.stop()
})
afterEach(() => {
  idp.state.answers = {}
  core.clock.set(begin)
})

const seconds = (): number => Math.floor(core.clock.now().getTime() / 1000)
const token = (claims: Readonly<Record<string, unknown>> = {}) =>
  signForeign(
    key,
    {
      iss: idp.url,
      aud: 'tollgate',
      azp: app.clientId,
      external_user_id: 'ada',
      scope: 'openid sign:job',
      iat: seconds() - 5,
      exp: seconds() + 3600,
      ...claims,
    },
    { typ: 'JWT' },
  )

const exchange = (subjectToken: string, { clientId }: TestApp = app) =>
  outcome(
    core.as().exchangeToken({
      clientId,
      grantType: GrantType.tokenExchange,
      subjectToken,
      subjectTokenType: TokenType.accessToken,
    }),
  )
/** Verifies like a sidecar without JWT_ISSUER. Returns the fault, or the user. */
const verify = async (text: string): Promise<string> => {
  const { fault, identity } = await core.as().verifyForeignToken({ token: text })
  return fault || `${identity?.clientId}:${identity?.externalUserId}`
}
const check = async (text: string) =>
  (await owner.checkForeignToken({ clientId: app.clientId, token: text })).check

describe("a token of the deployment's own issuer", () => {
  it("identifies its user in the app that it names, without the app's trust", async () => {
    const text = await token()
    expect(await check(text)).toMatchObject({
      accepted: true,
      trustedIssuerId: 'deployment',
      externalUserId: 'ada',
    })
    expect(await exchange(text)).toBe('OK')
    expect(await verify(text)).toBe(`${app.clientId}:ada`)
    const named = await token({ azp: undefined, client_id: app.clientId, sub: 'bob' })
    expect(await exchange(named)).toBe('OK')
    expect(await verify(named)).toBe(`${app.clientId}:ada`)
  })

  it('is rejected by an app that it does not name', async () => {
    const other = await core.newApp()
    expect(await exchange(await token(), other)).toBe('GRANT_INVALID')
    const both = await token({ client_id: other.clientId })
    expect(await exchange(both, other)).toBe('GRANT_INVALID')
    expect(await verify(both)).toBe(`${app.clientId}:ada`)
  })

  it.each([
    ['another audience', { aud: 'another' }, 'token_audience', 'audience'],
    ['no app', { azp: undefined }, 'token_issuer', 'client'],
    ['an unknown app', { azp: `app_${'0'.repeat(24)}` }, 'token_issuer', 'client'],
    ['no user', { external_user_id: undefined }, 'invalid_identity', 'user'],
    ['a past expiry', { exp: 1 }, 'token_expired', 'expiry'],
    ['other scopes', { scope: 'openid' }, 'insufficient_scope', 'scope'],
    ['no scope', { scope: undefined }, 'insufficient_scope', 'scope'],
  ])('is rejected with %s', async (...[, claims, fault, rule]) => {
    const text = await token(claims)
    expect(await exchange(text)).toBe('GRANT_INVALID')
    expect(await verify(text)).toBe(fault)
    const outcomes = (await check(text))?.rules ?? []
    expect(outcomes.filter(({ passed }) => !passed).map((each) => each.rule)).toEqual([rule])
  })

  it("is rejected with another key's signature, and unavailable without the issuer's keys", async () => {
    const forged = await signForeign(await newForeignKey('k2'), {
      iss: idp.url,
      aud: 'tollgate',
      azp: app.clientId,
      external_user_id: 'ada',
      scope: 'sign:job',
      exp: seconds() + 60,
    })
    expect(await verify(forged)).toBe('token_signature')
    expect(await exchange(forged)).toBe('GRANT_INVALID')
    idp.state.answers[''] = (_, response) => response.writeHead(503).end()
    core.clock.advance(2 * 3_600_000)
    expect(await exchange(await token())).toBe('UNAVAILABLE')
  })

  it("is verified by an app's own trust in its exchange, otherwise by the deployment's", async () => {
    const other = await core.newApp()
    const byOther = manage(core, { session: (await logInTo(core, other, 'owner')).token })
    const { issuer } = await byOther.createTrustedIssuer({
      clientId: other.clientId,
      rules: {
        issuer: idp.url,
        audiences: [],
        clientClaim: 'azp',
        clientValues: [app.clientId],
        userClaim: 'sub',
        userPrefix: '',
        jwksUri: `${idp.url}/keys`,
      },
    })
    const text = await token({ sub: 'eve' })
    expect(await verify(text)).toBe(`${app.clientId}:ada`)
    const { check: checked } = await byOther.checkForeignToken({
      clientId: other.clientId,
      token: text,
    })
    expect(checked).toMatchObject({ trustedIssuerId: issuer?.id, externalUserId: 'eve' })
    // The URL of an app's keys was not chosen by the operator.
    expect(await exchange(text, other)).toBe('UNAVAILABLE')
  })
})
