import type { Db } from '../lib/sql.ts'
import { type AppEvent, emit, emitAll } from '../shared/events.ts'
import type { AppId, UserId } from '../shared/ids.ts'
import * as store from './store.ts'

/** Stores keys, and emits an event for each. */
export async function addKeys(db: Db, keys: readonly store.NewKey[]): Promise<void> {
  await store.insertKeys(db, keys)
  await emitAll(
    db,
    keys.map(({ id, label, at, ...owner }) =>
      keyEvent('key.created', { ...owner, at, data: { keyId: id, label } }),
    ),
  )
}

/** Emits the event of a revoked key. `userId` is null for a key of the app. */
export const emitRevoked = (
  db: Db,
  { keyId, ...owner }: KeyOwner & { readonly keyId: string },
): Promise<void> => emit(db, keyEvent('key.revoked', { ...owner, data: { keyId } }))

interface KeyOwner {
  readonly appId: AppId
  readonly userId: UserId | null
  readonly at: Date
}

const keyEvent = (
  type: 'key.created' | 'key.revoked',
  { appId, userId, at, data }: KeyOwner & Pick<AppEvent, 'data'>,
): AppEvent => ({ appId, type, at, data, ...(userId === null ? {} : { userId }) })
