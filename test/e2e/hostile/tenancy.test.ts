import type { Pool } from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createPool } from '../../../core/lib/sql.ts'
import { type Operation, sample } from '../../gateway/real.ts'
import { asRecord } from '../../gateway/support.ts'
import {
  type Lineage,
  type Pages,
  createLineage,
  createPages,
  redirectUri,
  signingNames,
} from '../../support/deployment/lineage.ts'
import { type Answer, type Split, startSplit } from '../../support/deployment/split.ts'
import { digestRows } from '../../support/deployment/tenant-rows.ts'
import {
  type Credential,
  type CredentialKind,
  type Victim,
  createVictim,
  credentialKinds,
  credentialsOf,
  operationsIn,
  unknownApp,
  unknownIds,
} from '../../support/deployment/tenants.ts'

type Ids = Readonly<Record<string, string>>

let split: Split
let pages: Pages
let database: Pool
let operations: readonly Operation[]
let victim: Victim
let attacker: Lineage
let credentials: Readonly<Record<CredentialKind, readonly Credential[]>>
let nobodys: Ids
let before: Readonly<Record<string, string>>

beforeAll(async () => {
  split = await startSplit({ redisUrl: null })
  pages = createPages(split)
  database = createPool({
    url: split.databaseUrl,
    max: 2,
    name: 'test',
    statementTimeoutMs: 60_000,
  })
  operations = await operationsIn(split)
  victim = await createVictim(split, { pages, database })
  attacker = await createLineage(split, pages)
  // A key of the app creates its owner as an end user on first use, even if an attacker presents
  // it.
  const authorization = `Bearer ${victim.values.appKey}`
  await split.rest('GET', '/api/v1/auth/validate', { authorization })
  credentials = credentialsOf(attacker, victim.revoked)
  await attacker.byBackend('POST', '/users', { json: { externalUserId: 'last' } })
  const { body } = await attacker.byBackend('GET', '/users?limit=1')
  nobodys = unknownIds(String(body['nextCursor']))
}, 120_000)
beforeEach(async () => {
  before = await digestRows(database, victim.allIds)
})
afterAll(async () => {
  pages?.close()
  await database?.end()
  await split?.stop()
})

interface Seen {
  readonly status: number
  readonly type: string | null
  readonly text: string
}

const inPath = ({ path }: Operation): string[] =>
  [...path.matchAll(/\{([^}]+)\}/g)].map(([, name = '']) => name)
const inQuery = ({ parameters }: Operation): string[] =>
  parameters.filter((each) => each['in'] === 'query').map(({ name }) => String(name))
const inBody = ({ body }: Operation): string[] => Object.keys(asRecord(body?.['properties'] ?? {}))

/** Returns the operation's request with these ids in path, query and body. */
function requestOf(operation: Operation, ids: Ids): { url: string; init: RequestInit } {
  const { method, path, parameters, body, form } = operation
  const at = path.replace(/\{([^}]+)\}/g, (_, name: string) =>
    encodeURIComponent(ids[name] ?? 'unknown'),
  )
  const query = parameters
    .filter((each) => each['in'] === 'query')
    .map(({ name, required }) => [String(name), ids[String(name)] ?? (required ? 'text' : '')])
    .filter(([, value]) => value !== '')
  const url = `${split.platformUrl}${at}?${formOf(Object.fromEntries(query))}`
  if (body === null) return { url, init: { method } }
  const known = inBody(operation).flatMap((name) =>
    ids[name] === undefined ? [] : [[name, ids[name]]],
  )
  const value = { ...asRecord(sample(body)), ...Object.fromEntries(known) }
  const [type, text] = form
    ? ['application/x-www-form-urlencoded', formOf(value)]
    : ['application/json', JSON.stringify(value)]
  return { url, init: { method, body: text, headers: { 'content-type': type } } }
}

const formOf = (value: object): string =>
  new URLSearchParams(
    Object.fromEntries(Object.entries(value).map(([name, each]) => [name, String(each)])),
  ).toString()

/**
 * Sends the request. Removes from the answer what always differs: the correlation id and the ids
 * that were sent.
 */
async function ask(operation: Operation, ids: Ids, credential: Credential): Promise<Seen> {
  const { url, init } = requestOf(operation, ids)
  const { authorization, headers } = credential
  const response = await fetch(url, {
    ...init,
    redirect: 'manual',
    headers: {
      ...Object.fromEntries(new Headers(init.headers)),
      ...headers,
      ...(authorization !== undefined && { authorization }),
    },
  })
  const type = response.headers.get('content-type')
  const isStream = type?.startsWith('text/event-stream') ?? false
  if (isStream) await response.body?.cancel()
  let text = isStream ? '' : await response.text()
  text = text.replace(/"correlation_id":"[^"]*"/, '')
  for (const id of new Set(Object.values(ids))) text = text.replaceAll(id, '{id}')
  return { status: response.status, type, text }
}

const victimIds = (): Ids => ({ ...victim.ids, clientId: victim.clientId })
const named = ({ method, path }: Operation, credential: Credential): string =>
  `${method} ${path} with ${credential.authorization?.slice(0, 24) ?? Object.keys(credential.headers ?? {})[0] ?? 'nothing'}`

/** Returns the victim's data in a text. It must not appear in an attacker's answers. */
const leaksIn = (text: string): string[] => {
  const { ids, allIds, email, values, key } = victim
  const own = [ids.externalUserId, email, key, '7777777', 'of the victim', 'victim.example']
  return [...own, ...allIds, ...Object.values(values)].filter((each) => text.includes(each))
}

async function expectUntouched(): Promise<void> {
  expect(await digestRows(database, victim.allIds)).toEqual(before)
}

/**
 * Returns ids that are no app's: in turn an unknown one and the victim's M2M client, and for
 * credentials of an M2M client always its own id, which is easily sent in place of the app's.
 */
const noApps = (turn: number, kind: CredentialKind): string[] => [
  turn % 2 === 0 ? unknownApp() : victim.app.m2mClientId,
  ...(/M2M|machine/.test(kind) ? [attacker.app.m2mClientId] : []),
]

/** Some routes are gone or only for platform admins, and answer so for every app. */
const refusalsOf = ({ path }: Operation): number[] => [
  400,
  401,
  404,
  ...(/\/(credits|signed-tickets)$/.test(path) ? [410] : []),
  ...(/\/quotas\/|\/billing\/settings$/.test(path) ? [403] : []),
]

// Objects that an attacker creates in its own app have new ids and times, so only the status is
// compared.
const comparable = (seen: Seen): object => (seen.status < 400 ? { status: seen.status } : seen)

describe.each(credentialKinds)('with %s', (kind) => {
  it('treats every route of another app like that of an unknown app, or of a client that is not public', async () => {
    const scoped = operations.filter((each) => inPath(each).includes('clientId'))
    expect(scoped.length).toBeGreaterThan(40)
    // So that each route gets both ids of `noApps`, with different kinds of credentials.
    const turn = credentialKinds.indexOf(kind)
    for (const [i, operation] of scoped.entries())
      for (const [j, credential] of credentials[kind].entries()) {
        const foreign = await ask(operation, victimIds(), credential)
        const what = named(operation, credential)
        for (const clientId of noApps(i + j + turn, kind)) {
          const none = await ask(operation, { ...victimIds(), clientId }, credential)
          expect({ what, ...none }).toEqual({ what, ...foreign })
        }
        expect(refusalsOf(operation)).toContain(foreign.status)
        expect({ what, leaks: leaksIn(foreign.text) }).toEqual({ what, leaks: [] })
      }
    await expectUntouched()
  }, 60_000)

  it("treats another app's id like an unknown id, for routes of the attacker's app or of no app", async () => {
    const own = { clientId: attacker.clientId }
    const taking = operations.filter((each) =>
      [...inPath(each), ...inQuery(each), ...inBody(each)].some((name) => name in victim.ids),
    )
    expect(taking.length).toBeGreaterThan(20)
    for (const operation of taking)
      for (const credential of credentials[kind]) {
        const foreign = await ask(operation, { ...victim.ids, ...own }, credential)
        const none = await ask(operation, { ...nobodys, ...own }, credential)
        const what = named(operation, credential)
        expect({ what, ...comparable(none) }).toEqual({ what, ...comparable(foreign) })
        expect({ what, leaks: leaksIn(foreign.text) }).toEqual({ what, leaks: [] })
      }
    await expectUntouched()
  }, 60_000)
})

describe("another tenant's client with tokens of a victim", () => {
  const grant = 'urn:ietf:params:oauth:grant-type:token-exchange'
  const types = ['access_token', 'jwt', 'refresh_token', 'id_token']
  const uses: readonly ((token: string) => readonly [string, Ids])[] = [
    (token) => ['/api/v1/oidc/token/introspection', { token }],
    (token) => ['/api/v1/oidc/token/revocation', { token }],
    (token) => ['/api/v1/oidc/token/revocation', { token, token_type_hint: 'refresh_token' }],
    (token) => ['/api/v1/oidc/token', { grant_type: 'refresh_token', refresh_token: token }],
    (token) => [
      '/api/v1/oidc/token',
      {
        grant_type: 'authorization_code',
        code: token,
        code_verifier: 'v'.repeat(43),
        redirect_uri: redirectUri,
      },
    ],
    ...types.flatMap((type) =>
      ['/api/v1/oidc/token', `/api/v1/apps/{own}/oidc/token`].map(
        (path) =>
          (token: string): readonly [string, Ids] => [
            path,
            {
              grant_type: grant,
              subject_token: token,
              subject_token_type: `urn:ietf:params:oauth:token-type:${type}`,
            },
          ],
      ),
    ),
  ]

  it.each(['its secret', 'its public id'])(
    'learns and ends nothing with %s',
    async (by) => {
      const post = async (path: string, form: Ids) => {
        const at = path.replace('{own}', attacker.clientId)
        const isPublic = by === 'its public id'
        const { status, body }: Answer = await split.rest('POST', at, {
          form: isPublic ? { ...form, client_id: attacker.clientId } : form,
          ...(!isPublic && { authorization: attacker.app.basic }),
        })
        const { correlation_id: _, ...rest } = body
        return { path, form: Object.keys(form), status, body: rest }
      }
      for (const token of Object.values(victim.values))
        for (const use of uses) {
          const foreign = await post(...use(token))
          const none = await post(...use(unlike(token)))
          // An app's own endpoint may reveal that the token belongs to another app (decision 13).
          const expected = [none, ...(foreign.path.includes('/apps/') ? [anothers(none)] : [])]
          expect(expected.map(textOf)).toContain(textOf(foreign))
          expect(foreign.body).not.toHaveProperty('access_token')
          expect(foreign.body['active'] ?? false).toBe(false)
        }
      await expectUntouched()
    },
    60_000,
  )
})

const textOf = (value: object): string => JSON.stringify(value)
const anothers = (answer: object): object => ({
  ...answer,
  status: 404,
  body: { error: 'not_found', error_description: 'no such app for this credential' },
})

/** Returns a token of the same form that was never issued. */
const unlike = (token: string): string =>
  token.replace(/.{8}$/, (end) => (end === 'AAAAAAAA' ? 'BBBBBBBB' : 'AAAAAAAA'))

describe('the sidecar', () => {
  let secret: string
  let eventsSecret: string
  beforeAll(async () => {
    const { credentials: issued } = await split.near.signers.createSigner({
      name: 'of-the-attacker',
      allApps: false,
      clientIds: [attacker.clientId],
      mayPushEvents: true,
    })
    secret = issued?.secret ?? ''
    eventsSecret = issued?.eventsSecret ?? ''
  })

  const authorize = (by: string, credential: string) => split.decide(credential, {}, by)

  it("allows calls through the attacker's own signer", async () => {
    const status = async () => (await authorize(secret, attacker.values.minted))['status']
    await expect.poll(status, { timeout: 10_000 }).toBe(200)
  })

  it.each(credentialKinds)('rejects %s as a signer secret', async (kind) => {
    for (const { authorization, headers } of credentials[kind])
      for (const path of ['/authorize', '/events']) {
        const answer = await fetch(split.sidecarUrl + path, {
          method: 'POST',
          body: '{}',
          headers: { ...headers, ...(authorization !== undefined && { authorization }) },
        })
        const { status = answer.status }: { status?: number } = JSON.parse(await answer.text())
        expect(status).toBe(401)
      }
  })

  it("refuses a victim's credential at another app's signer without revealing data", async () => {
    for (const name of signingNames) {
      const answer = await authorize(secret, victim.values[name])
      expect([name, answer['status']]).not.toEqual([name, 200])
      expect(leaksIn(JSON.stringify(answer))).toEqual([])
    }
    await expectUntouched()
  })

  it.each([
    ['names the user', (user: string) => ({ auth_id: `${victim.clientId}:${user}` })],
    [
      'names the app apart',
      (user: string) => ({ client_id: victim.clientId, usage_subject: user }),
    ],
    [
      'names both',
      (user: string) => ({
        auth_id: `${attacker.clientId}:x`,
        client_id: victim.clientId,
        usage_subject: user,
      }),
    ],
  ])("rejects an event by another app's signer that %s", async (_, naming) => {
    const event = {
      id: crypto.randomUUID(),
      type: 'create_signed_ticket',
      timestamp: String(Date.now()),
      data: {
        ...naming(victim.ids.externalUserId),
        computed_fee: '120000',
        current_time: new Date().toISOString(),
      },
    }
    const push = async (by: string) =>
      (
        await fetch(`${split.sidecarUrl}/events`, {
          method: 'POST',
          body: JSON.stringify(event),
          headers: { authorization: `Bearer ${by}`, 'content-type': 'application/json' },
        })
      ).status
    expect(await push(eventsSecret)).toBe(403)
    expect(await push(secret)).toBe(401)
    await expectUntouched()
  })
})

it('keeps each credential of the victim valid', async () => {
  for (const name of signingNames)
    expect([name, await split.authorize(victim.values[name])]).toEqual([name, 200])
  const { rest } = split
  const { machine, refresh } = victim.values
  const users = await rest('GET', `${victim.app.path}/users`, {
    authorization: `Bearer ${machine}`,
  })
  const apps = await rest('GET', '/api/v1/apps', { headers: victim.owner })
  const token = await victim.token({
    grant_type: 'refresh_token',
    client_id: victim.clientId,
    refresh_token: refresh,
  })
  expect([users.status, apps.status, token.status]).toEqual([200, 200, 200])
})
