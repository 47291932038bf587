import type { Random } from '../../support/random.ts'
import type { Scheduler } from '../scheduler.ts'
import type { AllowedCall } from '../truth.ts'

/** An event of the signer: the ticket of a call. */
export interface TicketEvent {
  readonly id: string
  readonly call: AllowedCall
}

type Fault = { readonly until: number } & (
  | { readonly kind: 'stall' }
  | { readonly kind: 'loss'; readonly probability: number }
  | { readonly kind: 'delay'; readonly byMs: number }
)

/**
 * The longest time for an event without faults, because the signer and the broker write in batches.
 */
const batchMs = 900

/** The stream of events. It may lose, delay or stall events, and delivers at least once. */
export function createBroker(
  scheduler: Scheduler,
  random: Random,
  deliver: (events: readonly TicketEvent[]) => void,
) {
  const delivered: TicketEvent[] = []
  let faults: Fault[] = []
  let next = 1

  function emit(call: AllowedCall): void {
    const event = { id: `event-${next++}`, call }
    let delayMs = random.below(batchMs)
    for (const fault of currentFaults()) {
      if (fault.kind === 'loss' && random.chance(fault.probability)) return
      if (fault.kind === 'delay') delayMs += random.below(fault.byMs)
    }
    scheduler.schedule(null, delayMs, () => arrive(event))
  }

  function arrive(event: TicketEvent): void {
    const stalledUntil = Math.max(
      0,
      ...currentFaults().map(({ kind, until }) => (kind === 'stall' ? until : 0)),
    )
    if (stalledUntil > scheduler.now()) {
      scheduler.schedule(null, stalledUntil - scheduler.now() + random.below(500), () =>
        arrive(event),
      )
      return
    }
    delivered.push(event)
    // Sometimes repeats a batch, as after a crash.
    deliver(random.chance(0.05) ? delivered.slice(-3) : [event])
  }

  const currentFaults = (): readonly Fault[] =>
    faults.length === 0 ? faults : (faults = faults.filter(({ until }) => until > scheduler.now()))

  return {
    emit,
    addFault: (fault: Fault): void => void faults.push(fault),
    heal: (): void => void (faults = []),
    replay: (): void => deliver(delivered),
  }
}

export type Broker = ReturnType<typeof createBroker>
