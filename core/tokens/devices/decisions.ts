import { randomInt } from 'node:crypto'
import { DomainError } from '../../../proto/errors.ts'
import { type Actor, auditSuccess } from '../../shared/audit.ts'
import type { AccountCaller } from '../../rpc/callers.ts'
import type { PublicClient } from '../../identity/apps/clients.ts'
import type { User } from '../../identity/types.ts'
import { tx } from '../../lib/sql.ts'
import type { Clients } from '../../identity/apps/clients.ts'
import type { LoginAdmission } from '../../identity/members/login-policy.ts'
import type { Shared } from '../../shared/shared.ts'
import type { Subjects } from '../subjects.ts'
import * as store from './store.ts'
import { splitScopes } from '../scopes.ts'
import { accountSubject } from '../../shared/ids.ts'

// RFC 8628 section 6.1: no vowels, so that user codes do not form words.
const letters = 'BCDFGHJKLMNPQRSTVWXZ'

const half = 4

export type DeviceDecisionsDeps = Shared & {
  readonly clients: Pick<Clients, 'findPublic'>
  readonly subjects: Pick<Subjects, 'provision'>
  readonly loginPolicy: Pick<LoginAdmission, 'require'>
}

interface Binding {
  readonly client: PublicClient
  readonly status: 'approved' | 'denied'
  readonly userId: string | null
  readonly accountId: string | null
  readonly grants: readonly string[]
}

/** Decisions to approve or deny the login of a device (RFC 8628). */
export function createDeviceDecisions({
  pool,
  clients,
  subjects,
  loginPolicy,
  now,
}: DeviceDecisionsDeps) {
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

  return { describe, decide, approveFor }
}

const unknownCode = (): DomainError =>
  new DomainError('GRANT_INVALID', 'the code is unknown, or has been used')

export function newUserCode(): string {
  const text = Array.from({ length: 2 * half }, () => letters[randomInt(letters.length)]).join('')
  return `${text.slice(0, half)}-${text.slice(half)}`
}

/**
 * Parses a user code as typed by a person: ignores case, dashes and blanks. Returns null for an
 * impossible code.
 */
function parseUserCode(text: string): string | null {
  const typed = text.slice(0, 64).toUpperCase().replace(/[\W_]/g, '')
  if (typed.length !== 2 * half || [...typed].some((letter) => !letters.includes(letter)))
    return null
  return `${typed.slice(0, half)}-${typed.slice(half)}`
}
