import { randomBytes } from 'node:crypto'

/** The state of a fake OpenMeter, shared by both versions of its API. */

export interface FakeMeter {
  readonly id: string
  readonly key: string
  readonly eventType: string
  readonly aggregation: 'sum' | 'count'
  readonly valueProperty: string | undefined
  readonly dimensions: Readonly<Record<string, string>>
  readonly createdAt: string
}
export interface FakeFeature {
  readonly id: string
  readonly key: string
  readonly name: string
  readonly meterId: string
  readonly filters: Readonly<Record<string, unknown>>
  readonly createdAt: string
}
/** A version of a plan, created by either version of the API. */
export interface FakePlan {
  readonly id: string
  readonly key: string
  readonly version: number
  readonly currency: string
  readonly cadence: string
  /** The body of the last full replacement. */
  body: Readonly<Record<string, unknown>>
  status: 'draft' | 'active' | 'archived'
  readonly createdAt: string
  deletedAt?: string
}
export interface FakeCustomer {
  readonly id: string
  readonly key: string
  /** The body of the last full replacement. */
  body: Readonly<Record<string, unknown>>
  subjects: readonly string[]
  readonly createdAt: string
}
export interface FakeCredit {
  readonly id: string
  readonly customer: string
  readonly body: Readonly<Record<string, unknown>>
  readonly createdAt: string
}
export interface FakeSubscription {
  readonly id: string
  readonly customerId: string
  readonly customerKey: string
  readonly plan: FakePlan
  status: 'active' | 'inactive'
  readonly activeFrom: string
}
export interface FakeEvent {
  readonly id: string
  readonly source: string
  readonly type: string
  readonly subject: string
  readonly time: string
  readonly data: Readonly<Record<string, unknown>>
}

export interface Query {
  readonly from: Date | null
  readonly to: Date | null
  readonly window: 'minute' | 'hour' | 'day' | 'month' | null
  readonly groupBy: readonly string[]
  readonly filters: Readonly<Record<string, readonly string[]>>
}
export interface Sum {
  readonly value: number
  readonly from: string
  readonly to: string
  readonly groups: Readonly<Record<string, string>>
}

const alphabet = '0123456789ABCDEFGHJKMNPQRSTVWXYZ'
export const ulid = (): string =>
  `0${[...randomBytes(25)].map((byte) => alphabet[byte % 32]).join('')}`

export function createState() {
  const meters: FakeMeter[] = []
  const features: FakeFeature[] = []
  const customers: FakeCustomer[] = []
  const plans: FakePlan[] = []
  const credits: FakeCredit[] = []
  const subscriptions: FakeSubscription[] = []
  /** Keys of customers that have a metered entitlement, by feature. */
  const entitlements = new Set<string>()
  const events = new Map<string, FakeEvent>()
  let received = 0

  /** Stores events; counts an event with a known source and id only once. */
  function ingest(batch: readonly FakeEvent[]): void {
    for (const event of batch) {
      received++
      const key = `${event.source} ${event.id}`
      if (!events.has(key)) events.set(key, event)
    }
  }

  function matches(event: FakeEvent, meter: FakeMeter, { from, to, filters }: Query): boolean {
    const at = Date.parse(event.time)
    return (
      event.type === meter.eventType &&
      at >= (from?.getTime() ?? -Infinity) &&
      at < (to?.getTime() ?? Infinity) &&
      Object.entries(filters).every(([name, values]) =>
        values.includes(valueOf(meter, event, name)),
      )
    )
  }

  const valueIn = (event: FakeEvent, { aggregation, valueProperty = '' }: FakeMeter): number =>
    aggregation === 'count' ? 1 : Number(event.data[valueProperty.replace('$.', '')])

  function query(meter: FakeMeter, request: Query): Sum[] {
    const sums = new Map<
      string,
      { value: number; start: number; end: number; groups: Record<string, string> }
    >()
    for (const event of events.values()) {
      if (!matches(event, meter, request)) continue
      const [start, end] = windowOf(Date.parse(event.time), request)
      const groups = Object.fromEntries(
        request.groupBy.map((name) => [name, valueOf(meter, event, name)]),
      )
      const key = JSON.stringify([start, groups])
      const sum = sums.get(key) ?? { value: 0, start, end, groups }
      sum.value += valueIn(event, meter)
      sums.set(key, sum)
    }
    return [...sums.values()].map(({ value, start, end, groups }) => ({
      value,
      groups,
      from: new Date(start).toISOString(),
      to: new Date(end).toISOString(),
    }))
  }

  return {
    meters,
    features,
    customers,
    plans,
    credits,
    subscriptions,
    entitlements,
    events,
    ingest,
    query,
    get received() {
      return received
    },
  }
}

export type State = ReturnType<typeof createState>

const valueOf = (meter: FakeMeter, event: FakeEvent, name: string): string =>
  name === 'subject'
    ? event.subject
    : String(event.data[(meter.dimensions[name] ?? '').replace('$.', '')] ?? '')

function windowOf(at: number, { window, from, to }: Query): [number, number] {
  const day = new Date(at)
  const month = Date.UTC(day.getUTCFullYear(), day.getUTCMonth(), 1)
  if (window === null) return [from?.getTime() ?? 0, to?.getTime() ?? Date.UTC(2100, 0, 1)]
  if (window === 'month') return [month, Date.UTC(day.getUTCFullYear(), day.getUTCMonth() + 1, 1)]
  const length = { minute: 60_000, hour: 3_600_000, day: 86_400_000 }[window]
  return [Math.floor(at / length) * length, (Math.floor(at / length) + 1) * length]
}
