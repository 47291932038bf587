import { DomainError } from '../../../proto/errors.ts'
import { GrantType } from '../../../proto/oauth.ts'
import type { Clients, PublicClient } from '../../identity/apps/clients.ts'
import type { LoginAdmission } from '../../identity/members/login-policy.ts'
import type { User } from '../../identity/types.ts'
import { isSecret, uuidV7 } from '../../lib/crypto.ts'
import type { Db } from '../../lib/sql.ts'
import { deviceHash, devicePrefix } from '../devices/devices.ts'
import * as store from '../devices/store.ts'
import type { Redemption, TokenFamilies } from '../login/token-families.ts'
import { stillAllowed } from '../scopes.ts'
import type { Subjects } from '../subjects.ts'
import type { Shared } from '../../shared/shared.ts'

/** RFC 8628 section 3.5. */
const slowDownSeconds = 5

type Deps = Shared & {
  readonly clients: Pick<Clients, 'findPublic'>
  readonly subjects: Subjects
  readonly families: TokenFamilies
  readonly loginPolicy: Pick<LoginAdmission, 'admitsNew'>
}

/** RFC 8628 section 3.4: polling by a device, and its tokens after approval. */
export function createDeviceCodeGrant(deps: Deps) {
  const { clients, subjects, families, loginPolicy, now } = deps

  async function redeem(request: { clientId: string; deviceCode: string }) {
    const client = await clients.findPublic(request.clientId)
    if (!client) throw new DomainError('CREDENTIAL_INVALID', 'unknown client')
    if (!client.grantTypes.includes(GrantType.deviceCode))
      throw new DomainError('CLIENT_UNAUTHORIZED', 'this client may not log in devices')
    if (!isSecret(request.deviceCode, devicePrefix)) throw unknownCode()
    return families.redeem((db) => step(db, client, deviceHash(request.deviceCode)))
  }

  async function step(db: Db, client: PublicClient, hash: Buffer): Promise<Redemption> {
    const device = await store.lockDevice(db, hash)
    if (!device || device.client_id !== client.clientId) return { refusal: unknownCode() }
    if (device.status === 'consumed') {
      // A second use means that the code has leaked, so end its login, as RFC 6749 section 10.5
      // requires for codes.
      const { family_id: id, client_id: actor } = device
      return id === null
        ? { refusal: unknownCode() }
        : families.endReused(db, { id, cause: 'code_reused', actor }, unknownCode())
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
      : beginFamily(db, client, device)
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
      : new DomainError('AUTHORIZATION_PENDING', 'the user has not decided yet')
  }

  async function beginFamily(
    db: Db,
    client: PublicClient,
    device: store.DeviceCodeRow,
  ): Promise<Redemption> {
    const decidedAt = device.decided_at ?? now()
    const user = await userOf(db, client, { ...device, decidedAt })
    const scope = stillAllowed(device.scope, client.scopes)
    if (!user || scope === '')
      return { refusal: new DomainError('GRANT_INVALID', 'the user is inactive') }
    const { grants, account_id: account } = device
    // Without an account, the app's own backend approved the device.
    if (account !== null && !(await loginPolicy.admitsNew(db, client, account)))
      return { refusal: new DomainError('ACCESS_DENIED', 'this account may not use the app') }
    const id = uuidV7(now().getTime())
    const expiresAt = await families.begin(db, { id, user, authTime: decidedAt, grants })
    if (!(await store.consumeDevice(db, { hash: device.code_hash, familyId: id })))
      return { refusal: unknownCode() }
    const family = {
      id,
      user,
      clientId: client.clientId,
      publicClientId: client.publicClientId,
      accountId: device.account_id,
      scope,
      authTime: decidedAt,
      nonce: null,
      grants,
    }
    const { accountId } = family
    // A device has no redirect that another program could intercept, and a person approved this
    // very login.
    const isRefreshable = accountId !== null && client.grantTypes.includes(GrantType.refreshToken)
    return {
      family,
      refreshToken: isRefreshable
        ? await families.addRefreshToken(db, { ...family, accountId }, expiresAt)
        : undefined,
    }
  }

  const userOf = async (
    db: Db,
    { appId }: PublicClient,
    device: store.DeviceCodeRow & { decidedAt: Date },
  ): Promise<User | null> => {
    const { user_id: userId, decidedAt: issuedAt, grants } = device
    return userId === null ? null : subjects.findUser(db, { appId, userId, issuedAt, grants })
  }

  return { redeem }
}

export type DeviceCodeGrant = ReturnType<typeof createDeviceCodeGrant>

const unknownCode = (): DomainError =>
  new DomainError('GRANT_INVALID', 'the device code is unknown, or has been used')
