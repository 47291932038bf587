import type { Now } from '../../../lib/time.ts'
import type { Customer, GrantedCredit, MeterQuery, MeterRow } from '../backend.ts'
import type { Subscriber } from '../subscribers.ts'
import { feature } from '../catalog.ts'
import type { OpenMeterConfig } from '../config.ts'
import { createCreditsV1, createCreditsV3 } from './credits.ts'
import type { CustomerRecord } from './dialect.ts'
import { v1 } from './dialect-v1.ts'
import { v3 } from './dialect-v3.ts'
import { createSubscriptionClient, subscriptionsV1, subscriptionsV3 } from './subscriptions.ts'
import { createPlanClient } from './plans.ts'
import { plansV1, plansV3 } from './plan-dialect.ts'
import { type Failure, away, createHttp, strange, toFailure } from './http.ts'
import { createMeters } from './meters.ts'

const conflict = 409

/**
 * OpenMeter over plain HTTP, in the API version that its address names. Functions return a failure,
 * with a reason for operators, instead of throwing.
 */
export function createOpenMeterClient(config: OpenMeterConfig, now: Now) {
  const http = createHttp(config)
  const isV3 = config.url.endsWith('/v3')
  const dialect = isV3 ? v3 : v1
  const { provision, idOf } = createMeters({ http, dialect })
  const createCredit = isV3 ? createCreditsV3(http, requireCustomer) : createCreditsV1(http, now)
  const plans = createPlanClient({ http, dialect: isV3 ? plansV3 : plansV1, meter: countedMeter })
  const subscriptions = createSubscriptionClient({
    http,
    dialect: isV3 ? subscriptionsV3 : subscriptionsV1,
    findCustomer: requireCustomer,
  })

  function countedMeter() {
    const id = idOf(feature.meter)
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
    const id = idOf(query.meter)
    if (id === undefined) return { ...away, why: 'the meters are not prepared yet' }
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
