import { type PasswordCredential, createPasswords, parsePassword } from './passwords.ts'
import { type CallOrigin, createSessions } from './sessions.ts'
import { DomainError } from '../../../proto/errors.ts'
import { newSecret, uuidV7 } from '../../lib/crypto.ts'
import { type Db, isUniqueViolation, tx } from '../../lib/sql.ts'
import { type Cursor, page } from '../../shared/cursor.ts'
import { accountId, isUuid } from '../../shared/ids.ts'
import { parseEmail, parseOptionalName } from '../input.ts'
import * as links from './link-store.ts'
import { createResets } from './resets.ts'
import { type SignUpsDeps, createSignUps } from './sign-ups.ts'
import * as store from './store.ts'
import { deleteInBatches } from '../../shared/upkeep.ts'

export interface AccountChange {
  readonly email?: string | undefined
  readonly id?: string | undefined
  readonly newEmail?: string | undefined
  readonly isPlatformAdmin?: boolean | undefined
}

/** Accounts of the dashboard, with their sessions and passwords. */
export function createAccounts(deps: SignUpsDeps) {
  const { pool, now, records, mails } = deps
  const sessions = createSessions(deps)
  const passwords = createPasswords({ ...deps, ...sessions })
  const { authenticate, confirm, hashInQueue, changePassword } = passwords
  const resets = createResets({ ...deps, hashInQueue, changePassword })
  const { begin } = sessions
  const signUps = createSignUps({ ...deps, hashInQueue, begin })
  /**
   * Throws CREDENTIAL_INVALID for an unknown address and for a wrong password, after the same
   * amount of work.
   */
  async function logIn(credential: PasswordCredential, origin: CallOrigin = {}) {
    const account = await authenticate(credential, { method: 'password', ...origin })
    return tx(pool, async (db) => {
      await confirm(db, account)
      await warn(db, account, credential)
      return begin(db, account, { method: 'password', ...origin })
    })
  }

  const find = (id: string): Promise<store.Account | null> => store.findById(pool, id)

  /**
   * Throws CONFLICT when another account has the address. Generates a password if none is given,
   * and returns it only once.
   */
  async function create(
    request: {
      email: string
      password: string | undefined
      name: string
      isPlatformAdmin: boolean
    },
    { correlationId }: CallOrigin = {},
  ) {
    const at = now()
    const email = parseEmail(request.email)
    const name = parseOptionalName(request.name, 'name')
    const { isPlatformAdmin } = request
    const password =
      request.password === undefined ? newSecret('').slice(0, 20) : parsePassword(request.password)
    const passwordHash = await hashInQueue({ isKnown: true }, password)
    const id = accountId(uuidV7(at.getTime()))
    const account = await tx(pool, async (db) => {
      const inserted = await store.insertAccount(db, {
        id,
        email,
        name,
        isPlatformAdmin,
        passwordHash,
        at,
      })
      if (!inserted) throw takenAddress()
      const action = 'account_created'
      const act = { account: id, actor: 'operator', action, correlationId }
      await records.note(db, { ...act, details: { isPlatformAdmin } })
      return inserted
    })
    return { account, password: request.password === undefined ? password : undefined }
  }

  /**
   * Changes an account's address or platform admin role. Finds the account by its address or id.
   * Throws NOT_FOUND if it is missing, CONFLICT when another account has the new address.
   */
  async function change(
    request: AccountChange,
    { correlationId }: CallOrigin = {},
  ): Promise<store.Account> {
    const newEmail =
      request.newEmail === undefined ? null : parseEmail(request.newEmail, 'newEmail')
    return tx(pool, async (db) => {
      const account = await findNamed(db, request)
      if (!account) throw new DomainError('NOT_FOUND', 'there is no such account')
      const next = {
        ...account,
        email: newEmail ?? account.email,
        isPlatformAdmin: request.isPlatformAdmin ?? account.isPlatformAdmin,
      }
      const isSame =
        next.email === account.email && next.isPlatformAdmin === account.isPlatformAdmin
      if (isSame) return account
      await store.updateAccount(db, next).catch((error: unknown) => {
        throw isUniqueViolation(error) ? takenAddress() : error
      })
      // Links that were mailed to the address before must not set the password any more.
      if (next.email !== account.email) await links.endResets(db, account.id, now())
      const { isPlatformAdmin } = next
      const details = { isPlatformAdmin, addressChanged: next.email !== account.email }
      const act = { account: account.id, actor: 'operator', action: 'account_changed', details }
      await records.note(db, { ...act, correlationId })
      return next
    })
  }

  async function findNamed(db: Db, { email, id }: AccountChange): Promise<store.Account | null> {
    if (id !== undefined) return isUuid(id) ? store.findById(db, id) : null
    return store.findByEmail(db, parseEmail(email ?? ''))
  }

  /** Lists accounts in order of creation. */
  const list = async (after: Cursor | null, limit: number) =>
    page(await store.listAccounts(pool, after, limit), limit)

  async function deleteExpired(): Promise<void> {
    const at = now()
    for (const deleteBatch of [...store.deletions, links.deleteExpiredLinks])
      await deleteInBatches((limit) => deleteBatch(pool, at, limit))
  }

  /** Mails the account about a login from a browser that is new for it. */
  async function warn(
    db: Db,
    { email }: Pick<store.Account, 'email'>,
    { place }: { readonly place: Pick<PasswordCredential['place'], 'isKnown'> },
  ): Promise<void> {
    if (place.isKnown) return
    await mails.send(db, { email, content: { kind: 'new_device', at: now() } })
  }

  return {
    ...sessions,
    warn,
    hashInQueue,
    confirm,
    authenticate,
    ...resets,
    ...signUps,
    logIn,
    find,
    create,
    change,
    list,
    deleteExpired,
  }
}

export type Accounts = ReturnType<typeof createAccounts>

const takenAddress = (): DomainError =>
  new DomainError('CONFLICT', 'an account with this e-mail address already exists')
