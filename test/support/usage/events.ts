import { createRandom, type Random } from '../random.ts'
import type { Observation } from './rates.ts'

export interface Subject {
  readonly clientId: string
  readonly externalUserId: string
  /** Whether some of its fees exceed 2^53 wei. */
  readonly heavy: boolean
}

/** Fields of a signed ticket, without its bytes. */
export interface Ticket {
  readonly subject: Subject
  readonly eventId: string
  readonly signedAt: number
  readonly sessionId: string
  readonly sequence: number
  readonly pipeline: string
  readonly modelId: string
  readonly fee: bigint
  readonly billableNanos: bigint
  readonly pixels: number
}

export type Event = { readonly key: string; readonly text: string } & (
  | { readonly kind: 'ticket'; readonly ticket: Ticket }
  | { readonly kind: 'ignored' }
  | { readonly kind: 'unusable'; readonly reason: string }
)

export interface Story {
  readonly seed: number
  readonly count: number
  readonly subjects: readonly Subject[]
  readonly observations: readonly Observation[]
  /** In microseconds since 1970. */
  readonly start: number
  readonly end: number
}

/**
 * The most events by which one may be late. A forgery of its id follows much later, after all
 * events in flight.
 */
const furthest = 4_000
const forgeryAfter = 12_000

/**
 * Yields the signer's events as a stream delivers them: 5 % late, 5 % twice. A seed always yields
 * the same events, so they are generated on each read and not stored.
 */
export function* deliveries(story: Story): Generator<Event> {
  const random = createRandom(story.seed + 1)
  const due = new Map<number, Event[]>()
  let index = 0
  for (const event of events(story)) {
    const at = index + (random.chance(0.05) ? 1 + random.below(furthest) : 0)
    schedule(at, event)
    if (random.chance(0.05)) schedule(at + random.pick([0, 1, random.below(furthest)]), event)
    if (
      event.kind === 'ticket' &&
      random.chance(0.0003) &&
      index + 2 * forgeryAfter < story.count
    ) {
      schedule(index + forgeryAfter, forged(event.text, event.key))
    }
    yield* due.get(index) ?? []
    due.delete(index)
    index++
  }
  for (const at of [...due.keys()].sort((a, b) => a - b)) yield* due.get(at) ?? []

  function schedule(at: number, event: Event): void {
    due.set(at, [...(due.get(at) ?? []), event])
  }
}

const forged = (text: string, key: string): Event => ({
  key,
  kind: 'unusable',
  reason: 'same_id_other_bytes',
  text: text.replace(/"computed_fee":"/, '"computed_fee":"1'),
})

interface Session {
  readonly subject: Subject
  readonly type: 'live' | 'lv2v' | 'fixed'
  readonly model: string
  readonly price: bigint
  readonly id: string
  readonly manifestId: string
  readonly orchestrator: string
  sequence: number
  signedAt: number
}

const openSessions = 300

/**
 * Yields events in the order of signing, mostly tickets (docs/signer-events.md, "Signed ticket").
 */
export function* events(story: Story): Generator<Event> {
  const random = createRandom(story.seed)
  const sessions: Session[] = []
  let nextIndex = 0
  const begin = (): Session => newSession(random, story.subjects, nextIndex++)
  for (let i = 0; i < openSessions; i++) sessions.push(begin())
  for (let index = 0; index < story.count; index++) {
    if (random.chance(0.01)) yield otherType(random)
    else {
      const slot = random.below(openSessions)
      if (random.chance(0.025)) sessions[slot] = begin()
      const session = sessions[slot] ?? begin()
      const signed = sign(random, session, instantOf(random, story, index))
      yield random.chance(0.001) ? spoilt(random, signed) : signed
    }
  }
}

/** Returns the event's instant with some jitter, and sometimes exactly at the edge of a rate. */
function instantOf(
  random: Random,
  { start, end, count, observations }: Story,
  index: number,
): number {
  if (random.chance(0.001)) {
    const edge = observations[1 + random.below(observations.length - 1)]?.at ?? end
    // The first instant may be observed twice, and no rate precedes it.
    return Math.max(observations[0]?.at ?? edge, edge - random.below(2))
  }
  return Math.min(
    end,
    Math.floor(start + ((end - start) * index) / count) + random.below(1_000_000),
  )
}

// Each user gets sessions of each type in turn.
function newSession(random: Random, subjects: readonly Subject[], index: number): Session {
  const subject = subjects[(index * 617) % subjects.length]
  if (!subject) throw new Error('there are no users')
  const type =
    (['live', 'lv2v', 'live', 'fixed'] as const)[
      (index + Math.floor(index / subjects.length)) % 4
    ] ?? 'live'
  return {
    subject,
    type,
    model: random.pick(['', ':streamdiffusion', ':flux']),
    id: random.hex(8),
    manifestId: `m-${random.hex(6)}`,
    price: priceOf(random, type),
    orchestrator: `https://orch-${random.below(9)}.example:8935/?a=1&b=<2>`,
    sequence: 0,
    signedAt: 0,
  }
}

// Always odd, so that a float would lose the last digit. Wei per second, per 7,000 pixels, or per
// call.
const priceOf = (random: Random, type: Session['type']): bigint =>
  2n *
    BigInt(random.below(100_000_000)) *
    (type === 'fixed' ? 20_001n : type === 'live' ? 3_000n : 7n) +
  1n

const pixelsPerSecond = 27_648_000

function sign(random: Random, session: Session, signedAt: number): Event & { kind: 'ticket' } {
  const first = session.sequence === 0
  const micros = first
    ? session.type === 'lv2v'
      ? 60_000_000
      : 10_000_000
    : Math.max(0, signedAt - session.signedAt)
  const billableNanos = BigInt(micros) * 1000n + (first ? 0n : BigInt(random.below(1000)))
  const pixels =
    session.type === 'lv2v' ? Math.floor((Number(billableNanos) / 1e9) * pixelsPerSecond) : 0
  const pipeline = { live: 'live', lv2v: 'live-video-to-video', fixed: 'fixed' }[session.type]
  const ticket: Ticket = {
    subject: session.subject,
    eventId: random.uuid(),
    signedAt,
    sessionId: session.id,
    sequence: session.sequence,
    pipeline,
    modelId: session.model.slice(1) || 'unknown',
    fee: feeOf(random, session, { billableNanos, pixels }),
    billableNanos,
    pixels,
  }
  const text = JSON.stringify({
    id: ticket.eventId,
    type: 'create_signed_ticket',
    timestamp: String(Math.floor(signedAt / 1000) + 8),
    gateway: '',
    data: dataOf(random, session, ticket),
  })
  session.sequence += 1
  session.signedAt = signedAt
  return { key: ticket.eventId, text, kind: 'ticket', ticket }
}

function feeOf(
  random: Random,
  session: Session,
  { billableNanos, pixels }: Pick<Ticket, 'billableNanos' | 'pixels'>,
): bigint {
  if (session.subject.heavy && random.chance(0.1))
    return 2n ** 53n + BigInt(random.below(2 ** 32)) * BigInt(random.below(2 ** 27)) + 1n
  if (session.type === 'fixed') return session.price
  if (session.type === 'lv2v') return (BigInt(pixels) * session.price) / 7_000n
  return ((billableNanos + 999_999_999n) / 1_000_000_000n) * session.price
}

function dataOf(random: Random, session: Session, ticket: Ticket) {
  const previous = session.sequence === 0 ? ticket.signedAt : session.signedAt
  return {
    app: session.type === 'fixed' ? 'acme/img2img' : '',
    auth_id: `${ticket.subject.clientId}:${ticket.subject.externalUserId}`,
    billable_secs: Number(ticket.billableNanos) / 1e9,
    computed_fee: String(ticket.fee),
    cost: `${session.price}.8571428571`,
    current_time: nanoText(ticket.signedAt, random.below(1000)),
    current_time_unix: Math.floor(ticket.signedAt / 1000),
    manifest_id: session.manifestId,
    num_tickets: 1 + random.below(3),
    orch_address: '0x5bE44e23041E93CDF9bCd5A0968524e104e38ae1',
    orch_url: session.orchestrator,
    pipeline: `${ticket.pipeline}${session.model}`,
    pixels: ticket.pixels,
    pm_session_id: `0x${random.hex(8)}${session.id.repeat(7)}`,
    previous_time: nanoText(previous, 0),
    previous_time_unix: Math.floor(previous / 1000),
    request_id: random.hex(8),
    sequence_number: ticket.sequence,
    session_balance: String(random.below(1_000_000)),
    session_id: ticket.sessionId,
    session_status: ticket.sequence === 0 ? 'new' : 'continuing',
  }
}

/** RFC 3339 with nanoseconds, as Go writes it: without trailing zeros. */
function nanoText(micros: number, nanos: number): string {
  const fraction =
    `${String(micros % 1_000_000).padStart(6, '0')}${String(nanos).padStart(3, '0')}`.replace(
      /0+$/,
      '',
    )
  return `${new Date(Math.floor(micros / 1_000_000) * 1000).toISOString().slice(0, 19)}${fraction && `.${fraction}`}Z`
}

function otherType(random: Random): Event {
  const id = random.uuid()
  const [type, data] = random.pick<[string, unknown]>([
    [
      'create_new_payment',
      {
        capability: '',
        clientIP: '',
        faceValue: '0.0005 ETH',
        numTickets: '1',
        requestID: random.hex(8),
      },
    ],
    [
      'discovery_results',
      [{ address: `0x${random.hex(8)}`, url: 'https://o2.example:8935', latency_ms: 12.5 }],
    ],
    ['stream_trace', { auth_id: 'acme:alice', computed_fee: '120000' }],
    ['network_capabilities', null],
  ])
  return {
    key: id,
    kind: 'ignored',
    text: JSON.stringify({ id, type, timestamp: '1789380930128', gateway: '', data }),
  }
}

const faults: readonly (readonly [reason: string, (text: string) => string])[] = [
  ['not_json', (text) => text.slice(0, -2)],
  ['duplicate_member', (text) => text.replace('{"id"', '{"gateway":"twice","id"')],
  ['no_id', (text) => text.replace(/"id":"[^"]*"/, '"id":""')],
  ['no_type', (text) => text.replace('"create_signed_ticket"', 'null')],
  ['invalid_data', (text) => text.replace(/"data":.*/, '"data":"{}"}')],
  ['invalid_fee', (text) => text.replace(/"computed_fee":"(\d+)"/, '"computed_fee":"$1.5"')],
  [
    'invalid_fee',
    (text) => text.replace(/"computed_fee":"\d+"/, '"computed_fee":9007199254740993'),
  ],
  ['invalid_time', (text) => text.replace(/"current_time":"[^"]*"/, '"current_time":"yesterday"')],
  ['time_out_of_range', (text) => text.replace(/"current_time":"20/, '"current_time":"19')],
  ['invalid_sequence', (text) => text.replace(/"sequence_number":\d+/, '"sequence_number":-1')],
  ['unattributed', (text) => text.replace(/"auth_id":"[^"]*"/, '"auth_id":""')],
  [
    'unknown_client',
    (text) => text.replace(/"auth_id":"app_[0-9a-f]{24}/, `"auth_id":"app_${'0'.repeat(24)}`),
  ],
  ['unknown_client', (text) => text.replace(/"auth_id":"app_[0-9a-f]{24}/, '"auth_id":"acme')],
]

function spoilt(random: Random, { key, text }: Event): Event {
  const [reason, spoil] = random.pick(faults)
  return { key, kind: 'unusable', reason, text: spoil(text) }
}
