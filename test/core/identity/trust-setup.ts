import { randomUUID } from 'node:crypto'
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest'
import type { TrustRules } from '../../../proto/gen/ts-proto/tollgate/identity/v1/issuers.ts'
import { GrantType, TokenType } from '../../../proto/oauth.ts'
import {
  type ForeignIssuer,
  newForeignKey,
  signForeign,
  startForeignIssuer,
} from '../../support/web/foreign-issuer.ts'
import { type Managing, logInTo, manage } from '../../support/web/people.ts'
import { type TestApp, type TestCore, begin, outcome, startTestCore } from '../support.ts'

export const keys = { RS256: await newForeignKey('k1'), ES256: await newForeignKey('e1', 'ES256') }
export const stranger = await newForeignKey('k1')

export let core: TestCore
export let app: TestApp
export let owner: Managing
export let idp: ForeignIssuer
/** Differs per test, because a port may be reused. */
export let base: string

/** Registers the hooks of a test file. Files of a worker share this module, so each calls it. */
export function setUpTrust(): void {
  beforeAll(async () => {
    core = await startTestCore({ OUTBOUND_ALLOW: '127.0.0.1' })
  })
  afterAll(() => core.stop())
  beforeEach(async () => {
    core.clock.set(begin)
    idp = await startForeignIssuer([keys.RS256, keys.ES256])
    base = `${idp.url}/${randomUUID()}`
    app = await core.newApp()
    owner = await ownerOf(app)
  })
  afterEach(() => idp.stop())
}

export const ownerOf = async (of: TestApp): Promise<Managing> =>
  manage(core, { session: (await logInTo(core, of, 'owner')).token })

export const rulesOf = (rules: Partial<TrustRules>): TrustRules => ({
  issuer: `${base}/tenant`,
  audiences: [],
  clientClaim: '',
  clientValues: [],
  userClaim: '',
  userPrefix: '',
  jwksUri: '',
  ...rules,
})
export const webClient = { clientClaim: 'azp', clientValues: ['web'] }
export const trust = async (
  rules: Partial<TrustRules>,
  of: TestApp = app,
  by: Managing = owner,
) => {
  const { issuer } = await by.createTrustedIssuer({ clientId: of.clientId, rules: rulesOf(rules) })
  return issuer?.id ?? ''
}

export const seconds = (): number => Math.floor(core.clock.now().getTime() / 1000)
export const claimsOf = (more: Readonly<Record<string, unknown>> = {}) => ({
  iss: `${base}/tenant`,
  sub: 'ada',
  azp: 'web',
  iat: seconds() - 5,
  exp: seconds() + 3600,
  ...more,
})
export const token = (
  more: Readonly<Record<string, unknown>> = {},
  header: Readonly<Record<string, unknown>> = {},
) => signForeign(keys.RS256, claimsOf(more), { typ: 'JWT', ...header })

export const exchange = (subjectToken: string, of: TestApp = app) =>
  core.as().exchangeToken({
    clientId: of.clientId,
    grantType: GrantType.tokenExchange,
    subjectToken,
    subjectTokenType: TokenType.jwt,
  })
/** Verifies like a sidecar. Returns the fault, or the user. */
export const verify = async (text: string): Promise<string> => {
  const { fault, identity } = await core.as().verifyForeignToken({ token: text })
  return fault || `${identity?.clientId}:${identity?.externalUserId}`
}
/** Returns the outcome of an exchange, of a sidecar's verification, and of `check`. */
export async function doors(text: string) {
  const { check } = await owner.checkForeignToken({ clientId: app.clientId, token: text })
  const exchanged = await outcome(exchange(text))
  return { exchange: exchanged, sidecar: await verify(text), accepted: check?.accepted }
}
export const userCount = async (): Promise<number> =>
  (await core.as(app.basic).listUsers({ clientId: app.clientId })).users.length
