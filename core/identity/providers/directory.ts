import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { DomainError } from '../../../proto/errors.ts'
import { createKeyedSemaphore } from '../../lib/concurrency.ts'
import { addSeconds } from '../../lib/time.ts'
import { findClientId } from '../../shared/clients.ts'
import type { Shared } from '../../shared/shared.ts'
import { providerName, providerUsername } from './names.ts'
import type { EnsuredUser, ProviderUser, UserProvider } from './provider.ts'
import * as store from './store.ts'

export interface NewDirectoryUser {
  /** Same for every attempt. */
  readonly name: string
  /** For users without an e-mail address. Same for every attempt. */
  readonly username: string
  readonly email: string | null
  readonly connection: string | undefined
  readonly externalUserId: string
  readonly clientId: string
}

export interface DirectoryUser {
  readonly providerUserId: string
  readonly email: string | null
}

/** Deadline of a call, in milliseconds of `performance.now()`. */
export interface CallBounds {
  readonly until: number
}

/**
 * Users at an external provider. All functions throw PROVIDER_UNAVAILABLE on failure and
 * REQUEST_INVALID when the provider refuses the user.
 */
export interface Directory {
  /** Provider and address. Each directory has its own users. */
  readonly name: string
  /** Creates the user, or reads the user created by an earlier attempt. */
  readonly createUser: (user: NewDirectoryUser, bounds: CallBounds) => Promise<DirectoryUser>
  /** Returns false when the provider no longer has the user. */
  readonly changeEmail: (user: DirectoryUser, bounds: CallBounds) => Promise<boolean>
}

type Deps = Pick<Shared, 'pool' | 'log' | 'now'> & {
  readonly directory: Directory
  /** Maximum duration of one call in milliseconds; shorter in tests. */
  readonly budgetMs?: number | undefined
}

const claimSeconds = 20
const pollMs = 150

/**
 * A provider that is an external directory. A claim on our own row decides which process calls the
 * directory for a user. The row then serves later calls: a known user without a new e-mail address
 * needs no call.
 */
export function createDirectoryProvider({
  pool,
  directory,
  log,
  now,
  budgetMs = 12_000,
}: Deps): UserProvider {
  // Callers in one process wait in memory, so that only one of them polls the database for the
  // claim.
  const semaphore = createKeyedSemaphore({ running: 1 })

  async function ensure(user: ProviderUser, bounds: CallBounds): Promise<EnsuredUser> {
    const key = { app: user.app, externalUserId: user.externalUserId, directory: directory.name }
    const row = await store.findProviderUser(pool, key)
    const known = knownUser(row)
    if (known && !hasNewEmail(known, user.email))
      return { providerUserId: known.providerUserId, created: false }
    const claimed = { ...key, claim: randomUUID() }
    const current = knownUser(await claim(claimed, bounds))
    try {
      const next = await bring(user, current, bounds)
      if (!(await store.settleClaim(pool, claimed, { ...next, at: now() }))) throw overtaken()
      return { providerUserId: next.providerUserId, created: current === null }
    } catch (error) {
      await store.releaseClaim(pool, claimed).catch((lost: unknown) => {
        log.warn({ err: lost }, 'a claim on a user at the provider stays until it expires')
      })
      throw error
    }
  }

  async function claim(
    key: store.ClaimedKey,
    { until }: CallBounds,
  ): Promise<store.ProviderUserRow> {
    while (performance.now() < until) {
      const at = now()
      const lease = { id: key.claim, at, until: addSeconds(at, claimSeconds) }
      const row = await store.claimProviderUser(pool, key, lease)
      if (row) return row
      await sleep(pollMs)
    }
    throw overtaken()
  }

  /**
   * Creates or updates the user at the provider. Returns the user as the provider has it
   * afterwards.
   */
  async function bring(
    user: ProviderUser,
    current: DirectoryUser | null,
    bounds: CallBounds,
  ): Promise<DirectoryUser> {
    const there = current ?? (await create(user, bounds))
    if (!hasNewEmail(there, user.email)) return there
    const next = { ...there, email: user.email }
    if (await directory.changeEmail(next, bounds)) return next
    log.warn({ appId: user.app }, 'the provider no longer has a user; creating the user again')
    return create(user, bounds)
  }

  async function create(user: ProviderUser, bounds: CallBounds): Promise<DirectoryUser> {
    const clientId = await findClientId(pool, user.app)
    const { externalUserId, connection } = user
    const [name, username] = [providerName(user), providerUsername(user)]
    const email = user.email || null
    return directory.createUser(
      { name, username, email, connection, externalUserId, clientId },
      bounds,
    )
  }

  return {
    ensureUser: (user) => {
      const bounds = { until: performance.now() + budgetMs }
      return semaphore.run(`${user.app}:${user.externalUserId}`, () => ensure(user, bounds))
    },
  }
}

const knownUser = (row: store.ProviderUserRow | null): DirectoryUser | null =>
  row === null || row.providerUserId === null
    ? null
    : { providerUserId: row.providerUserId, email: row.email }

/** Absent and empty addresses leave the provider's address unchanged. */
const hasNewEmail = ({ email }: DirectoryUser, next: string | null | undefined): next is string =>
  Boolean(next) && next !== email

const overtaken = (): DomainError =>
  new DomainError(
    'PROVIDER_UNAVAILABLE',
    'another request is changing this user at the identity provider; repeat the request',
  )
