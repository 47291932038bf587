import type { UserProvider } from '../identity/providers/provider.ts'
import type { User, UserChange } from '../identity/types.ts'
import type { Users } from '../identity/users/users.ts'
import type { Db } from '../lib/sql.ts'
import { type Actor, type AuditEntry, auditAll } from '../shared/audit.ts'
import { createBatchWriter } from '../shared/batch-writer.ts'
import type { Repeatable } from '../shared/idempotency.ts'
import type { AppId, UserId } from '../shared/ids.ts'
import type { Shared } from '../shared/shared.ts'
import type { ProvisionerCaller } from '../rpc/callers.ts'
import { addKeys } from './events.ts'
import { toEntry } from './keys.ts'
import { builderKeyPrefix, newKey } from './secret.ts'
import * as store from './store.ts'

type Deps = Shared & {
  readonly users: Pick<Users, 'refuseNewUser' | 'upsertAll'>
  readonly userProvider: UserProvider
}

export interface NewBuilderUser {
  readonly change: UserChange
  readonly connection: string | undefined
  /** Undefined issues a key to a new user only; true also to a user without a key. */
  readonly issueApiKey: boolean | undefined
  readonly idempotencyKey: string | undefined
}

interface Provision extends Repeatable {
  readonly app: AppId
  readonly change: UserChange
  readonly actor: Actor
  readonly clientId: string
  readonly issueApiKey: boolean | undefined
  /** Ids that the key descends from. */
  readonly grants: readonly string[]
}

export interface ProvisionedUser {
  readonly id: string
  readonly clientId: string
  readonly externalUserId: string
  readonly email: string | undefined
  readonly status: string
  readonly created: boolean
  /** Returned only once. */
  readonly apiKey: string | undefined
}

/**
 * Users of the builder API: created at the identity provider and in core, each with a key
 * (docs/builder-api.md).
 */
export function createBuilderUsers(deps: Deps) {
  const { pool, users, userProvider, secrets, idempotency, now } = deps
  const provisionInBatch = createBatchWriter<Provision, ProvisionedUser>(pool, (db, requests) =>
    idempotency.each(db, requests, (fresh) => provisionAll(db, fresh)),
  )

  /**
   * Creates or updates a user, and issues its key in the same transaction. Only one of several
   * concurrent calls creates the user. An existing key is never replaced. Throws
   * PROVIDER_UNAVAILABLE before anything is written here. The provider stays unchanged for a
   * repeated request, for an Idempotency-Key used by a different request, and for a user that the
   * gate refuses.
   */
  async function provision(
    caller: ProvisionerCaller,
    { change, connection, issueApiKey, idempotencyKey }: NewBuilderUser,
    actor: Actor,
  ): Promise<ProvisionedUser> {
    const { appId: app, clientId, name, grants } = caller
    const { externalUserId, email } = change
    const request = {
      scope: `${name}:${clientId}:builder-users`,
      key: idempotencyKey,
      body: { change, connection, issueApiKey },
      holdsSecret: true,
    }
    const provision = { idempotency: request, app, change, actor, clientId, issueApiKey, grants }
    return idempotency.alone(request, async () => {
      await users.refuseNewUser(app, externalUserId)
      await userProvider.ensureUser({ app, externalUserId, email, connection })
      return provisionInBatch(provision)
    })
  }

  async function provisionAll(
    db: Db,
    requests: readonly Provision[],
  ): Promise<readonly ProvisionedUser[]> {
    const upserted = await users.upsertAll(db, requests)
    // The rows of these users are locked, so no other transaction adds a key.
    const holders = await store.findPrefixHolders(
      db,
      upserted.map(({ user }) => user),
      builderKeyPrefix,
    )
    const rows: store.NewKey[] = []
    const entries: AuditEntry[] = []
    const provisioned = upserted.map(({ user, created }, index) => {
      const request = requests[index]
      if (!request) throw new Error('a user without its request')
      const key = wantsKey(request, { user, created, holders }) ? keyOf(request, user) : null
      if (key) {
        holders.add(user.id)
        rows.push(key.row)
        entries.push(key.entry)
      }
      return render(user, { clientId: request.clientId, created, apiKey: key?.apiKey })
    })
    await addKeys(db, rows)
    await auditAll(db, entries)
    return provisioned
  }

  function keyOf({ actor, grants }: Provision, user: User) {
    const at = now()
    const { secret, ...key } = newKey(builderKeyPrefix)
    const row: store.NewKey = {
      ...key,
      ...secrets.store(secret),
      appId: user.appId,
      userId: user.id,
      subscriptionId: null,
      label: null,
      grants,
      at,
    }
    return { row, entry: toEntry({ user, actor }, key.id, at), apiKey: secret }
  }

  return { provision }
}

export type BuilderUsers = ReturnType<typeof createBuilderUsers>

function wantsKey(
  { issueApiKey }: Provision,
  { user, created, holders }: { user: User; created: boolean; holders: ReadonlySet<UserId> },
): boolean {
  if (user.status !== 'active' || holders.has(user.id)) return false
  return created ? issueApiKey !== false : issueApiKey === true
}

const render = (
  { id, externalUserId, email, status }: User,
  provisioned: Pick<ProvisionedUser, 'clientId' | 'created' | 'apiKey'>,
): ProvisionedUser => ({ id, externalUserId, email: email ?? undefined, status, ...provisioned })
