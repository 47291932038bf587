import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { basic } from '../../../deploy/cli/client.ts'
import { GrantType, TokenType } from '../../../proto/oauth.ts'
import {
  type CredentialName,
  type Lineage,
  type Pages,
  createLineage,
  createPages,
  credentialNames,
  signingNames,
} from '../../support/deployment/lineage.ts'
import { redisUrl } from '../../support/run/redis.ts'
import { type Answer, type Split, startSplit } from '../../support/deployment/split.ts'

let split: Split
let pages: Pages

/** Returns the answer that all endpoints give for a token. Throws if they differ. */
function agreement(doors: Readonly<Record<string, boolean>>): boolean {
  const answers = new Set(Object.values(doors))
  if (answers.size === 1) return answers.has(true)
  throw new Error(`the doors disagree: ${JSON.stringify(doors)}`)
}

/** Returns the credentials that REST still accepts. Signing tokens must still have their scope. */
async function atRest({ values, app, owner }: Lineage): Promise<CredentialName[]> {
  const isTaken = async (...call: Parameters<Split['rest']>): Promise<boolean> =>
    (await split.rest(...call)).status === 200
  const read = async (token: string): Promise<Answer['body']> => {
    const path = '/api/v1/oidc/token/introspection'
    return (await split.rest('POST', path, { authorization: app.basic, form: { token } })).body
  }
  const introspect = async (token: string): Promise<boolean> => {
    const body = await read(token)
    return body['active'] === true && String(body['scope']).includes('sign:job')
  }
  const exchange = (token: string): Promise<boolean> =>
    isTaken('POST', '/api/signer/device/exchange', { json: { deviceToken: token } })
  /** Exchanges without a client, as any holder of the token may. */
  const exchangeAtApp = (token: string): Promise<boolean> =>
    isTaken('POST', `${app.path}/oidc/token`, {
      form: {
        grant_type: GrantType.tokenExchange,
        subject_token: token,
        subject_token_type: TokenType.accessToken,
      },
    })
  const userToken = async (token: string): Promise<boolean> =>
    agreement({
      introspection: await introspect(token),
      exchange: await exchange(token),
      exchangeAtApp: await exchangeAtApp(token),
    })
  const loginToken = async (token: string): Promise<boolean> => {
    agreement({
      active: (await read(token))['active'] === true,
      userinfo: await isTaken('GET', '/api/v1/oidc/me', { authorization: `Bearer ${token}` }),
    })
    return userToken(token)
  }
  const machineToken = async (token: string): Promise<boolean> =>
    agreement({
      active: (await read(token))['active'] === true,
      users: await isTaken('GET', `${app.path}/users`, { authorization: `Bearer ${token}` }),
    })
  const validate = async (key: string): Promise<boolean> =>
    (await split.rest('GET', '/api/v1/auth/validate', { authorization: `Bearer ${key}` }))
      .status === 200
  const checks: Partial<Record<CredentialName, (value: string) => Promise<boolean>>> = {
    access: loginToken,
    minted: userToken,
    keyToken: userToken,
    machine: machineToken,
    web: async () => (await split.rest('GET', '/api/v1/apps', { headers: owner })).status === 200,
    userKey: validate,
    machineKey: validate,
    appKey: validate,
  }
  const alive = await Promise.all(
    credentialNames.map((name) => (checks[name] ?? introspect)(values[name])),
  )
  return credentialNames.filter((_name, index) => alive[index])
}

/** Returns the credentials that the sidecar still allows. */
async function atSidecar({ values }: Lineage): Promise<CredentialName[]> {
  const statuses = await Promise.all(signingNames.map((name) => split.authorize(values[name])))
  for (const status of statuses) expect([200, 401, 403]).toContain(status)
  return signingNames.filter((_name, index) => statuses[index] === 200)
}

const withinMs = 5_000

/** Waits until the sidecar allows no more than `expected`. Returns what it then allows. */
async function settled(lineage: Lineage, expected: readonly CredentialName[]) {
  for (const end = Date.now() + withinMs; ;) {
    const allowed = await atSidecar(lineage)
    if (Date.now() > end || allowed.every((name) => expected.includes(name))) return allowed
    await sleep(50)
  }
}

const revoke = ({ app }: Lineage, token: string) =>
  split.rest('POST', '/api/v1/oidc/token/revocation', {
    authorization: app.basic,
    form: { token },
  })

async function rotate(lineage: Lineage, query: string): Promise<unknown> {
  const path = `/credentials?target=m2m&revokeOld=true${query}`
  const { body } = await lineage.byOwner('POST', path)
  lineage.app.basic = basic(String(body['clientId']), String(body['clientSecret']))
  return body['revokedKeys']
}

const refresh = ({ token, clientId, values }: Lineage) =>
  token({ grant_type: 'refresh_token', client_id: clientId, refresh_token: values.refresh })

const ofLogin = ['access', 'refresh', 'signer', 'session'] as const

/** Causes, and the credentials that end with each; all others stay valid. */
const causes: readonly (readonly [
  string,
  (lineage: Lineage) => Promise<unknown>,
  readonly CredentialName[],
])[] = [
  ['a password reset', ({ email }) => pages.resetPassword(email), [...ofLogin, 'web']],
  [
    'logging out everywhere',
    ({ sessionToken }) => pages.logOutEverywhere(sessionToken),
    [...ofLogin, 'web'],
  ],
  [
    'revocation of the refresh token',
    (lineage) => revoke(lineage, lineage.values.refresh),
    ofLogin,
  ],
  [
    'a second use of the refresh token',
    async (lineage) => {
      expect((await refresh(lineage)).status).toBe(200)
      expect((await refresh(lineage)).body['error']).toBe('invalid_grant')
    },
    ofLogin,
  ],
  [
    'a second use of the code',
    async ({ redeem }) => expect((await redeem()).body['error']).toBe('invalid_grant'),
    ofLogin,
  ],
  [
    'revocation of the access token',
    (lineage) => revoke(lineage, lineage.values.access),
    ['access', 'signer', 'session'],
  ],
  [
    'revocation of the signer token',
    (lineage) => revoke(lineage, lineage.values.signer),
    ['signer'],
  ],
  [
    'revocation of the signer session',
    (lineage) => revoke(lineage, lineage.values.session),
    ['session'],
  ],
  [
    'revocation of the machine token',
    (lineage) => revoke(lineage, lineage.values.machine),
    ['machine', 'machineKey'],
  ],
  [
    'rotation of the secret with revokeOld',
    async (lineage) => expect(await rotate(lineage, '')).toBe(2),
    ['session', 'machine', 'minted', 'userKey', 'keyToken', 'machineKey'],
  ],
  [
    'rotation of the secret with revokeOld and keepKeys',
    async (lineage) => expect(await rotate(lineage, '&keepKeys=true')).toBe(0),
    ['session', 'machine', 'minted', 'keyToken'],
  ],
  [
    'taking sign:job from the app',
    ({ byOwner }) => byOwner('PUT', '', { allowedScopes: ['openid', 'offline_access'] }),
    [...signingNames, 'refresh'],
  ],
  [
    'revocation of a key',
    ({ byBackend, keyIds }) => byBackend('DELETE', `/users/ada/keys?keyId=${keyIds.user}`),
    ['userKey', 'keyToken'],
  ],
  [
    'revocation of an app key',
    ({ byOwner, keyIds }) => byOwner('DELETE', `/keys?keyId=${keyIds.app}`),
    ['appKey'],
  ],
  [
    'deactivation of a user',
    ({ byBackend }) => byBackend('DELETE', '/users?externalUserId=ada'),
    ['minted', 'userKey', 'keyToken', 'machineKey'],
  ],
  ['the end of a membership', ({ removeOwner }) => removeOwner(), ofLogin],
  [
    'deletion of the app',
    ({ byOwner }) => byOwner('DELETE', ''),
    credentialNames.filter((name) => name !== 'web'),
  ],
]

function endsWhatDescends(): void {
  it.each(causes)('%s ends its descendants and no other credential', async (_what, end, ended) => {
    const lineage = await createLineage(split, pages)
    expect(await atRest(lineage)).toEqual(credentialNames)
    expect(await atSidecar(lineage)).toEqual(signingNames)
    await end(lineage)
    const goOn = credentialNames.filter((name) => !ended.includes(name))
    expect(await atRest(lineage)).toEqual(goOn)
    const allowed = signingNames.filter((name) => goOn.includes(name))
    expect(await settled(lineage, allowed)).toEqual(allowed)
  })
}

const variants = [null, ...[redisUrl() ?? []].flat()].map((url) => ({
  url,
  where: url === null ? 'one core and no Redis' : 'two cores and Redis',
}))

describe.each(variants)('with $where', ({ url }) => {
  beforeAll(async () => {
    split = await startSplit({ redisUrl: url })
    pages = createPages(split)
  })
  afterAll(async () => {
    pages?.close()
    await split?.stop()
  })
  endsWhatDescends()
})
