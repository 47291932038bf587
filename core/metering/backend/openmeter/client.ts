import type { Now } from '../../../lib/time.ts'
import type { Customer, GrantedCredit, MeterQuery, MeterRow } from '../backend.ts'
import type { Subscriber } from '../subscribers.ts'
import { type Meter, eventType, feature, meters, toPath } from '../catalog.ts'
import type { OpenMeterConfig } from '../config.ts'
import { createCreditsV1, createCreditsV3 } from './credits.ts'
import type { CustomerRecord, MeterRecord } from './dialect.ts'
import { v1 } from './dialect-v1.ts'
import { v3 } from './dialect-v3.ts'
import { createSubscriptionClient, subscriptionsV1, subscriptionsV3 } from './subscriptions.ts'
import { createPlanClient } from './plans.ts'
import { plansV1, plansV3 } from './plan-dialect.ts'
import { type Failure, createHttp, toFailure } from './http.ts'

const conflict = 409

/** An existing meter or feature has this name but differs. Only an operator can resolve this. */
export interface Different {
  readonly kind: 'different'
  readonly why: string
}

/**
 * OpenMeter over plain HTTP, in the API version that its address names. Functions return a failure,
 * with a reason for operators, instead of throwing.
 */
export function createOpenMeterClient(config: OpenMeterConfig, now: Now) {
  const http = createHttp(config)
  const isV3 = config.url.endsWith('/v3')
  const dialect = isV3 ? v3 : v1
  const meterIds = new Map<string, string>()
  const createCredit = isV3 ? createCreditsV3(http, requireCustomer) : createCreditsV1(http, now)
  const plans = createPlanClient({ http, dialect: isV3 ? plansV3 : plansV1, meter: countedMeter })
  const subscriptions = createSubscriptionClient({
    http,
    dialect: isV3 ? subscriptionsV3 : subscriptionsV1,
    findCustomer: requireCustomer,
  })

  function countedMeter() {
    const id = meterIds.get(feature.meter)
    return id === undefined ? null : { key: feature.meter, id }
  }

  /**
   * Sends events, each the JSON text of a CloudEvent. Returns null if all were accepted; after a
   * failure, possibly none was.
   */
  async function ingest(events: readonly string[], signal?: AbortSignal): Promise<Failure | null> {
    return toFailure(
      await http({
        method: 'POST',
        path: dialect.eventsPath,
        contentType: 'application/cloudevents-batch+json',
        signal,
        text: `[${events.join(',')}]`,
      }),
    )
  }

  /** Creates missing meters and the feature, and checks existing ones; null if all match. */
  async function provision(signal?: AbortSignal): Promise<Failure | Different | null> {
    for (const meter of meters) {
      const problem = await ensureMeter(meter, signal)
      if (problem) return problem
    }
    return ensureFeature(signal)
  }

  async function ensureMeter(
    meter: Meter,
    signal: AbortSignal | undefined,
  ): Promise<Failure | Different | null> {
    const existing = await findMeter(meter.key, signal)
    if (existing !== null) return 'why' in existing ? existing : register(meter, existing)
    const created = await http({ ...dialect.createMeter(meter), signal })
    const failure = toFailure(created)
    if (failure === null && 'body' in created) {
      const id = dialect.createdMeter(created.body)
      if (id !== null) meterIds.set(meter.key, id)
      return id === null ? strange(`the answer to creating the meter ${meter.key}`) : null
    }
    return failure?.status === conflict ? adoptMeter(meter, signal) : failure
  }

  /** Adopts a meter that another process created at the same time. */
  async function adoptMeter(
    meter: Meter,
    signal: AbortSignal | undefined,
  ): Promise<Failure | Different | null> {
    const existing = await findMeter(meter.key, signal)
    if (existing === null)
      return { kind: 'different', why: `the meter ${meter.key} exists but cannot be read` }
    return 'why' in existing ? existing : register(meter, existing)
  }

  async function findMeter(
    key: string,
    signal: AbortSignal | undefined,
  ): Promise<MeterRecord | Failure | null> {
    const answer = await http({ ...dialect.findMeter(key), signal })
    const failure = toFailure(answer)
    if (failure) return failure.status === 404 ? null : failure
    return 'body' in answer ? dialect.readMeter(answer.body, key) : null
  }

  /** Stores the id of an existing meter, unless it differs from ours. */
  function register(meter: Meter, existing: MeterRecord): Different | null {
    const why = differenceOf(meter, existing)
    if (why !== null)
      return {
        kind: 'different',
        why: `the meter ${meter.key} exists but ${why}; rename or remove it`,
      }
    meterIds.set(meter.key, existing.id)
    return null
  }

  async function ensureFeature(
    signal: AbortSignal | undefined,
  ): Promise<Failure | Different | null> {
    const meter = { key: feature.meter, id: meterIds.get(feature.meter) ?? '' }
    const different: Different = {
      kind: 'different',
      why: `the feature ${feature.key} exists but counts another meter than ${meter.key}`,
    }
    const listed = await http({ ...dialect.findFeature(feature.key, meter), signal })
    const unlisted = toFailure(listed)
    if (unlisted) return unlisted
    const existing = 'body' in listed ? dialect.readFeature(listed.body, feature.key) : null
    if (existing) return dialect.isOf(existing, meter) ? null : different
    const failure = toFailure(await http({ ...dialect.createFeature(feature, meter), signal }))
    if (failure?.status !== conflict) return failure
    const again = await http({ ...dialect.findFeature(feature.key, meter), signal })
    const now = 'body' in again ? dialect.readFeature(again.body, feature.key) : null
    return now && dialect.isOf(now, meter) ? null : different
  }

  /**
   * Creates the customer, or ensures that the existing one with this key gets its usage; changes
   * nothing else.
   */
  async function ensureCustomer(customer: Customer, signal?: AbortSignal): Promise<Failure | null> {
    const created = toFailure(await http({ ...dialect.createCustomer(customer), signal }))
    if (created?.status !== conflict) return created
    const existing = await findCustomer(customer.key, signal)
    if (existing && 'why' in existing) return existing
    if (!existing)
      return { ...created, why: `another customer has the key or the subject ${customer.key}` }
    if (existing.subjects.includes(customer.key)) return null
    return toFailure(await http({ ...dialect.attribute(existing, customer.key), signal }))
  }

  async function findCustomer(
    key: string,
    signal: AbortSignal | undefined,
  ): Promise<CustomerRecord | Failure | null> {
    const answer = await http({ ...dialect.findCustomer(key), signal })
    const failure = toFailure(answer)
    if (failure && failure.status !== 404) return failure
    return 'body' in answer ? dialect.readCustomer(answer.body, key) : null
  }

  async function requireCustomer(key: string, signal: AbortSignal) {
    return (await findCustomer(key, signal)) ?? strange(`the answer to reading the customer ${key}`)
  }

  /** Creates a credit once, after its customer. */
  const grantCredit = async (credit: GrantedCredit, signal: AbortSignal): Promise<Failure | null> =>
    (await ensureCustomer(credit.customer, signal)) ?? createCredit(credit, signal)

  /**
   * Creates the customer, then makes the user's subscription match. May reject, like
   * `Subscriber.offer`.
   */
  const subscribe = async (
    customer: Customer,
    subscriber: Pick<Subscriber, 'planKey' | 'offer'>,
    signal: AbortSignal,
  ): Promise<Failure | null> =>
    (await ensureCustomer(customer, signal)) ?? subscriptions.place(customer, subscriber, signal)

  /**
   * Returns the sums of a meter. Drops rows of other apps or users, which a server returns if it
   * does not know a filter.
   */
  async function queryMeter(
    query: MeterQuery,
    signal?: AbortSignal,
  ): Promise<MeterRow[] | Failure> {
    const id = meterIds.get(query.meter)
    if (id === undefined)
      return {
        kind: 'away',
        why: 'the meters are not prepared yet',
        status: null,
        retryAfterMs: undefined,
      }
    const grouped = { ...query, groupBy: groupByOwner(query) }
    const answer = await http({ ...dialect.queryMeter({ key: query.meter, id }, grouped), signal })
    const failure = toFailure(answer)
    if (failure) return failure
    const rows = 'body' in answer ? dialect.readRows(answer.body) : null
    return (
      rows?.filter((row) => isOwn(query, row)) ?? strange(`the answer to a query of ${query.meter}`)
    )
  }

  return { ingest, provision, ensureCustomer, grantCredit, subscribe, queryMeter, plans }
}

/** Returns the grouping of a query, plus the dimensions that identify each row's owner. */
const groupByOwner = ({ clientId, customerKey, groupBy }: MeterQuery): MeterQuery['groupBy'] => [
  ...new Set([
    ...groupBy,
    ...(clientId === null ? [] : ['client_id' as const]),
    ...(customerKey === undefined ? [] : ['subject' as const]),
  ]),
]

const isOwn = ({ clientId, customerKey }: MeterQuery, row: MeterRow): boolean =>
  (clientId === null || row.groupBy['client_id'] === clientId) &&
  (customerKey === undefined || row.subject === customerKey)

const strange = (what: string): Failure => ({
  kind: 'broken',
  why: `${what} is not a response of OpenMeter; check OPENMETER_URL`,
  status: null,
  retryAfterMs: undefined,
})

/**
 * Describes how an existing meter differs from ours; null if it does not. Additional dimensions are
 * harmless.
 */
function differenceOf(meter: Meter, existing: MeterRecord): string | null {
  if (existing.eventType !== eventType) return `it counts ${existing.eventType} events`
  const aggregation = meter.sums === null ? 'count' : 'sum'
  if (existing.aggregation !== aggregation)
    return `its aggregation is ${existing.aggregation}, not ${aggregation}`
  if (meter.sums !== null && existing.valueProperty !== toPath(meter.sums))
    return `it sums ${existing.valueProperty ?? 'nothing'}, not ${toPath(meter.sums)}`
  const missing = meter.dimensions.filter((name) => existing.groupBy[name] !== toPath(name))
  return missing.length === 0 ? null : `it lacks the dimensions ${missing.join(', ')}`
}
