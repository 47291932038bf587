import { promisify } from 'node:util'
import { gunzip } from 'node:zlib'
import type { Delivery, Destination, Entry } from '../../../shared/outbox/types.ts'
import { DomainError } from '../../../../proto/errors.ts'
import { creditKind, customerKind, eventsKind, packEvents, subscriptionKind } from '../emit.ts'
import { parseJson } from '../../../lib/json.ts'
import { type UserId, appId, isUuid, userId } from '../../../shared/ids.ts'
import type { Customer, GrantedCredit } from '../backend.ts'
import { customerKey } from '../catalog.ts'
import type { FindSubscriber, Subscriber } from '../subscribers.ts'
import { readText } from './dialect.ts'
import type { Failure } from './http.ts'

export interface EventsDeps {
  /** Returns null if the backend has accepted all events. */
  readonly ingest: (events: readonly string[], signal: AbortSignal) => Promise<Failure | null>
  readonly ready: () => boolean
  /** Maximum events per request. */
  readonly batchSize: number
}

// In UTF-16 units.
const requestLength = 2 * 1024 * 1024
const entryBytesMax = 16 * 1024 * 1024
const requestsAtOnce = 4
const splitsMax = 60
const roundMs = 120_000
const unpack = promisify(gunzip)

/** An event, and the index of its entry. */
interface Event {
  readonly entry: number
  readonly text: string
}

interface Round {
  readonly signal: AbortSignal
  readonly endsAt: number
  /** How often each entry was halved; bounds the requests for a bad one. */
  readonly splits: Map<number, number>
  /** Set when the backend is unavailable: nothing more is sent in this round. */
  away: Failure | null
  readonly left: { readonly event: Event; readonly failure: Failure | null }[]
}

/**
 * Sends events to the backend. Halves a rejected batch until the faulty events are isolated, so
 * that all other events arrive.
 */
export function createEventsDestination({ ingest, ready, batchSize }: EventsDeps): Destination {
  async function deliver(entries: readonly Entry[], signal: AbortSignal): Promise<Delivery[]> {
    const round: Round = {
      signal,
      endsAt: performance.now() + roundMs,
      splits: new Map(),
      away: null,
      left: [],
    }
    const read = await Promise.all(entries.map(readEvents))
    const events = read.flatMap((texts, entry) => (texts ?? []).map((text) => ({ entry, text })))
    const batches = batchesOf(events, batchSize).values()
    // Several concurrent requests share the queue, because a distant backend answers slowly.
    await Promise.all(
      Array.from({ length: requestsAtOnce }, async () => {
        for (const batch of batches) await send(round, batch)
      }),
    )
    return Promise.all(
      entries.map((_, i) =>
        read[i] === null
          ? { kind: 'refused' as const, why: 'the row cannot be read' }
          : outcomeOf(round, i, read[i]?.length ?? 0),
      ),
    )
  }

  async function send(round: Round, events: readonly Event[]): Promise<void> {
    if (round.away || performance.now() > round.endsAt) return leave(round, events, round.away)
    const failure = await ingest(
      events.map((event) => event.text),
      round.signal,
    )
    if (failure === null) return
    if (failure.kind === 'away' || failure.kind === 'misconfigured') {
      round.away = failure
      return leave(round, events, failure)
    }
    if (events.length === 1 || !maySplit(round, events)) return leave(round, events, failure)
    const cut = middleOf(events)
    await send(round, events.slice(0, cut))
    await send(round, events.slice(cut))
  }

  return {
    kind: eventsKind,
    itemsAtOnce: requestsAtOnce * batchSize,
    bytesAtOnce: 4 * 1024 * 1024,
    ready,
    deliver,
  }
}

// Splits between entries are not limited: a bad entry only delays the others.
function maySplit({ splits }: Round, events: readonly Event[]): boolean {
  const [first, last] = [events[0]?.entry ?? 0, events.at(-1)?.entry ?? 0]
  if (first !== last) return true
  const count = (splits.get(first) ?? 0) + 1
  splits.set(first, count)
  return count <= splitsMax
}

/**
 * Returns the position to split at: the boundary between entries that is nearest to the middle,
 * else the middle.
 */
function middleOf(events: readonly Event[]): number {
  const middle = events.length >> 1
  const isBorder = (at: number): boolean => events[at]?.entry !== events[at - 1]?.entry
  for (let away = 0; away < events.length; away++) {
    if (middle + away < events.length && isBorder(middle + away)) return middle + away
    if (middle - away > 0 && isBorder(middle - away)) return middle - away
  }
  return middle
}

function leave(round: Round, events: readonly Event[], failure: Failure | null): void {
  for (const event of events) round.left.push({ event, failure })
}

/** Returns the lines of an entry; null if it cannot be read. */
async function readEvents({ payload }: Entry): Promise<string[] | null> {
  try {
    return (await unpack(payload, { maxOutputLength: entryBytesMax })).toString('utf8').split('\n')
  } catch {
    return null
  }
}

function batchesOf(events: readonly Event[], size: number): Event[][] {
  const batches: Event[][] = []
  let length = Infinity
  for (const event of events) {
    if (length + event.text.length > requestLength || (batches.at(-1)?.length ?? 0) >= size) {
      batches.push([])
      length = 0
    }
    batches.at(-1)?.push(event)
    length += event.text.length
  }
  return batches
}

async function outcomeOf({ left, away }: Round, entry: number, count: number): Promise<Delivery> {
  const undelivered = left.filter(({ event }) => event.entry === entry)
  if (undelivered.length === 0) return { kind: 'delivered' }
  const rest =
    undelivered.length === count
      ? {}
      : { rest: await packEvents(undelivered.map(({ event }) => event.text)) }
  if (away) return { ...laterOf(away), ...rest }
  const failures = undelivered.map(({ failure }) => failure)
  if (failures.includes(null))
    return { kind: 'later', why: 'the time limit was reached before the end', ...rest }
  const refused = failures.find((failure) => failure?.kind === 'refused')
  const why = (refused ?? failures[0])?.why ?? 'refused'
  return { kind: refused ? 'refused' : 'failed', why, ...rest }
}

const laterOf = ({ why, retryAfterMs }: Failure) => ({
  kind: 'later' as const,
  why,
  ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
})

export interface CustomersDeps {
  readonly ensureCustomer: (customer: Customer, signal: AbortSignal) => Promise<Failure | null>
  readonly ready: () => boolean
}

const customersAtOnce = 8

/** Creates the backend's customers, to which users' usage is attributed. */
export function createCustomersDestination({ ensureCustomer, ready }: CustomersDeps): Destination {
  const deliver = (entries: readonly Entry[], signal: AbortSignal): Promise<Delivery[]> =>
    Promise.all(
      entries.map(async (entry) => {
        const customer = customerOf(entry)
        if (!customer) return { kind: 'refused', why: 'the row cannot be read' }
        const failure = await ensureCustomer(customer, signal)
        return failure === null ? { kind: 'delivered' } : customerOutcome(failure)
      }),
    )

  return {
    kind: customerKind,
    itemsAtOnce: customersAtOnce,
    bytesAtOnce: 64 * 1024,
    ready,
    deliver,
  }
}

export interface CreditsDeps {
  readonly createCredit: (credit: GrantedCredit, signal: AbortSignal) => Promise<Failure | null>
  readonly ready: () => boolean
}

/** Creates users' credits in the backend. */
export function createCreditsDestination({ createCredit, ready }: CreditsDeps): Destination {
  const deliver = (entries: readonly Entry[], signal: AbortSignal): Promise<Delivery[]> =>
    Promise.all(
      entries.map(async (entry) => {
        const credit = creditOf(entry)
        if (!credit) return { kind: 'refused', why: 'the row cannot be read' }
        const failure = await createCredit(credit, signal)
        return failure === null ? { kind: 'delivered' } : customerOutcome(failure)
      }),
    )

  return {
    kind: creditKind,
    itemsAtOnce: customersAtOnce,
    bytesAtOnce: 64 * 1024,
    ready,
    deliver,
  }
}

export interface SubscriptionsDeps {
  readonly findSubscriber: FindSubscriber
  /** May also reject with the errors of a plan sync. */
  readonly subscribe: (
    customer: Customer,
    subscriber: Subscriber,
    signal: AbortSignal,
  ) => Promise<Failure | null>
  readonly ready: () => boolean
}

const subscribeRounds = 3

/** Subscribes users in the backend to their current plan at the time of delivery. */
export function createSubscriptionsDestination({
  findSubscriber,
  subscribe,
  ready,
}: SubscriptionsDeps): Destination {
  async function deliverOne(entry: Entry, signal: AbortSignal): Promise<Delivery> {
    const user = subscribedUserOf(entry)
    if (!user) return { kind: 'refused', why: 'the row cannot be read' }
    let subscriber = await findSubscriber(user)
    for (let round = 1; round <= subscribeRounds && subscriber; round++) {
      const { externalUserId, clientId } = subscriber
      const customer = newCustomer(user.userId, { name: externalUserId, clientId })
      const failure = await subscribe(customer, subscriber, signal)
      if (failure) return customerOutcome(failure)
      // The plan may have changed meanwhile, and another core may have sent the newer one first.
      const current = await findSubscriber(user)
      if (current?.subscriptionId === subscriber.subscriptionId) return { kind: 'delivered' }
      subscriber = current
    }
    return subscriber
      ? { kind: 'later', why: 'the subscription kept changing' }
      : { kind: 'delivered' }
  }

  const deliver = (entries: readonly Entry[], signal: AbortSignal): Promise<Delivery[]> =>
    Promise.all(entries.map((entry) => deliverOne(entry, signal).catch(syncOutcome)))

  return {
    kind: subscriptionKind,
    itemsAtOnce: customersAtOnce,
    bytesAtOnce: 64 * 1024,
    ready,
    deliver,
  }
}

function subscribedUserOf({ payload }: Entry) {
  const value: unknown = parseJson(payload.toString('utf8'))
  const [app, user] = [readText(value, 'appId') ?? '', readText(value, 'userId') ?? '']
  return isUuid(app) && isUuid(user) ? { appId: appId(app), userId: userId(user) } : null
}

/**
 * Maps a sync error: PLAN_UNSYNCABLE needs a change of the plan, all other failures are temporary.
 */
function syncOutcome(error: unknown): Delivery {
  const why = error instanceof Error ? error.message : String(error)
  if (!(error instanceof DomainError)) return { kind: 'failed', why }
  if (error.reason === 'METERING_UNREACHABLE' || error.reason === 'CONFLICT')
    return { kind: 'later', why }
  return { kind: error.reason === 'PLAN_UNSYNCABLE' ? 'refused' : 'failed', why }
}

function creditOf(entry: Entry): GrantedCredit | null {
  const value: unknown = parseJson(entry.payload.toString('utf8'))
  const customer = customerOf(entry)
  const [id, amountMicros, source] = [
    readText(value, 'id'),
    readText(value, 'amountMicros'),
    readText(value, 'source'),
  ]
  if (!customer || id === null || source === null || !/^\d{1,30}$/.test(amountMicros ?? ''))
    return null
  const featureKey = readText(value, 'featureKey')
  return { customer, id, amountMicros: amountMicros ?? '', source, featureKey }
}

function customerOutcome(failure: Failure): Delivery {
  const { kind, why } = failure
  if (kind === 'refused') return { kind, why }
  if (kind === 'broken') return { kind: 'failed', why }
  return laterOf(failure)
}

const nameLength = 256

function customerOf({ payload }: Entry): Customer | null {
  const value: unknown = parseJson(payload.toString('utf8'))
  const user = readText(value, 'userId')
  const name = readText(value, 'name')
  const clientId = readText(value, 'clientId')
  return user === null || name === null || clientId === null
    ? null
    : newCustomer(userId(user), { name, clientId })
}

const newCustomer = (
  user: UserId,
  { name, clientId }: { readonly name: string; readonly clientId: string },
): Customer => ({
  key: customerKey(user),
  name: name.slice(0, nameLength).toWellFormed(),
  clientId,
})
