import { DomainError } from '../../../proto/errors.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { type Email, normalizeEmail, toDomain } from '../../lib/text/email.ts'
import { addSeconds } from '../../lib/time.ts'
import { accountId } from '../../shared/ids.ts'
import { enqueue } from '../../shared/outbox/outbox.ts'
import { parseOptionalName } from '../input.ts'
import type { SignUpMode, SignUpPolicy } from '../types.ts'
import { type LinkRequest, createLinkRequests, packRequest } from './link-requests.ts'
import * as links from './link-store.ts'
import { type Passwords, parsePassword } from './passwords.ts'
import { endedLink, mailedLinkSeconds } from './resets.ts'
import {
  type CallOrigin,
  type Sessions,
  type SessionsDeps,
  hashToken,
  newToken,
} from './sessions.ts'
import * as store from './store.ts'

export type SignUpsDeps = SessionsDeps & {
  readonly signUp: SignUpPolicy
  /** Whether an app has an open invitation to the address. */
  readonly isInvited: (db: Db, email: Email, at: Date) => Promise<boolean>
}

type Deps = SignUpsDeps & Pick<Passwords, 'hashInQueue'> & Pick<Sessions, 'begin'>

/**
 * Sign-up by address (docs/accounts.md, "Sign up"): a mailed link that creates the account. It
 * shares table, lifetime, queue and errors with the links that set a new password.
 */
export function createSignUps(deps: Deps) {
  const { pool, now, records, mails, config, signUp, isInvited, hashInQueue, begin } = deps

  /** Returns which addresses may sign up. Without mails, none may. */
  const signUpMode = (): SignUpMode => (mails.delivery() === 'none' ? 'off' : signUp.mode)

  function requireOffered(): void {
    if (signUpMode() === 'off')
      throw new DomainError('CONFLICT', 'this service has no sign-up; its operator makes accounts')
  }

  /**
   * Queues a request for a link by mail. Takes the same time for every address, because accounts,
   * invitations and domains are looked up later. Throws CONFLICT if this deployment has no sign-up.
   */
  async function requestSignUp(email: string, { correlationId }: CallOrigin = {}): Promise<void> {
    requireOffered()
    const at = now()
    const address = normalizeEmail(email)
    if (address === null) return
    const request = { id: uuidV7(at.getTime()), email: address, correlationId }
    await enqueue(pool, [packRequest('sign_up', request)], at)
  }

  const maySignUp = async (db: Db, email: Email): Promise<boolean> =>
    (signUp.mode === 'address' && isOfDomain(signUp, email)) || isInvited(db, email, now())

  /**
   * Mails a link to an address that may sign up, and a note to one that has an account. Does
   * nothing for other addresses. A repetition does nothing.
   */
  async function mailSignUp({ id, email, correlationId }: LinkRequest): Promise<void> {
    if (signUpMode() === 'off') return
    const account = await store.findByEmail(pool, email)
    if (!account && !(await maySignUp(pool, email))) return
    const at = now()
    const token = newToken()
    const expiresAt = addSeconds(at, mailedLinkSeconds)
    const url = account ? null : `${config.publicUrl}/sign-up?token=${token}`
    const content = { kind: 'sign_up', url, minutes: mailedLinkSeconds / 60 } as const
    await tx(pool, async (db) => {
      if (!(await mails.send(db, { email, content, once: `sign_up:${id}`, expiresAt }))) return
      if (!account)
        return links.insertSignUp(db, { tokenHash: hashToken(token), email, at, expiresAt })
      const act = { account: account.id, actor: 'anonymous', correlationId }
      await records.note(db, { ...act, action: 'account_sign_up_requested' })
    })
  }

  /** Returns the address of the link. Throws GRANT_INVALID unless it can still create an account. */
  async function checkSignUp(token: string): Promise<string> {
    return requireOpen(await links.findSignUp(pool, hashToken(token), now()))
  }

  async function requireOpen(stored: string | null): Promise<Email> {
    const email = stored === null ? null : normalizeEmail(stored)
    const isOpen = email !== null && signUpMode() !== 'off' && (await maySignUp(pool, email))
    if (!isOpen) throw endedLink()
    return email
  }

  /**
   * Creates the account and logs in. Throws GRANT_INVALID for a used or expired link, and when the
   * address has got an account or has lost its right to sign up since.
   */
  async function completeSignUp(
    { token, ...person }: { token: string; name: string; password: string },
    { correlationId }: CallOrigin = {},
  ) {
    const tokenHash = hashToken(token)
    const password = parsePassword(person.password)
    const name = parseOptionalName(person.name, 'name')
    const email = await requireOpen(await links.findSignUp(pool, tokenHash, now()))
    const place = { source: `sign_up:${tokenHash.toString('hex')}`, isKnown: true }
    const passwordHash = await hashInQueue(place, password)
    return tx(pool, async (db) => {
      const at = now()
      if (!(await links.useSignUp(db, { tokenHash, email, at }))) throw endedLink()
      const id = accountId(uuidV7(at.getTime()))
      const account = { id, email, name, isPlatformAdmin: false }
      if (!(await store.insertAccount(db, { ...account, passwordHash, at }))) throw endedLink()
      const details = { isPlatformAdmin: false, signedUp: true }
      await records.note(db, { account: id, action: 'account_created', details, correlationId })
      return begin(db, account, { method: 'password', correlationId })
    })
  }

  return {
    signUpMode,
    requestSignUp,
    deliverSignUps: createLinkRequests(mailSignUp),
    checkSignUp,
    completeSignUp,
  }
}

const isOfDomain = ({ domains }: SignUpPolicy, email: Email): boolean =>
  domains === null || domains.has(toDomain(email))
