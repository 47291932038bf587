import { hash } from 'node:crypto'
import { type Event, type Story, type Subject, type Ticket, deliveries, events } from './events.ts'
import { costOf, rateAt } from './rates.ts'

/** Independent bookkeeping of the same events: plain sums of bigint. */
export interface Sums {
  count: bigint
  fee: bigint
  cost: bigint
}

export interface UserBook extends Sums {
  readonly subject: Subject
  /** Sum of one number per ticket, computed from all of its columns. */
  fingerprint: bigint
  readonly costs: Map<string, bigint>
}

export interface HourBook extends Sums {
  readonly subject: Subject
  readonly pipeline: string
  readonly modelId: string
  nanos: bigint
  pixels: bigint
}

export interface Books {
  /** By auth id. */
  readonly users: ReadonlyMap<string, UserBook>
  /** By auth id, hour, pipeline and model. */
  readonly hours: ReadonlyMap<string, HourBook>
  /** By client id: tickets signed within the window. */
  readonly within: ReadonlyMap<string, Sums>
  readonly tickets: bigint
}

/** Instants `[from, until)` in microseconds. */
export interface Window {
  readonly from: number
  readonly until: number
}

export const authIdOf = ({ clientId, externalUserId }: Subject): string =>
  `${clientId}:${externalUserId}`

export const nothing = (): Sums => ({ count: 0n, fee: 0n, cost: 0n })

export const summed = (all: readonly Sums[]): Sums =>
  all.reduce(
    (sum, { count, fee, cost }) => ({
      count: sum.count + count,
      fee: sum.fee + fee,
      cost: sum.cost + cost,
    }),
    nothing(),
  )

function add(to: Sums, { fee, cost }: { fee: bigint; cost: bigint }): void {
  to.count += 1n
  to.fee += fee
  to.cost += cost
}

/** Returns the expected books after each event of the story has been booked once. */
export function keepBooks(story: Story, window: Window): Books {
  const users = new Map(story.subjects.map((subject) => [authIdOf(subject), newUser(subject)]))
  const hours = new Map<string, HourBook>()
  const within = new Map<string, Sums>()
  let tickets = 0n
  for (const event of events(story)) if (event.kind === 'ticket') enter(event.ticket)
  return { users, hours, within, tickets }

  function enter(ticket: Ticket): void {
    const rate = rateAt(story.observations, ticket.signedAt).attosPerEth
    const sums = { fee: ticket.fee, cost: costOf(ticket.fee, rate) }
    tickets += 1n
    enterUser(ticket, sums.cost, rate)
    const hour = hourOf(ticket)
    add(hour, sums)
    hour.nanos += ticket.billableNanos
    hour.pixels += BigInt(ticket.pixels)
    if (ticket.signedAt >= window.from && ticket.signedAt < window.until)
      add(entry(within, ticket.subject.clientId, nothing), sums)
  }

  function enterUser(ticket: Ticket, cost: bigint, rate: bigint): void {
    const user = entry(users, authIdOf(ticket.subject), () => newUser(ticket.subject))
    add(user, { fee: ticket.fee, cost })
    user.costs.set(ticket.pipeline, (user.costs.get(ticket.pipeline) ?? 0n) + cost)
    user.fingerprint += fingerprint(ticket, cost, rate)
  }

  function hourOf(ticket: Ticket): HourBook {
    const { subject, pipeline, modelId } = ticket
    const hour = Math.floor(ticket.signedAt / 3_600_000_000) * 3_600
    return entry(hours, [authIdOf(subject), hour, pipeline, modelId].join('|'), () => ({
      subject,
      pipeline,
      modelId,
      ...nothing(),
      nanos: 0n,
      pixels: 0n,
    }))
  }
}

const newUser = (subject: Subject): UserBook => ({
  subject,
  ...nothing(),
  fingerprint: 0n,
  costs: new Map(),
})

function entry<T>(map: Map<string, T>, key: string, make: () => T): T {
  const value = map.get(key) ?? make()
  map.set(key, value)
  return value
}

function fingerprint(ticket: Ticket, cost: bigint, rate: bigint): bigint {
  const { eventId, signedAt, sessionId, sequence, pipeline, modelId, fee, billableNanos, pixels } =
    ticket
  const text = [
    eventId,
    signedAt,
    sessionId,
    sequence,
    pipeline,
    modelId,
    fee,
    cost,
    rate,
    billableNanos,
    pixels,
  ].join('|')
  return BigInt(`0x${hash('md5', text, 'hex').slice(0, 15)}`)
}

export interface Delivered {
  readonly all: bigint
  readonly tickets: bigint
  readonly ignored: bigint
  readonly unusable: bigint
  /** By reason: the distinct events, and their deliveries. */
  readonly reasons: ReadonlyMap<string, { events: bigint; deliveries: bigint }>
}

/** Counts what a stream delivers for the story, repeats included. */
export function countDeliveries(story: Story): Delivered {
  const counts: Record<Event['kind'], bigint> = { ticket: 0n, ignored: 0n, unusable: 0n }
  const reasons = new Map<string, { events: bigint; deliveries: bigint }>()
  const seen = new Set<string>()
  for (const event of deliveries(story)) {
    counts[event.kind] += 1n
    if (event.kind !== 'unusable') continue
    const reason = entry(reasons, event.reason, () => ({ events: 0n, deliveries: 0n }))
    reason.deliveries += 1n
    if (!seen.has(event.text)) reason.events += 1n
    seen.add(event.text)
  }
  const { ticket: tickets, ignored, unusable } = counts
  return { all: tickets + ignored + unusable, tickets, ignored, unusable, reasons }
}

export interface GrantTerms {
  readonly micros: bigint
  readonly featureKey: string | null
}

/**
 * Returns the remainder of each grant, in burn order, after all costs are charged. The order of the
 * tickets does not matter, provided that grants for a feature precede grants for everything.
 */
export function remainders(
  grants: readonly GrantTerms[],
  costs: ReadonlyMap<string, bigint>,
): bigint[] {
  const open = new Map(costs)
  return grants.map(({ micros, featureKey }) => {
    let left = micros * 10n ** 12n
    for (const [pipeline, cost] of open) {
      if (featureKey !== null && featureKey !== pipeline) continue
      const part = cost < left ? cost : left
      open.set(pipeline, cost - part)
      left -= part
    }
    return left
  })
}
