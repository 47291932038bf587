/** A row of the outbox: something that another system is to get. */
export interface Entry {
  readonly id: bigint
  readonly payload: Buffer
  /** How many things the payload holds, for metrics. */
  readonly itemCount: number
  readonly attempts: number
}

export interface NewEntry {
  readonly kind: string
  readonly payload: Buffer
  readonly itemCount: number
}

/** The part of an entry that has not arrived. */
export interface Rest {
  readonly payload: Buffer
  readonly itemCount: number
}

/**
 * How the delivery of one entry ended. `rest` is the part that has not arrived; absent when nothing has.
 * - `delivered`: all of it arrived.
 * - `refused`: the other system refuses this entry for its content. It is set aside after some attempts.
 * - `failed`: the other system failed on it. This counts as an attempt only when other entries arrive.
 * - `later`: the other system is away or not ready. This counts as no attempt.
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

/** Where entries of one kind go. */
export interface Destination {
  readonly kind: string
  /** Bounds of one claim, and so of memory. One entry is always claimed. */
  readonly itemsAtOnce: number
  readonly bytesAtOnce: number
  /** False while no delivery can succeed. */
  ready(): boolean
  /** Returns the outcome of each entry, in order, and never throws for a failure of the other system. Must be idempotent. */
  deliver(entries: readonly Entry[], signal: AbortSignal): Promise<readonly Delivery[]>
}
