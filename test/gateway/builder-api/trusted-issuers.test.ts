import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { GrantType, TokenType } from '../../../proto/oauth.ts'
import {
  type ForeignIssuer,
  newForeignKey,
  signForeign,
  startForeignIssuer,
} from '../../support/web/foreign-issuer.ts'
import { logInTo, manage } from '../../support/web/people.ts'
import { type Builder, type Tenant, startBuilder, verdictOf } from './support.ts'

const key = await newForeignKey('k1')
let builder: Builder
let mine: Tenant
let theirs: Tenant
let idp: ForeignIssuer
beforeAll(async () => {
  idp = await startForeignIssuer([key])
  const JWT_ISSUER = `${idp.url}/deployment`
  builder = await startBuilder({ OUTBOUND_ALLOW: '127.0.0.1', JWT_ISSUER })
  mine = await builder.newTenant('mine')
  theirs = await builder.newTenant('theirs')
  await trust(mine)
})
afterAll(async () => {
  await idp.stop()
  await builder.stop()
})

/** Trusts an issuer's tokens; by default those with "web" in `azp`. */
async function trust(
  tenant: Tenant,
  { issuer = idp.url, clientClaim = 'azp', clientValues = ['web'] } = {},
) {
  const { core } = builder.real
  const owner = manage(core, { session: (await logInTo(core, tenant, 'owner')).token })
  await owner.createTrustedIssuer({
    clientId: tenant.clientId,
    rules: {
      issuer,
      audiences: [],
      clientClaim,
      clientValues,
      userClaim: '',
      userPrefix: '',
      jwksUri: '',
    },
  })
}
const token = (claims: Readonly<Record<string, unknown>> = {}) => {
  const at = Math.floor(builder.real.core.clock.now().getTime() / 1000)
  const all = { iss: idp.url, sub: 'ada', azp: 'web', iat: at, exp: at + 3600, ...claims }
  return signForeign(key, all, { typ: 'JWT' })
}
const exchange = (subject: string, clientId = mine.clientId) =>
  builder.ask('POST', `/api/v1/apps/${clientId}/oidc/token`, {
    form: {
      grant_type: GrantType.tokenExchange,
      subject_token: subject,
      subject_token_type: TokenType.accessToken,
    },
  })
type Door = 'ask' | 'askEdge'
const usageAt =
  (door: Door) =>
  (bearer: string, clientId = mine.clientId) =>
    builder[door]('GET', `/api/v1/apps/${clientId}/usage?meter=network_fee_usd_micros`, {
      authorization: `Bearer ${bearer}`,
    })

describe('token of a trusted issuer', () => {
  it('is exchanged for a signer session at the builder API', async () => {
    const answer = await exchange(await token())
    expect(answer.body).toMatchObject({ token_type: 'Bearer', expires_in: 300, has_access: true })
    expect(verdictOf(await exchange(await token({ azp: 'other' })))).toBe('400 invalid_grant')
    expect(verdictOf(await exchange(await token(), theirs.clientId))).toBe('400 invalid_grant')
  })

  it.each([
    ['builder port', 'ask'],
    ['edge', 'askEdge'],
  ] as const)('returns its user only their own usage at the %s', async (_, at) => {
    const usage = usageAt(at)
    const answer = await usage(await token({ sub: 'grace' }))
    expect(answer.status).toBe(200)
    expect(answer.body).toMatchObject({ actor: 'grace', subjects: [`${mine.clientId}:grace`] })
    expect((await usage(await token(), theirs.clientId)).status).toBe(404)
    expect((await usage(await token({ azp: 'other' }))).status).toBe(401)
    expect((await usage(await token({ exp: 1 }))).status).toBe(401)
  })

  it('belongs to the app in the path, even when another app trusted its issuer first', async () => {
    const late = await builder.newTenant('late')
    await trust(late, { clientValues: ['late'] })
    const both = await token({ azp: ['web', 'late'], sub: 'lin' })
    const answer = await usageAt('ask')(both, late.clientId)
    expect(answer.status).toBe(200)
    expect(answer.body).toMatchObject({ subjects: [`${late.clientId}:lin`] })
    expect((await usageAt('ask')(both)).body).toMatchObject({ subjects: [`${mine.clientId}:lin`] })
  })

  it('is refused for a deactivated user', async () => {
    const usage = usageAt('ask')
    const text = await token({ sub: 'eve' })
    expect((await exchange(text)).status).toBe(200)
    await builder.real.core
      .as(mine.basic)
      .deactivateUser({ clientId: mine.clientId, externalUserId: 'eve' })
    expect(verdictOf(await exchange(text))).toBe('400 invalid_grant')
    expect((await usage(text)).status).toBe(401)
    expect((await usageAt('askEdge')(text)).status).toBe(401)
  })
})

describe('hanging provider', () => {
  it('delays only exchanges of its own tokens', async () => {
    const iss = `${idp.url}/slow`
    await trust(mine, { issuer: iss })
    idp.state.answers['/slow/keys'] = () => undefined
    onTestFinished(() => void delete idp.state.answers['/slow/keys'])
    const waiting = await token({ iss })
    const ends: string[] = []
    const ask = async (subject: string) => void ends.push(verdictOf(await exchange(subject)))
    const own = await builder.real.core
      .as(mine.basic)
      .mintUserToken({ clientId: mine.clientId, externalUserId: 'ada' })
    await Promise.all([waiting, own.accessToken, waiting, own.accessToken].map(ask))
    expect(ends).toEqual([
      '200',
      '200',
      '503 temporarily_unavailable',
      '503 temporarily_unavailable',
    ])
  })
})

describe("token of the deployment's own issuer", () => {
  it("is exchanged, and returns its user's own usage, in the app whose id it contains", async () => {
    const iss = `${idp.url}/deployment`
    const of = (clientId: string) => ({ iss, aud: iss, azp: clientId, scope: 'sign:job' })
    const text = await token({ ...of(mine.clientId), external_user_id: 'mary' })
    expect((await exchange(text)).status).toBe(200)
    const usage = await usageAt('askEdge')(text)
    expect(usage.body).toMatchObject({ actor: 'mary', subjects: [`${mine.clientId}:mary`] })
    expect(verdictOf(await exchange(text, theirs.clientId))).toBe('400 invalid_grant')
    expect((await usageAt('ask')(text, theirs.clientId)).status).toBe(404)
  })
})
