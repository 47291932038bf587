import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { manage } from '../../../support/web/people.ts'
import { bearerOf } from '../../../core/support.ts'
import type { RealApp } from '../../real.ts'
import {
  type Answered,
  type Grants,
  accessToken,
  exchangeGrant,
  sessionOf,
  startGrants,
} from './support.ts'

let grants: Grants
beforeAll(async () => {
  grants = await startGrants()
})
afterAll(() => grants.stop())

/** An app with its own key and an owner who is not yet an end user, and another app. */
interface Case {
  readonly app: RealApp
  readonly key: string
  readonly other: RealApp
}

async function newCase(name: string): Promise<Case> {
  const app = await grants.real.newApp(name)
  const { apiKey } = await manage(grants.real.core, { session: sessionOf(app) }).createKey({
    clientId: app.clientId,
  })
  return { app, key: apiKey, other: grants.app }
}

const usersOf = async ({ clientId, basic }: RealApp): Promise<string[]> =>
  (await grants.real.core.as(basic).listUsers({ clientId })).users.map(
    ({ externalUserId }) => externalUserId,
  )

const subject = (key: string) => ({
  grant_type: exchangeGrant,
  subject_token: key,
  subject_token_type: accessToken,
})
const atKeyRoute = (clientId: string, key: string, scope?: string): Promise<Answered> =>
  grants.send('POST', `/api/v1/apps/${clientId}/auth/api-key/token`, {
    headers: { authorization: bearerOf(key), 'content-type': 'application/json' },
    body: JSON.stringify({ scope }),
  })

const foreign: readonly (readonly [string, (of: Case) => Promise<Answered>, number])[] = [
  [
    "the issuer's endpoint, with the credentials of another app",
    ({ key, other }) => grants.token(subject(key), other.basic),
    400,
  ],
  [
    "another app's endpoint",
    ({ key, other }) => grants.appToken(subject(key), { clientId: other.clientId }),
    404,
  ],
  [
    "another app's endpoint, with its credentials",
    ({ key, other }) =>
      grants.appToken(subject(key), { clientId: other.clientId, authorization: other.basic }),
    404,
  ],
  ["another app's key route", ({ key, other }) => atKeyRoute(other.clientId, key), 404],
  [
    'its own endpoint, for another scope',
    ({ app, key }) =>
      grants.appToken({ ...subject(key), scope: 'openid' }, { clientId: app.clientId }),
    400,
  ],
  [
    'its own endpoint, for another target',
    ({ app, key }) =>
      grants.appToken(
        { ...subject(key), audience: 'https://x.example' },
        { clientId: app.clientId },
      ),
    400,
  ],
  [
    'its own key route, for a scope that the app lacks',
    ({ app, key }) => atKeyRoute(app.clientId, key, 'admin'),
    400,
  ],
]

const mute = ({ app }: Case): Promise<unknown> =>
  grants.real.core.sql.query("update clients set scopes = '{openid}' where client_id = $1", [
    app.clientId,
  ])

const credential = { grant_type: 'client_credentials' }
const silent: readonly (readonly [string, (of: Case) => Promise<Answered>, number])[] = [
  [
    'an exchange at its endpoint',
    ({ app, key }) => grants.appToken(subject(key), { clientId: app.clientId }),
    400,
  ],
  [
    'an exchange at the key route',
    ({ app, key }) => atKeyRoute(app.clientId, key, 'sign:job'),
    400,
  ],
  [
    'validate',
    ({ key }) =>
      grants.send('GET', '/api/v1/auth/validate', { headers: { authorization: bearerOf(key) } }),
    401,
  ],
  [
    "the owner's signer token",
    ({ app }) => grants.token({ ...credential, scope: 'sign:job' }, app.basic),
    400,
  ],
  [
    "a new user's signer token",
    ({ app }) =>
      grants.token(
        { ...credential, scope: 'sign:mint_user_token', external_user_id: 'new' },
        app.basic,
      ),
    400,
  ],
]

describe('a refused request creates no user', () => {
  it.each(foreign)('with an app-level key at %s', async (what, send, status) => {
    const of = await newCase(what.replaceAll(/\W+/g, '-'))
    const before = [await usersOf(of.app), await usersOf(of.other)]
    expect((await send(of)).status).toBe(status)
    expect([await usersOf(of.app), await usersOf(of.other)]).toEqual(before)
  })

  it.each(silent)('of an app that may not sign: %s', async (what, send, status) => {
    const of = await newCase(`silent-${what.replaceAll(/\W+/g, '-')}`)
    await mute(of)
    const before = await usersOf(of.app)
    expect((await send(of)).status).toBe(status)
    expect(await usersOf(of.app)).toEqual(before)
  })
})
