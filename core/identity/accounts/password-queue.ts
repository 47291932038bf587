import { DomainError } from '../../../proto/errors.ts'

/** Source and priority of an attempt. */
export interface QueuePlace {
  /**
   * Name of the address, account or one-time link that the attempt belongs to. Undefined has no
   * limit per source.
   */
  readonly source?: string | undefined
  /**
   * Whether the attempt comes from a device of the account, from a valid one-time link, or from an
   * operator.
   */
  readonly isKnown: boolean
}

// argon2 takes 19 MiB and one of four threads. More at once would fill the memory and starve other
// work.
const running = 2
/** Queue length for known sources, and separately for strangers. */
const waitingMax = 64
const waitingPerSource = 2
/** Number of known sources that may run in a row while a stranger waits. */
const knownInARowMax = 4

interface Waiting {
  readonly source: string | undefined
  readonly start: () => void
}

/**
 * Limits how many passwords are hashed at the same time. Known sources have their own places, which
 * strangers cannot fill. Four known sources run before each stranger, so that both advance. A
 * source waits in at most two places, so that one address or account cannot fill the queue.
 */
export function createPasswordQueue() {
  const known: Waiting[] = []
  const strangers: Waiting[] = []
  let busy = 0
  let knownInARow = 0

  /** Runs the work when there is room. Throws RATE_LIMITED when the queue is full. */
  async function run<T>(place: QueuePlace, work: () => Promise<T>): Promise<T> {
    if (busy < running) busy++
    else await wait(place)
    try {
      return await work()
    } finally {
      const next = takeNext()
      // The finished work passes its place on, so `busy` does not change.
      if (next) next.start()
      else busy--
    }
  }

  function takeNext(): Waiting | undefined {
    const isStrangersTurn = known.length === 0 || knownInARow >= knownInARowMax
    const stranger = isStrangersTurn ? strangers.shift() : undefined
    knownInARow = stranger ? 0 : knownInARow + 1
    return stranger ?? known.shift()
  }

  function wait({ source, isKnown }: QueuePlace): Promise<void> {
    const queue = isKnown ? known : strangers
    const ofSource = queue.filter((waiting) => waiting.source === source).length
    const isFull = queue.length >= waitingMax
    if (isFull || (source !== undefined && ofSource >= waitingPerSource)) throw tooManyLogins()
    return new Promise((start) => queue.push({ source, start }))
  }

  return { run }
}

const tooManyLogins = (): DomainError =>
  new DomainError('RATE_LIMITED', 'too many people are logging in; try again')
