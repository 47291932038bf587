import { Type } from 'typebox'
import type { App } from '../../http/app.ts'
import { del, get } from '../../http/endpoint.ts'
import { CorrelationId, addSchemas, named, ref } from '../../http/schemas.ts'
import { Key, RevokedKey } from '../keys/keys.ts'
import { AppParams, Instant, nullable, pageQuery } from '../schemas.ts'
import { ownRules, ownUrl } from './rules.ts'

const OwnKeyList = named(
  Type.Object({ keys: Type.Array(ref(Key)), nextCursor: Type.Optional(Type.String()) }),
  'OwnKeyList',
)
const OwnLogin = named(
  Type.Object({
    loginId: Type.String(),
    createdAt: Instant('When you logged in, or approved the device.'),
    expiresAt: Instant('When it ends at the latest.'),
    lastUsedAt: Instant('When its tokens were last renewed.'),
    oauthClientId: nullable({ description: "Null if the app's backend approved it." }),
    clientName: nullable({ description: 'The program that you logged in to.' }),
    scopes: Type.Array(Type.String()),
  }),
  'OwnLogin',
)
const OwnLoginList = named(Type.Object({ logins: Type.Array(ref(OwnLogin)) }), 'OwnLoginList')
const EndedLogin = named(
  Type.Object({
    success: Type.Boolean(),
    correlation_id: CorrelationId,
    loginId: Type.String(),
    endedAt: Instant('When it ended.'),
    effectiveBy: Instant('The time after which no cache accepts its tokens.'),
  }),
  'EndedLogin',
)

/** A person's keys and logins in an app, which it can end but not create here. */
export function ownAccessRoutes(app: App): void {
  addSchemas(app, [OwnKeyList, OwnLogin, OwnLoginList, EndedLogin])
  listKeys(app)
  revokeKey(app)
  listLogins(app)
  endLogin(app)
}

const listKeys = get({
  ...ownRules,
  url: `${ownUrl}/keys`,
  operationId: 'listKeysOfMe',
  summary: 'Your keys',
  description: 'Lists your API keys of the app, including revoked ones, in pages.',
  params: AppParams,
  querystring: Type.Object(pageQuery),
  response: { 200: ref(OwnKeyList) },
  handler: async ({ params, query: { limit, cursor }, core }) => {
    const page = { limit: Number(limit ?? 0), cursor }
    const { keys, nextCursor } = await core.keys.listKeys({ ...params, ...page })
    return { keys: keys.map((key) => ({ ...key, id: key.keyId })), nextCursor }
  },
})

const revokeKey = del({
  ...ownRules,
  url: `${ownUrl}/keys/:keyId`,
  operationId: 'revokeKeyOfMe',
  summary: 'Revoke one of your keys',
  description:
    'Revokes the key and every token that was issued for it. Until effectiveBy a cache may still accept it.',
  params: Type.Object({ ...AppParams.properties, keyId: Type.String() }),
  response: { 200: ref(RevokedKey) },
  handler: async ({ params, core, correlationId }) => {
    const { revokedAt, effectiveBy } = await core.keys.revokeKey(params)
    const { keyId } = params
    return { success: true, correlation_id: correlationId, keyId, revokedAt, effectiveBy }
  },
})

const listLogins = get({
  ...ownRules,
  url: `${ownUrl}/logins`,
  operationId: 'listLoginsOfMe',
  summary: 'Your logins to the app',
  description:
    'Lists the browsers, programs and devices that are logged in to the app as you, the newest first, at most 100.',
  params: AppParams,
  response: { 200: ref(OwnLoginList) },
  handler: async ({ params, core }) => core.authorization.listOwnLogins(params),
})

const endLogin = del({
  ...ownRules,
  url: `${ownUrl}/logins/:loginId`,
  operationId: 'endLoginOfMe',
  summary: 'End one of your logins',
  description:
    'Ends the login with all its tokens and everything that they were exchanged for. Until effectiveBy a cache may still accept them.',
  params: Type.Object({ ...AppParams.properties, loginId: Type.String() }),
  response: { 200: ref(EndedLogin) },
  handler: async ({ params, core, correlationId }) => {
    const ended = await core.authorization.endOwnLogin(params)
    return { success: true, correlation_id: correlationId, loginId: params.loginId, ...ended }
  },
})
