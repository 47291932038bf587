import { DomainError } from '../../../proto/errors.ts'
import { isSecret, uuidV7 } from '../../lib/crypto.ts'
import type { Db, Pool } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { type PublicClient, findActiveUser, findPublicClient } from '../login/client-store.ts'
import * as store from '../devices/store.ts'
import { deviceGrant, deviceHash, devicePrefix } from '../devices/devices.ts'
import type { Logins, Redeemed } from '../login/login.ts'

// RFC 8628 section 3.5.
const slowDownSeconds = 5

export interface DeviceCodeDeps {
  readonly pool: Pool
  readonly logins: Logins
  readonly now: Now
}

/** The device's polling, and its tokens once somebody has said yes. */
export function createDeviceCodeGrant({ pool, logins, now }: DeviceCodeDeps) {
  async function redeem(request: { clientId: string; deviceCode: string }) {
    const client = await findPublicClient(pool, request.clientId)
    if (!client) throw new DomainError('CREDENTIAL_INVALID', 'unknown client')
    if (!client.grant_types.includes(deviceGrant))
      throw new DomainError('CLIENT_UNAUTHORIZED', 'this client may not log in devices')
    if (!isSecret(request.deviceCode, devicePrefix)) throw unknownCode()
    return logins.redeem((db) => step(db, client, deviceHash(request.deviceCode)))
  }

  async function step(db: Db, client: PublicClient, hash: Buffer): Promise<Redeemed> {
    const device = await store.lockDevice(db, hash)
    if (!device || device.client_id !== client.client_id) return { refusal: unknownCode() }
    if (device.status === 'consumed') {
      // Somebody else has the code: what it led to ends (RFC 6749 section 10.5 says so of codes).
      return device.family_id === null
        ? { refusal: unknownCode() }
        : logins.end(db, device.family_id, unknownCode())
    }
    if (device.expires_at <= now()) {
      return {
        refusal: new DomainError('DEVICE_CODE_EXPIRED', 'the device code has expired; start again'),
      }
    }
    if (device.status === 'denied')
      return { refusal: new DomainError('ACCESS_DENIED', 'the login was denied') }
    return device.status === 'pending'
      ? { refusal: await poll(db, device) }
      : login(db, client, device)
  }

  async function poll(db: Db, device: store.DeviceCodeRow): Promise<DomainError> {
    const at = now()
    const waited =
      device.last_polled_at === null
        ? Infinity
        : (at.getTime() - device.last_polled_at.getTime()) / 1000
    const tooSoon = waited < device.interval_seconds
    const intervalSeconds = device.interval_seconds + (tooSoon ? slowDownSeconds : 0)
    await store.notePoll(db, { hash: device.code_hash, intervalSeconds, at })
    return tooSoon
      ? new DomainError('SLOW_DOWN', `wait ${intervalSeconds} seconds between two polls`)
      : new DomainError('AUTHORIZATION_PENDING', 'nobody has decided yet')
  }

  async function login(
    db: Db,
    client: PublicClient,
    device: store.DeviceCodeRow,
  ): Promise<Redeemed> {
    const user =
      device.user_id === null
        ? null
        : await findActiveUser(db, { appId: client.app_id, id: device.user_id })
    const decidedAt = device.decided_at ?? now()
    if (!user || (user.tokensValidAfter !== null && user.tokensValidAfter > decidedAt)) {
      return { refusal: new DomainError('GRANT_INVALID', 'the user is inactive') }
    }
    const familyId = uuidV7(now().getTime())
    const expiresAt = await logins.begin(db, { id: familyId, user })
    if (!(await store.consumeDevice(db, { hash: device.code_hash, familyId })))
      return { refusal: unknownCode() }
    const login = {
      familyId,
      user,
      clientId: client.client_id,
      accountId: device.account_id,
      scope: device.scope,
      authTime: decidedAt,
      nonce: null,
    }
    const { accountId } = login
    const refreshable = accountId !== null && client.grant_types.includes('refresh_token')
    return {
      login,
      refreshToken: refreshable
        ? await logins.addRefresh(db, { ...login, accountId }, expiresAt)
        : undefined,
    }
  }

  return { redeem }
}

export type DeviceCodeGrant = ReturnType<typeof createDeviceCodeGrant>

const unknownCode = (): DomainError =>
  new DomainError('GRANT_INVALID', 'the device code is unknown, or has been used')
