import { DomainError } from '../../proto/errors.ts'

export interface WaitingRoomOptions {
  /** Maximum concurrent holders per name. */
  readonly running: number
  /** Maximum waiting holders per name; further ones are rejected. */
  readonly waiting: number
}

interface Room {
  inside: number
  readonly queue: (() => void)[]
}

/** Limits concurrent holders per name; others wait in order of arrival. */
export function createKeyedSemaphore({ running, waiting }: WaitingRoomOptions) {
  const rooms = new Map<string, Room>()

  /**
   * Resolves with the function that leaves, when there is room. Throws RATE_LIMITED if too many are
   * waiting.
   */
  async function enter(name: string): Promise<() => void> {
    const room = rooms.get(name) ?? { inside: 0, queue: [] }
    rooms.set(name, room)
    if (room.inside >= running) await wait(room)
    else room.inside++
    return () => leave(name, room)
  }

  function wait({ queue }: Room): Promise<void> {
    if (queue.length >= waiting)
      throw new DomainError(
        'RATE_LIMITED',
        'too many failed attempts from this address; try again later',
      )
    return new Promise((resolve) => queue.push(resolve))
  }

  // The leaver passes its place on, so `inside` changes only if no request waits.
  function leave(name: string, room: Room): void {
    const next = room.queue.shift()
    if (next) return next()
    room.inside--
    if (room.inside === 0) rooms.delete(name)
  }

  return { enter }
}
