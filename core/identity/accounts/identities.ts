import { hash, randomBytes } from 'node:crypto'
import { DomainError } from '../../../proto/errors.ts'
import { fingerprint, uuidV7 } from '../../lib/crypto.ts'
import { type Email, toDomain, normalizeEmail } from '../../lib/text/email.ts'
import type { AllowedLogins } from '../../lib/settings/shared.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import { accountId } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { isReadable } from '../../lib/text/readable.ts'
import type { Accounts } from './accounts.ts'
import type { PasswordCredential } from './passwords.ts'
import type { CallOrigin } from './sessions.ts'
import type { LoginRecords } from './log-in-records.ts'
import * as store from './store.ts'

/** A person's identity at an external provider, from its response to one login. */
export interface ProviderIdentity {
  readonly issuer: string
  readonly subject: string
  readonly email: string
  readonly emailVerified: boolean
  readonly name: string
  /** State parameter that the login began with. */
  readonly state: string
  /**
   * Fingerprint of the address of the account that the browser has logged in to before; empty if
   * it is new, undefined if unknown.
   */
  readonly deviceAccount?: string | undefined
}

type Deps = Shared & {
  readonly accounts: Pick<Accounts, 'authenticate' | 'confirm' | 'warn' | 'begin'>
  readonly records: LoginRecords
  readonly allowedLogins: AllowedLogins
}

/** Maximum time in seconds for the provider's response. */
const loginSeconds = 600
const linkAttemptsMax = 5
const method = 'provider'

/**
 * Logins through an external provider (docs/decisions/41.md, 42). A provider login never takes over
 * an existing account: its verified address creates a new account, or waits until the person
 * confirms with the password of the account that has the address. Platform admins cannot log in
 * through a provider.
 */
export function createIdentities(deps: Deps) {
  const { pool, accounts, records, allowedLogins, now } = deps

  /**
   * Returns a session of the linked account, or a token for `link`. Throws ACCESS_DENIED when the
   * address may not sign in.
   */
  async function logIn(identity: ProviderIdentity, { correlationId }: CallOrigin) {
    await useState(identity.state)
    const address = identity.emailVerified ? normalizeEmail(identity.email) : null
    try {
      const known = await store.findByIdentity(pool, identity.issuer, identity.subject)
      if (known) return { session: await beginKnown(known, identity, { address, correlationId }) }
      return await logInNew(identity, { address: requireAddress(identity, address), correlationId })
    } catch (error) {
      if (error instanceof DomainError) records.failed(method, null, correlationId)
      throw error
    }
  }

  async function useState(state: string): Promise<void> {
    const stateHash = hash('sha256', state, 'buffer')
    const isFirst =
      state !== '' &&
      (await store.useProviderLogin(pool, {
        stateHash,
        expiresAt: addSeconds(now(), loginSeconds),
      }))
    if (!isFirst)
      throw new DomainError('REQUEST_INVALID', 'this login was already used; start again')
  }

  async function beginKnown(
    account: store.Account,
    { deviceAccount }: Pick<ProviderIdentity, 'deviceAccount'>,
    { address, correlationId }: CallOrigin & { address: Email | null },
  ) {
    refuseAdmin(account)
    requireAllowed(allowedLogins, address ?? normalizeEmail(account.email))
    const isKnown =
      deviceAccount === undefined ||
      deviceAccount === fingerprint(normalizeEmail(account.email) ?? '')
    return tx(pool, async (db) => {
      await accounts.warn(db, account, { place: { isKnown } })
      return accounts.begin(db, account, { method, correlationId })
    })
  }

  function requireAddress({ emailVerified }: ProviderIdentity, address: Email | null): Email {
    if (!emailVerified)
      throw new DomainError('ACCESS_DENIED', 'the provider has not verified your e-mail address')
    if (address === null)
      throw new DomainError(
        'ACCESS_DENIED',
        'your e-mail address at the provider cannot be used here: before the @, it may have only ASCII letters, digits and punctuation',
      )
    return address
  }

  async function logInNew(
    identity: ProviderIdentity,
    { address, correlationId }: CallOrigin & { address: Email },
  ) {
    requireAllowed(allowedLogins, address)
    const created = await tx(pool, (db) => createFor(db, identity, { address, correlationId }))
    if (created) return { session: created }
    // A concurrent login with the same identity may have created the account.
    const known = await store.findByIdentity(pool, identity.issuer, identity.subject)
    if (known) return { session: await beginKnown(known, identity, { address, correlationId }) }
    const account = await store.findByEmail(pool, address)
    if (!account) throw new Error('an account that exists cannot be found')
    refuseAdmin(account)
    return { link: { token: await startLink(account, identity), email: account.email } }
  }

  /** Returns null when an account already has the address. */
  async function createFor(
    db: Db,
    { issuer, subject, name }: ProviderIdentity,
    { address, correlationId }: CallOrigin & { address: Email },
  ) {
    const at = now()
    const id = accountId(uuidV7(at.getTime()))
    const account = await store.insertAccount(db, {
      id,
      email: address,
      name: isReadable(name) ? name.trim().slice(0, 100) : '',
      isPlatformAdmin: false,
      passwordHash: null,
      at,
    })
    if (!account) return null
    await store.linkIdentity(db, { issuer, subject, accountId: id, at })
    const details = { issuer, isPlatformAdmin: false }
    await records.note(db, { account: id, action: 'account_created', details, correlationId })
    return accounts.begin(db, account, { method, correlationId })
  }

  async function startLink(
    account: store.Account,
    { issuer, subject }: ProviderIdentity,
  ): Promise<string> {
    const at = now()
    const token = randomBytes(32).toString('base64url')
    await store.insertLink(pool, {
      tokenHash: hash('sha256', token, 'buffer'),
      accountId: account.id,
      issuer,
      subject,
      at,
      expiresAt: addSeconds(at, loginSeconds),
    })
    return token
  }

  /**
   * Links the pending identity to the account that has its address, after a check of the account's
   * password, and logs in. Throws CREDENTIAL_INVALID for a wrong password, GRANT_INVALID for an
   * unknown or expired token.
   */
  async function link(
    { token, ...credential }: PasswordCredential & { token: string },
    { correlationId }: CallOrigin,
  ) {
    const tokenHash = hash('sha256', token, 'buffer')
    const attempt = { at: now(), attemptsMax: linkAttemptsMax }
    const pending = await store.tryLink(pool, tokenHash, attempt)
    if (!pending) throw new DomainError('GRANT_INVALID', 'this login has expired; start again')
    const account = await accounts.authenticate(credential, { method, correlationId })
    if (account.id !== pending.accountId)
      throw new DomainError('CREDENTIAL_INVALID', 'this is the password of another account')
    refuseAdmin(account)
    return tx(pool, async (db) => {
      await accounts.confirm(db, account)
      await accounts.warn(db, account, credential)
      const { issuer, subject } = pending
      const owner = await store.linkIdentity(db, { ...pending, at: now() })
      if (owner !== account.id)
        throw new DomainError('GRANT_INVALID', 'this login now belongs to another account')
      await store.deleteLink(db, tokenHash)
      const act = { account: account.id, action: 'identity_linked', correlationId }
      await records.note(db, { ...act, details: { issuer, subject } })
      return accounts.begin(db, account, { method, correlationId })
    })
  }

  return { logIn, link }
}

export type Identities = ReturnType<typeof createIdentities>

// Otherwise, control of the provider would mean control of the deployment.
function refuseAdmin({ isPlatformAdmin }: store.Account): void {
  if (isPlatformAdmin)
    throw new DomainError('ACCESS_DENIED', 'a platform admin must log in with the password')
}

function requireAllowed({ anybody, domains, emails }: AllowedLogins, address: Email | null): void {
  const isAllowed =
    anybody || (address !== null && (emails.has(address) || domains.has(toDomain(address))))
  if (!isAllowed)
    throw new DomainError(
      'ACCESS_DENIED',
      'your e-mail address may not sign in here; ask the operator of this service for access',
    )
}
