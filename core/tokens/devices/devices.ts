import { hash } from 'node:crypto'
import { DomainError } from '../../../proto/errors.ts'
import { type DeviceDecisionsDeps, createDeviceDecisions, newUserCode } from './decisions.ts'
import { GrantType } from '../../../proto/oauth.ts'
import { newSecret } from '../../lib/crypto.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import * as store from './store.ts'
import { chooseScopes } from '../scopes.ts'

const attemptsMax = 5

type Deps = DeviceDecisionsDeps & {
  readonly ttlSeconds: number
  readonly intervalSeconds: number
  readonly openPerClient: number
  readonly openPerAddress: number
}

export const devicePrefix = 'svc_dc_'

export const deviceHash = (code: string): Buffer => hash('sha256', code, 'buffer')

/** Device logins, and the decisions to approve or deny them (RFC 8628). */
export function createDevices(deps: Deps) {
  const { pool, clients, ttlSeconds, intervalSeconds, openPerClient, openPerAddress, now } = deps

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

  return { start, ...createDeviceDecisions(deps) }
}

export type Devices = ReturnType<typeof createDevices>
