import { DomainError } from '../../proto/errors.ts'

export interface WaitingRoomOptions {
  /** How many of one name are inside at the same time. */
  readonly running: number
  /** How many of one name wait; one more is refused. */
  readonly waiting: number
}

interface Room {
  inside: number
  readonly queue: (() => void)[]
}

/** Lets a few holders of each name in at a time; others wait in the order in which they came. */
export function createWaitingRooms({ running, waiting }: WaitingRoomOptions) {
  const rooms = new Map<string, Room>()

  /** Resolves when there is room, with the function that leaves it. RATE_LIMITED when too many wait. */
  async function enter(name: string): Promise<() => void> {
    const room = rooms.get(name) ?? { inside: 0, queue: [] }
    rooms.set(name, room)
    if (room.inside >= running) await wait(room)
    else room.inside++
    return () => leave(name, room)
  }

  function wait({ queue }: Room): Promise<void> {
    if (queue.length >= waiting)
      throw new DomainError('RATE_LIMITED', 'too many failed attempts from this address; wait')
    return new Promise((resolve) => queue.push(resolve))
  }

  // Who leaves passes the place on, so `inside` changes only when nobody waits.
  function leave(name: string, room: Room): void {
    const next = room.queue.shift()
    if (next) return next()
    room.inside--
    if (room.inside === 0) rooms.delete(name)
  }

  return { enter }
}
