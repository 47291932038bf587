import { newSecret, isSecret } from '../../lib/crypto.ts'
import { tx } from '../../lib/sql.ts'
import { DomainError } from '../../../proto/errors.ts'
import { later } from '../../shared/clocks/clocks.ts'
import type { Shared } from '../../shared/shared.ts'
import * as store from './store.ts'
import type { ConnectState } from './store.ts'

const stateMs = 15 * 60_000
const statesMax = 10
const keptMs = 86_400_000
const deletedMax = 1_000
const prefix = 'cst_'

/**
 * States of connections that people started: random, hashed at rest, bound to an app and a person,
 * valid once and for 15 minutes.
 */
export function createConnectStates({
  pool,
  now,
  secrets,
}: Pick<Shared, 'pool' | 'now' | 'secrets'>) {
  /** Returns a new state. A person has at most ten per app; the oldest one ends. */
  async function issue(state: ConnectState): Promise<string> {
    const secret = newSecret(prefix)
    const { hash } = secrets.store(secret)
    const at = now()
    const expiresAt = later(at, stateMs)
    await tx(pool, (db) => store.insertState(db, state, { hash, at, expiresAt, max: statesMax }))
    return secret
  }

  /**
   * Uses a state up, and returns the account that it was issued for. Throws CONNECT_STATE_INVALID
   * for a used, expired, unknown, or another person's or app's state.
   */
  async function use(
    caller: Pick<ConnectState, 'appId' | 'accountId'>,
    secret: string,
  ): Promise<{ readonly processorAccountId: string }> {
    if (!isSecret(secret, prefix)) throw invalid()
    return tx(pool, async (db) => {
      const at = now()
      const state = await store.lockState(db, caller, { hashes: secrets.candidates(secret), at })
      if (state === null) throw invalid()
      await store.useState(db, state.hash, at)
      return state
    })
  }

  const deleteOld = (): Promise<void> => store.deleteStates(pool, later(now(), -keptMs), deletedMax)

  return { issue, use, deleteOld }
}

const invalid = (): DomainError =>
  new DomainError(
    'CONNECT_STATE_INVALID',
    "this link was used before, is older than 15 minutes, or belongs to another person or app; open the app's payments page and connect again",
  )
