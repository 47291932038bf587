import { DomainError } from '../../../proto/errors.ts'
import type { Random } from '../../support/random.ts'
import type { Process, Scheduler } from '../scheduler.ts'

/** A fault on the link between two processes. */
interface LinkFault {
  readonly from: Process | null
  readonly to: Process | null
  readonly until: number
  /** Messages are lost with this probability. */
  readonly loss: number
  /** The longest additional delay in milliseconds. */
  readonly slowMs: number
}

export interface RemoteCall<Response> {
  readonly from: Process
  readonly to: Process
  readonly deadlineMs: number
  /** Runs at `to`. */
  readonly work: () => Promise<Response>
}

const latencyMs = 3

/** Messages between processes. Each has a random delay, so later ones may overtake earlier ones. */
export function createNetwork(scheduler: Scheduler, random: Random) {
  let faults: LinkFault[] = []

  function addFault(fault: LinkFault): void {
    faults.push(fault)
  }

  const heal = (): void => void (faults = [])

  /** Delivers a message unless it is lost. */
  function send(from: Process, to: Process, deliver: () => void): void {
    const now = scheduler.now()
    let delayMs = 0.2 + (latencyMs * random.below(1_000)) / 1_000
    if (faults.length > 0) {
      faults = faults.filter(({ until }) => until > now)
      for (const fault of faults) {
        if (!isBetween(fault, from, to)) continue
        if (random.chance(fault.loss)) return
        delayMs += (fault.slowMs * random.below(1_000)) / 1_000
      }
    }
    scheduler.schedule(to, delayMs, deliver)
  }

  /**
   * Makes an RPC. Rejects with UNAVAILABLE if no answer comes within the deadline, as for a broken
   * connection.
   */
  function call<Response>({ from, to, deadlineMs, work }: RemoteCall<Response>): Promise<Response> {
    const { promise, resolve, reject } = Promise.withResolvers<Response>()
    // A call that is over is cancelled, even if its server was frozen.
    let isOver = false
    const deadline = scheduler.schedule(from, deadlineMs, () => {
      isOver = true
      reject(unavailable())
    })
    const answer = (settle: () => void): void =>
      send(to, from, () => {
        scheduler.cancel(deadline)
        settle()
      })
    if (!to.isAlive) scheduler.schedule(from, latencyMs, () => reject(unavailable()))
    send(from, to, () => {
      if (isOver) return
      work().then(
        (response) => answer(() => resolve(response)),
        (error: unknown) => answer(() => reject(error)),
      )
    })
    return promise
  }

  return { addFault, heal, send, call }
}

export type Network = ReturnType<typeof createNetwork>

const unavailable = (): DomainError => new DomainError('UNAVAILABLE', 'core does not answer')

const isBetween = (fault: LinkFault, a: Process, b: Process): boolean =>
  (matches(fault.from, a) && matches(fault.to, b)) ||
  (matches(fault.from, b) && matches(fault.to, a))

const matches = (end: Process | null, process: Process): boolean => end === null || end === process
