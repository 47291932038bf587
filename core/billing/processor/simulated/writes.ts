import { hash, randomBytes } from 'node:crypto'
import { DomainError } from '../../../../proto/errors.ts'
import { later } from '../../../shared/clocks/clocks.ts'
import { uuidV7 } from '../../../lib/crypto.ts'
import { type Db, isUnavailable, tx } from '../../../lib/sql.ts'
import type { Shared } from '../../../shared/shared.ts'
import type { ProcessorAccount, ProcessorEvent } from '../port.ts'
import * as store from './store.ts'
import type { Contents, Kind, SimulatedObject } from './store.ts'

export interface SimulatedDeps extends Pick<Shared, 'pool' | 'now' | 'log'> {
  readonly publicUrl: string
  /** Takes an event. It may get an event more than once. */
  readonly receive: (event: ProcessorEvent) => Promise<void>
}

const deliveriesMax = 100
const retryMs = 60_000
const keptMs = 30 * 86_400_000
const deletedMax = 1_000

export type NewEvent = Omit<ProcessorEvent, 'id' | 'isDeauthorization' | 'payment'> &
  Partial<Pick<ProcessorEvent, 'isDeauthorization' | 'payment'>>

/** A transaction of the simulated processor. `emit` stores an event that is delivered after it. */
export interface Write {
  readonly db: Db
  readonly emit: (event: NewEvent) => Promise<void>
}

/**
 * Transactions, idempotency keys and events of the simulated processor. Events are stored with the
 * change and delivered after its commit; `deliverDue` repeats those that were not accepted.
 */
export function createWrites({ pool, now, log, receive }: SimulatedDeps) {
  /** Runs `work` in a transaction, then delivers its events. */
  async function write<T>(work: (write: Write) => Promise<T>): Promise<T> {
    const events: ProcessorEvent[] = []
    const result = await tx(pool, (db) =>
      work({
        db,
        emit: async (event) => {
          const at = now()
          const id = `evt_${uuidV7(at.getTime())}`
          const full = { payment: null, isDeauthorization: false, ...event, id }
          await store.insertEvent(db, full, { createdAt: at, nextAt: later(at, retryMs) })
          events.push(full)
        },
      }),
    ).catch(rethrow)
    await deliver(events)
    return result
  }

  /**
   * Creates an object once per idempotency key, and returns the same object for each repetition.
   * Throws PROCESSOR_REFUSED if the key was used for another request.
   */
  async function createOnce<K extends Kind>(
    kind: K,
    { at, key, request }: { at: ProcessorAccount; key: string; request: object },
    make: (write: Write, id: string) => Promise<Contents[K]>,
  ): Promise<SimulatedObject<K>> {
    const digest = digestOf(kind, request)
    return write(async (current) => {
      const { db } = current
      const [id, createdAt] = [newId(kind), now()]
      const first = await store.claimKey(db, { at, key, digest }, { objectId: id, createdAt })
      if (first === null) {
        const object = { id, at, data: await make(current, id) }
        await store.insertObject(db, kind, { ...object, createdAt })
        return object
      }
      const existing = await store.findObject(db, kind, first.objectId)
      if (first.digest !== digest || existing === null)
        throw refused('the idempotency key was used for another request')
      return existing
    })
  }

  /** Delivers events; `deliverDue` repeats one that is not accepted. */
  async function deliver(events: readonly ProcessorEvent[]): Promise<void> {
    for (const event of events)
      try {
        await receive(event)
        await store.markDelivered(pool, event.id, now())
      } catch (error) {
        log.warn({ err: error, type: event.type }, 'an event of the simulated processor waits')
      }
  }

  async function deliverDue(): Promise<void> {
    await deliver(await store.claimEvents(pool, now(), deliveriesMax))
  }

  async function deleteOld(): Promise<void> {
    await store.deleteOld(pool, later(now(), -keptMs), deletedMax)
  }

  return { write, createOnce, upkeep: [deliverDue, deleteOld] }
}

export type Writes = ReturnType<typeof createWrites>

/** Runs a read. Throws PROCESSOR_UNREACHABLE if the database does not answer. */
export const read = <T>(work: Promise<T>): Promise<T> => work.catch(rethrow)

function rethrow(error: unknown): never {
  if (isUnavailable(error))
    throw new DomainError('PROCESSOR_UNREACHABLE', 'the payment processor does not answer', {
      cause: error,
    })
  throw error
}

export const refused = (message: string): DomainError =>
  new DomainError('PROCESSOR_REFUSED', message)

const prefixes: Readonly<Record<Kind, string>> = {
  account: 'acct',
  link: 'link',
  customer: 'cus',
  card: 'card',
  checkout: 'cs',
  payment: 'pay',
  refund: 're',
}

/** Ids of checkouts and links are secrets: their holder may use the page. */
export const newId = (kind: Kind): string =>
  `${prefixes[kind]}_sim_${randomBytes(16).toString('hex')}`

const digestOf = (kind: Kind, request: object): string =>
  hash(
    'sha256',
    JSON.stringify([kind, request], (_, value: unknown) =>
      typeof value === 'bigint' ? String(value) : value,
    ),
    'hex',
  )

const isSame = (a: ProcessorAccount, b: ProcessorAccount): boolean =>
  a.plane === b.plane && a.account === b.account

/** Returns an object of this account and plane; null for another one's. */
export async function findIn<K extends Kind>(
  db: Db,
  kind: K,
  { at, id }: { readonly at: ProcessorAccount; readonly id: string },
): Promise<SimulatedObject<K> | null> {
  const object = await store.findObject(db, kind, id)
  return object !== null && isSame(object.at, at) ? object : null
}

/** Like `findIn`, and throws PROCESSOR_REFUSED if there is none. */
export async function requireIn<K extends Kind>(
  db: Db,
  kind: K,
  key: { readonly at: ProcessorAccount; readonly id: string },
): Promise<SimulatedObject<K>> {
  const object = await findIn(db, kind, key)
  if (object === null) throw refused(`no such ${kind} in this account`)
  return object
}

/** Throws PROCESSOR_REFUSED if the customer is unknown in this account, or was deleted. */
export async function requireCustomer(
  db: Db,
  key: { readonly at: ProcessorAccount; readonly id: string },
): Promise<void> {
  const { data } = await requireIn(db, 'customer', key)
  if (data.isDeleted === true) throw refused('no such customer in this account')
}

/**
 * Throws PROCESSOR_REFUSED unless the account is connected in this plane; with `charges`, also
 * unless it may take payments. The platform's own account always may.
 */
export async function requireAccount(
  db: Db,
  { plane, account }: ProcessorAccount,
  { charges }: { readonly charges: boolean },
): Promise<void> {
  if (account === null) return
  const { data } = await requireIn(db, 'account', { at: { plane, account: null }, id: account })
  if (data.isEnded) throw refused('the owner ended the connection of this account')
  if (charges && !data.chargesEnabled) throw refused('this account may not take payments yet')
}
