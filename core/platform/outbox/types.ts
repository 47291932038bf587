/** What is on its way to another system. */
export interface Entry {
  readonly id: bigint
  readonly payload: Buffer
  /** How many things it holds, for counting. */
  readonly itemCount: number
  readonly attempts: number
}

export interface NewEntry {
  readonly kind: string
  readonly payload: Buffer
  readonly itemCount: number
}

/** What of an entry has not arrived. */
export interface Rest {
  readonly payload: Buffer
  readonly itemCount: number
}

/**
 * How one delivery ended.
 * - `delivered`: all of it arrived.
 * - `refused`: the far end refuses this entry for what it is; after some attempts it is set aside. `rest`: only this is left.
 * - `failed`: the far end broke over it; its own fault only when others arrive.
 * - `later`: the far end is away or not ready; nobody's fault.
 */
export type Outcome =
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
  /** Bounds of what is taken at once, and so of memory; one entry is always taken. */
  readonly itemsAtOnce: number
  readonly bytesAtOnce: number
  /** False while it makes no sense to try. */
  ready(): boolean
  /** An outcome for each entry, in order; never throws for what the far end does. Repeats must do no harm there. */
  deliver(entries: readonly Entry[], signal: AbortSignal): Promise<readonly Outcome[]>
}
