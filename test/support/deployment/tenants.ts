import { randomBytes, randomUUID } from 'node:crypto'
import type { Pool } from 'pg'
import { type Operation, operationsOf } from '../../gateway/real.ts'
import { type Lineage, type Pages, createLineage } from './lineage.ts'
import { internalIds } from './tenant-rows.ts'
import type { Answer, Split } from './split.ts'

export interface Credential {
  readonly authorization?: string
  readonly headers?: Readonly<Record<string, string>>
}

/** The nine kinds of credentials with which a caller may try to reach another tenant's data. */
export const credentialKinds = [
  'no credential',
  'a malformed credential',
  "another tenant's M2M client",
  "another tenant's machine token",
  "another tenant's user token",
  "another tenant's signer token",
  "another tenant's API key",
  "the session of another tenant's owner",
  'credentials of its own that were revoked',
] as const
export type CredentialKind = (typeof credentialKinds)[number]

const bearer = (token: string): Credential => ({ authorization: `Bearer ${token}` })

/** Returns all credentials by kind; the revoked ones in each form that can be revoked. */
export function credentialsOf(
  attacker: Lineage,
  revoked: readonly Credential[],
): Readonly<Record<CredentialKind, readonly Credential[]>> {
  const { values, app, owner } = attacker
  return {
    'no credential': [{}],
    'a malformed credential': [{ authorization: 'Bearer a b' }, { authorization: 'Basic !' }],
    "another tenant's M2M client": [{ authorization: app.basic }],
    "another tenant's machine token": [bearer(values.machine)],
    "another tenant's user token": [bearer(values.minted), bearer(values.access)],
    "another tenant's signer token": [bearer(values.signer), bearer(values.session)],
    "another tenant's API key": [bearer(values.userKey), bearer(values.appKey)],
    "the session of another tenant's owner": [{ headers: owner }],
    'credentials of its own that were revoked': revoked,
  }
}

const idOf = (answer: Answer, name: string): string => String(answer.body[name])

/**
 * Creates a tenant with something of each kind that has an id. Also returns the ids by the names
 * that requests use.
 */
export async function createVictim(split: Split, { pages, database }: Context) {
  const lineage = await createLineage(split, pages)
  const { byOwner, byBackend, clientId } = lineage
  const externalUserId = `victoria-${randomBytes(6).toString('hex')}`
  await byBackend('POST', '/users', { json: { externalUserId } })
  await byBackend('POST', '/users', { json: { externalUserId: 'last' } })
  const path = `/users/${externalUserId}`
  await byBackend('POST', `${path}/allowances`, { json: { amountUsdMicros: '7777777' } })
  await byBackend('PUT', `${path}/limits`, { json: { callsPerMinute: 777 } })
  const key = await byBackend('POST', `${path}/keys`, { json: { label: 'of the victim' } })
  await byBackend('PUT', `${path}/keys/${idOf(key, 'keyId')}/limits`, {
    json: { callsPerMinute: 77 },
  })
  const profile = await byOwner('POST', '/discovery-profiles', { name: 'of the victim' })
  const domain = await byOwner('POST', '/domains', { domain: 'victim.example' })
  const { body: users } = await byBackend('GET', '/users?limit=1')
  const { rows } = await database.query<{ account: string; session: string }>(
    `select m.account_id as account, s.id as session from members m
    join clients c on c.app_id = m.app_id join signer_sessions s on s.app_id = m.app_id
    where c.client_id = $1`,
    [clientId],
  )
  const ids = {
    externalUserId,
    userId: externalUserId,
    external_user_id: externalUserId,
    keyId: idOf(key, 'keyId'),
    id: idOf(profile, 'id'),
    domainId: idOf(domain, 'id'),
    accountId: String(rows[0]?.account),
    sessionId: String(rows[0]?.session),
    cursor: String(users['nextCursor']),
    deviceToken: lineage.values.access,
    token: lineage.values.refresh,
    refresh_token: lineage.values.refresh,
  }
  const allIds = [clientId, idOf(key, 'keyId'), ...(await internalIds(database, clientId))]
  return {
    ...lineage,
    ids,
    allIds,
    key: String(key.body['apiKey']),
    revoked: await revoke(split, lineage),
  }
}

interface Context {
  readonly pages: Pages
  readonly database: Pool
}

export type Victim = Awaited<ReturnType<typeof createVictim>>

/**
 * Revokes credentials of this tenant without side effects on others: a key, a user's token and a
 * client's token.
 */
async function revoke({ rest }: Split, { app, byBackend, token }: Lineage): Promise<Credential[]> {
  const key = await byBackend('POST', '/users/last/keys')
  const minted = await byBackend('POST', '/users/last/token')
  const machine = await token({ grant_type: 'client_credentials' }, app.basic)
  await rest('POST', '/api/v1/oidc/token/revocation', {
    authorization: app.basic,
    form: { token: idOf(machine, 'access_token') },
  })
  await byBackend('DELETE', '/users?externalUserId=last')
  return [
    bearer(idOf(key, 'apiKey')),
    bearer(idOf(minted, 'access_token')),
    bearer(idOf(machine, 'access_token')),
  ]
}

/** Ids of the same form that do not exist; the cursor is one that the caller may use. */
export const unknownIds = (cursor: string): Readonly<Record<keyof Victim['ids'], string>> => {
  const user = `victoria-${randomBytes(6).toString('hex')}`
  return {
    externalUserId: user,
    userId: user,
    external_user_id: user,
    keyId: randomUUID(),
    id: randomUUID(),
    domainId: randomUUID(),
    accountId: randomUUID(),
    sessionId: randomUUID(),
    cursor,
    deviceToken: 'x.y.z',
    token: 'x.y.z',
    refresh_token: randomBytes(32).toString('base64url'),
  }
}

export const unknownApp = (): string => `app_${randomBytes(12).toString('hex')}`

/** Returns every operation of the running service. */
export const operationsIn = async (split: Split): Promise<readonly Operation[]> =>
  (await operationsOf(split.platformUrl, split.app.owner)).operations
