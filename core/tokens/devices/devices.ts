import { hash, randomInt } from 'node:crypto'
import { DomainError } from '../../../proto/errors.ts'
import { GrantType } from '../../../proto/oauth.ts'
import { type Actor, auditSuccess } from '../../platform/audit.ts'
import type { AccountCaller } from '../../rpc/callers.ts'
import type { Clients, PublicClient } from '../../identity/apps/clients.ts'
import type { LoginAdmission } from '../../identity/apps/login-policy.ts'
import type { User } from '../../identity/types.ts'
import { newSecret } from '../../lib/crypto.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import * as store from './store.ts'
import { chooseScopes, splitScopes } from '../scopes.ts'
import { type Subjects, accountSubject } from '../subjects.ts'

// RFC 8628 section 6.1: no vowels, so that user codes do not form words.
const letters = 'BCDFGHJKLMNPQRSTVWXZ'
const half = 4
const attemptsMax = 5

export interface DevicesDeps {
  readonly pool: Pool
  readonly clients: Pick<Clients, 'findPublic'>
  readonly subjects: Pick<Subjects, 'provision'>
  readonly loginPolicy: Pick<LoginAdmission, 'require'>
  readonly ttlSeconds: number
  readonly intervalSeconds: number
  readonly openPerClient: number
  readonly openPerAddress: number
  readonly now: Now
}

export const devicePrefix = 'svc_dc_'
export const deviceHash = (code: string): Buffer => hash('sha256', code, 'buffer')

/** Device logins, and the decisions to approve or deny them (RFC 8628). */
export function createDevices(deps: DevicesDeps) {
  const { pool, clients, subjects, loginPolicy, ttlSeconds, intervalSeconds, now } = deps
  const { openPerClient, openPerAddress } = deps

  /**
   * Begins the login of a device. Throws CREDENTIAL_INVALID for an unknown client,
   * CLIENT_UNAUTHORIZED without the grant type, RATE_LIMITED when the client or the caller's
   * address has too many undecided codes.
   */
  async function start(request: {
    clientId: string
    scope?: string | undefined
    address?: string | undefined
  }) {
    const { clientId, address = '' } = request
    const client = await clients.findPublic(clientId)
    if (!client) throw new DomainError('CREDENTIAL_INVALID', 'unknown client')
    if (!client.grantTypes.includes(GrantType.deviceCode)) {
      throw new DomainError('CLIENT_UNAUTHORIZED', 'this client may not log in devices')
    }
    const scope = chooseScopes(request.scope, { grantable: client.scopes, fallback: client.scopes })
    const deviceCode = newSecret(devicePrefix)
    const userCode = await tx(pool, async (db) => {
      await requireRoom(db, { clientId, address })
      return insertDevice(db, { clientId, address, scope, deviceCode })
    })
    return { deviceCode, userCode, expiresIn: ttlSeconds, interval: intervalSeconds }
  }

  /**
   * Limits undecided codes, because requests for codes need no authentication. Deletes undecided
   * codes one lifetime after their expiry.
   */
  async function requireRoom(db: Db, owner: { clientId: string; address: string }): Promise<void> {
    await store.lockPending(db, owner)
    await store.deleteUndecided(db, owner, addSeconds(now(), -ttlSeconds))
    const { of_client: ofClient, of_address: ofAddress } = await store.countPending(db, owner)
    if (ofAddress >= openPerAddress)
      throw new DomainError(
        'RATE_LIMITED',
        'this address has too many open device codes; use those',
      )
    if (ofClient >= openPerClient)
      throw new DomainError(
        'RATE_LIMITED',
        'too many devices of this app wait for a login; try again later',
      )
  }

  async function insertDevice(
    db: Db,
    device: { clientId: string; address: string; scope: string; deviceCode: string },
  ): Promise<string> {
    for (let attempt = 0; attempt < attemptsMax; attempt++) {
      const userCode = newUserCode()
      const at = now()
      const isInserted = await store.insertDeviceCode(db, {
        hash: deviceHash(device.deviceCode),
        userCode,
        clientId: device.clientId,
        address: device.address,
        scope: device.scope,
        intervalSeconds,
        at,
        expiresAt: addSeconds(at, ttlSeconds),
      })
      if (isInserted) return userCode
    }
    throw new DomainError('UNAVAILABLE', 'no user code is free now; try again')
  }

  /**
   * Returns the client and scopes of a user code. Throws GRANT_INVALID for an unknown or used code,
   * DEVICE_CODE_EXPIRED for an expired one.
   */
  async function describe(text: string) {
    const { device, client } = await getOpen(text)
    return {
      clientId: client.clientId,
      appName: client.appName,
      appColor: client.appColor,
      userCode: device.user_code,
      scopes: splitScopes(device.scope),
    }
  }

  async function getOpen(
    text: string,
  ): Promise<{ device: store.DeviceCodeRow; client: PublicClient }> {
    const code = parseUserCode(text)
    const device = code === null ? null : await store.findDevice(pool, code)
    const client = device && (await clients.findPublic(device.client_id))
    if (!device || !client || device.status === 'consumed') throw unknownCode()
    if (device.expires_at <= now())
      throw new DomainError(
        'DEVICE_CODE_EXPIRED',
        'the code has expired; start again on the device',
      )
    return { device, client }
  }

  /** Records the decision of a logged-in person. Only the first decision about a device counts. */
  async function decide(
    account: AccountCaller,
    request: { userCode: string; action: string },
    actor: Actor,
  ) {
    if (request.action !== 'approve' && request.action !== 'deny') {
      throw new DomainError('REQUEST_INVALID', 'action must be approve or deny')
    }
    const { device, client } = await getOpen(request.userCode)
    if (request.action === 'deny') {
      await bind(
        device,
        { client, status: 'denied', userId: null, accountId: account.accountId, grants: [] },
        actor,
      )
      return 'denied'
    }
    const user = await userOfAccount(client, account)
    const { accountId, grants } = account
    await bind(device, { client, status: 'approved', userId: user.id, accountId, grants }, actor)
    return 'authorized'
  }

  async function userOfAccount(client: PublicClient, account: AccountCaller): Promise<User> {
    await loginPolicy.require(client, { ...account, id: account.accountId })
    const externalUserId = accountSubject(account.accountId)
    const user = await subjects.provision({ clientId: client.clientId, externalUserId })
    if (!user) throw new DomainError('ACCESS_DENIED', 'this account may not use the app')
    return user
  }

  /**
   * Approves a device on behalf of the app's own backend, which holds a token of the user. The
   * login descends from `grants`.
   */
  async function approveFor(
    user: User,
    request: { userCode: string; clientId: string; grants: readonly string[] },
    actor: Actor,
  ): Promise<void> {
    const { device, client } = await getOpen(request.userCode)
    if (client.clientId !== request.clientId) throw unknownCode()
    const { grants } = request
    const to = { client, status: 'approved', userId: user.id, accountId: null, grants } as const
    await bind(device, to, actor)
  }

  interface Binding {
    client: PublicClient
    status: 'approved' | 'denied'
    userId: string | null
    accountId: string | null
    grants: readonly string[]
  }

  async function bind(device: store.DeviceCodeRow, to: Binding, actor: Actor): Promise<void> {
    const at = now()
    const isFirst = await tx(pool, async (db) => {
      const decided = await store.decideDevice(db, { hash: device.code_hash, ...to, at })
      if (decided) {
        await auditSuccess(db, {
          appId: to.client.appId,
          actor,
          action: `device_${to.status}`,
          at,
          details: { userId: to.userId, accountId: to.accountId },
        })
      }
      return decided
    })
    if (isFirst) return
    // Repeating the same decision succeeds; a different one comes too late.
    const current = await store.findDevice(pool, device.user_code)
    if (current?.status !== to.status || current.user_id !== to.userId) throw unknownCode()
  }

  return { start, describe, decide, approveFor }
}

export type Devices = ReturnType<typeof createDevices>

const unknownCode = (): DomainError =>
  new DomainError('GRANT_INVALID', 'the code is unknown, or has been used')

function newUserCode(): string {
  const text = Array.from({ length: 2 * half }, () => letters[randomInt(letters.length)]).join('')
  return `${text.slice(0, half)}-${text.slice(half)}`
}

/**
 * Parses a user code as typed by a person: ignores case, dashes and blanks. Returns null for an
 * impossible code.
 */
export function parseUserCode(text: string): string | null {
  const typed = text.slice(0, 64).toUpperCase().replace(/[\W_]/g, '')
  if (typed.length !== 2 * half || [...typed].some((letter) => !letters.includes(letter)))
    return null
  return `${typed.slice(0, half)}-${typed.slice(half)}`
}
