/** A row of the outbox, to be delivered to another system. */
export interface Entry {
  readonly id: bigint
  readonly payload: Buffer
  /** Number of items in the payload, for metrics. */
  readonly itemCount: number
  readonly attempts: number
}

export interface NewEntry {
  readonly kind: string
  readonly payload: Buffer
  readonly itemCount: number
}

/** The undelivered part of an entry. */
export interface Rest {
  readonly payload: Buffer
  readonly itemCount: number
}

/**
 * The result of delivering one entry. `rest` is the undelivered part; absent if nothing was
 * delivered.
 * - `delivered`: all of the entry arrived.
 * - `refused`: the other system rejects the content. The entry is set aside after several attempts.
 * - `failed`: the other system failed on the entry. It counts as an attempt only if other entries
 *   arrive.
 * - `later`: the other system is unavailable or not ready. It does not count as an attempt.
 */
export type Delivery =
  | { readonly kind: 'delivered' }
  | { readonly kind: 'refused'; readonly why: string; readonly rest?: Rest }
  | { readonly kind: 'failed'; readonly why: string; readonly rest?: Rest }
  | {
      readonly kind: 'later'
      readonly why: string
      readonly rest?: Rest
      readonly retryAfterMs?: number
    }

/** The destination of entries of one kind. */
export interface Destination {
  readonly kind: string
  /** Limits of one claim, and thus of memory. At least one entry is claimed. */
  readonly itemsAtOnce: number
  readonly bytesAtOnce: number
  /** False while no delivery can succeed. */
  ready(): boolean
  /**
   * Returns the outcome of each entry, in order. Must not throw if the other system fails. Must be
   * idempotent.
   */
  deliver(entries: readonly Entry[], signal: AbortSignal): Promise<readonly Delivery[]>
}
