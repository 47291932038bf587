import { DomainError } from '../../../proto/errors.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { tx } from '../../lib/sql.ts'
import { normalizeEmail } from '../../lib/text/email.ts'
import { addSeconds } from '../../lib/time.ts'
import { enqueue } from '../../shared/outbox/outbox.ts'
import { parseEmail } from '../input.ts'
import { type Passwords, parsePassword } from './passwords.ts'
import { type LinkRequest, createLinkRequests, packRequest } from './link-requests.ts'
import * as links from './link-store.ts'
import { type CallOrigin, type SessionsDeps, hashToken, newToken } from './sessions.ts'
import * as store from './store.ts'

/** Lifetime of a link that an operator makes. */
const resetSeconds = 3_600
/** Lifetime of a link that a mail carries. */
export const mailedLinkSeconds = 1_800

type Deps = SessionsDeps & Pick<Passwords, 'hashInQueue' | 'changePassword'>

/** Links that set a new password once. Their tokens are stored as SHA-256 hashes. */
export function createResets(deps: Deps) {
  const { pool, now, records, mails, config, hashInQueue, changePassword } = deps

  /**
   * Creates a token that sets a new password once, within an hour. Throws NOT_FOUND for an unknown
   * address, so only operators may call it.
   */
  async function startReset(
    email: string,
    { correlationId }: CallOrigin = {},
  ): Promise<{ token: string; expiresAt: Date }> {
    const account = await store.findByEmail(pool, parseEmail(email))
    if (!account) throw new DomainError('NOT_FOUND', 'there is no account with this e-mail address')
    const at = now()
    const token = newToken()
    const expiresAt = addSeconds(at, resetSeconds)
    await tx(pool, async (db) => {
      await links.insertReset(db, {
        tokenHash: hashToken(token),
        accountId: account.id,
        at,
        expiresAt,
      })
      const act = { account: account.id, actor: 'operator', correlationId }
      await records.note(db, { ...act, action: 'account_password_reset_started' })
    })
    return { token, expiresAt }
  }

  /**
   * Queues a request for a link by mail. Takes the same time with and without an account, because
   * the account is looked up later. Throws CONFLICT if this deployment sends no mail.
   */
  async function requestReset(email: string, { correlationId }: CallOrigin = {}): Promise<void> {
    if (mails.delivery() === 'none') throw new DomainError('CONFLICT', 'this service sends no mail')
    const at = now()
    const address = normalizeEmail(email)
    if (address === null) return
    const request = { id: uuidV7(at.getTime()), email: address, correlationId }
    await enqueue(pool, [packRequest('password_reset', request)], at)
  }

  /**
   * Mails a link to the account of the request, if there is one and its address has not had too
   * many mails. A repetition does nothing.
   */
  async function mailReset({ id, email, correlationId }: LinkRequest): Promise<void> {
    const account = await store.findByEmail(pool, email)
    if (!account) return
    const at = now()
    const token = newToken()
    const expiresAt = addSeconds(at, mailedLinkSeconds)
    const hasPassword = account.passwordHash !== null
    const url = hasPassword ? `${config.publicUrl}/reset-password?token=${token}` : null
    const content = { kind: 'password_reset', url, minutes: mailedLinkSeconds / 60 } as const
    await tx(pool, async (db) => {
      const once = `password_reset:${id}`
      if (!(await mails.send(db, { email, content, once, expiresAt })) || url === null) return
      const reset = { tokenHash: hashToken(token), accountId: account.id, at, expiresAt }
      await links.insertReset(db, reset)
      const action = 'account_password_reset_requested'
      await records.note(db, { account: account.id, actor: 'anonymous', action, correlationId })
    })
  }

  /** Throws GRANT_INVALID unless the token can still set a password. */
  async function checkReset(token: string): Promise<void> {
    if (!(await links.isResetOpen(pool, hashToken(token), now()))) throw endedLink()
  }

  /**
   * Sets the password and ends all sessions of the account. Throws GRANT_INVALID for a used or
   * expired token.
   */
  async function reset(
    token: string,
    password: string,
    { correlationId }: CallOrigin = {},
  ): Promise<void> {
    const tokenHash = hashToken(token)
    const newPassword = parsePassword(password)
    // Look the token up before hashing the password, so that invented tokens take no place in the
    // queue.
    if (!(await links.isResetOpen(pool, tokenHash, now()))) throw endedLink()
    const place = { source: `reset:${tokenHash.toString('hex')}`, isKnown: true }
    const passwordHash = await hashInQueue(place, newPassword)
    await tx(pool, async (db) => {
      const account = await links.useReset(db, tokenHash, now())
      if (!account) throw endedLink()
      await changePassword(db, account, { hash: passwordHash, correlationId })
    })
  }

  return {
    startReset,
    requestReset,
    deliverResets: createLinkRequests(mailReset),
    checkReset,
    reset,
  }
}

export const endedLink = (): DomainError =>
  new DomainError('GRANT_INVALID', 'this link was already used or has expired; request a new one')
