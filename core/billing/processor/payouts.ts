import { LRUCache } from 'lru-cache'
import { DomainError } from '../../../proto/errors.ts'
import { createKeyedSemaphore } from '../../lib/concurrency.ts'
import type { Now } from '../../lib/time.ts'
import type { AppId } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import type { Connections } from './connections.ts'
import type { Balance, PaymentProcessor, PayoutPage } from './port.ts'

export interface PayoutsDeps extends Pick<Shared, 'pool' | 'now'> {
  readonly connections: Pick<Connections, 'findAccount'>
  /** Null if the deployment has no processor. */
  readonly processor: Pick<PaymentProcessor, 'readBalance' | 'listPayouts'> | null
}

/** An answer of the processor, with the time at which it was read. */
export interface Reading<T> {
  /** The processor's id of the app's account; null if the app has none. */
  readonly account: string | null
  readonly value: T
  readonly readAt: Date
}

export interface PageRequest {
  readonly limit: number
  /** The id of the last payout of the page before. */
  readonly after: string | null
}

const noPayouts: PayoutPage = { payouts: [], hasMore: false }
const idSyntax = /^[A-Za-z0-9_]{1,100}$/

/**
 * What the processor holds for an app, and what it pays out to the owner. An answer is returned
 * again for a minute. Both functions throw PROCESSOR_UNREACHABLE and PROCESSOR_REFUSED.
 */
export function createPayouts({ pool, now, connections, processor }: PayoutsDeps) {
  const places = createKeyedSemaphore({ running: 1, waiting: waitingMax, refusal: tooMany })
  const readBalances = createReader<readonly Balance[]>({ now, places })
  const readPages = createReader<PayoutPage>({ now, places })

  /** Returns the balance by currency; none without an account. */
  async function readBalance(app: AppId): Promise<Reading<readonly Balance[]>> {
    const at = processor && (await connections.findAccount(pool, app))
    if (!at) return { account: null, value: [], readAt: now() }
    const answer = await readBalances(keyOf(at), '', () => processor.readBalance(at))
    return { account: at.account, ...answer }
  }

  /** Returns payouts, newest first. Throws REQUEST_INVALID for an unknown `after`. */
  async function list(app: AppId, page: PageRequest): Promise<Reading<PayoutPage>> {
    const { limit, after } = page
    if (after !== null && !idSyntax.test(after)) throw unknownCursor()
    const at = processor && (await connections.findAccount(pool, app))
    if (!at) return { account: null, value: noPayouts, readAt: now() }
    const answer = await readPages(keyOf(at), `${limit} ${after ?? ''}`, async () => {
      const payouts = await processor.listPayouts(at, page)
      if (payouts === null) throw unknownCursor()
      return payouts
    })
    return { account: at.account, ...answer }
  }

  return { readBalance, list }
}

export type Payouts = ReturnType<typeof createPayouts>

const keyOf = ({ plane, account }: { readonly plane: string; readonly account: string }): string =>
  `${plane} ${account}`

const tooMany = (): DomainError =>
  new DomainError(
    'PROCESSOR_UNREACHABLE',
    'other requests about this account still wait for the payment processor; try again',
  )

const unknownCursor = (): DomainError =>
  new DomainError('REQUEST_INVALID', 'cursor is not one that this list returned')

const freshMs = 60_000
const answersMax = 500
/** Different requests that may wait for the one that runs for the same account. */
const waitingMax = 4

interface ReaderDeps {
  readonly now: Now
  readonly places: ReturnType<typeof createKeyedSemaphore>
}

type Answer<T> = Pick<Reading<T>, 'value' | 'readAt'>

/**
 * Returns a function that reads about an account and keeps the answer for a minute. Equal requests
 * at the same time share one answer, and an account has one request at a time, so that a view that
 * is reloaded does not use up the processor's rate limit. A failure is not kept.
 */
function createReader<T extends object>({ now, places }: ReaderDeps) {
  const answers = new LRUCache<string, Answer<T>>({ max: answersMax })
  const running = new Map<string, Promise<Answer<T>>>()

  async function load(account: string, key: string, read: () => Promise<T>): Promise<Answer<T>> {
    try {
      return await places.run(account, async () => {
        const answer = { value: await read(), readAt: now() }
        answers.set(key, answer)
        return answer
      })
    } finally {
      running.delete(key)
    }
  }

  return async (account: string, request: string, read: () => Promise<T>): Promise<Answer<T>> => {
    const key = `${account} ${request}`
    const known = answers.get(key)
    if (known && now().getTime() - known.readAt.getTime() < freshMs) return known
    const started = running.get(key) ?? load(account, key, read)
    running.set(key, started)
    return started
  }
}
