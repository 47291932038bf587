import { promisify } from 'node:util'
import { gunzip } from 'node:zlib'
import type { Destination, Entry, Outcome, Rest } from '../../platform/outbox/types.ts'
import { eventsKind, packed } from './emit.ts'
import type { Failure } from './openmeter/http.ts'

export interface EventsDeps {
  /** Null: all of them were taken. */
  readonly ingest: (events: readonly string[], signal: AbortSignal) => Promise<Failure | null>
  readonly ready: () => boolean
  /** Events in one request. */
  readonly batchSize: number
}

// In UTF-16 units.
const requestLength = 2 * 1024 * 1024
const entryBytesMax = 16 * 1024 * 1024
const atOnce = 4
const splitsMax = 60
const roundMs = 120_000
const unpack = promisify(gunzip)

/** An event on its way, and the entry that it is from. */
interface Event {
  readonly entry: number
  readonly text: string
}

interface Round {
  readonly signal: AbortSignal
  readonly endsAt: number
  /** How often what was left of an entry was halved: what a bad one may cost is bounded. */
  readonly splits: Map<number, number>
  /** Set when the far end is away: nothing more is tried in this round. */
  away: Failure | null
  readonly left: { readonly event: Event; readonly failure: Failure | null }[]
}

/**
 * Brings events to the backend. When a batch is refused it is halved until what is to blame stands alone: that much is
 * left of its entry, everything else has arrived.
 */
export function createEventsDestination({ ingest, ready, batchSize }: EventsDeps): Destination {
  async function deliver(entries: readonly Entry[], signal: AbortSignal): Promise<Outcome[]> {
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
    // Several share one queue: a far end that is far away answers slowly.
    await Promise.all(
      Array.from({ length: atOnce }, async () => {
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
    itemsAtOnce: atOnce * batchSize,
    bytesAtOnce: 4 * 1024 * 1024,
    ready,
    deliver,
  }
}

// Entries are parted from each other first, however many are bad: a bad one costs the others nothing but time.
function maySplit({ splits }: Round, events: readonly Event[]): boolean {
  const [first, last] = [events[0]?.entry ?? 0, events.at(-1)?.entry ?? 0]
  if (first !== last) return true
  const count = (splits.get(first) ?? 0) + 1
  splits.set(first, count)
  return count <= splitsMax
}

/** Where to cut: between two entries when there are several, as near to the middle as that goes. */
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

/** The lines of an entry; null when it cannot be read. */
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

async function outcomeOf({ left, away }: Round, entry: number, of: number): Promise<Outcome> {
  const mine = left.filter(({ event }) => event.entry === entry)
  if (mine.length === 0) return { kind: 'delivered' }
  const rest = mine.length === of ? {} : { rest: await restOf(mine.map(({ event }) => event.text)) }
  if (away)
    return {
      kind: 'later',
      why: away.why,
      ...rest,
      ...(away.retryAfterMs === undefined ? {} : { retryAfterMs: away.retryAfterMs }),
    }
  const refused = mine.find(({ failure }) => failure?.kind === 'refused')?.failure
  if (mine.some(({ failure }) => failure === null))
    return { kind: 'later', why: 'there was no time for all of it', ...rest }
  const why = refused?.why ?? mine[0]?.failure?.why ?? 'refused'
  return { kind: refused ? 'refused' : 'failed', why, ...rest }
}

const restOf = (events: readonly string[]): Promise<Rest> => packed(events)
