import type { Customer, MeterQuery, MeterRow } from '../backend.ts'
import { type Meter, eventType, feature, meters, pathOf } from '../catalog.ts'
import type { OpenMeterConfig } from '../config.ts'
import type { FoundMeter } from './dialect.ts'
import { v1 } from './dialect-v1.ts'
import { v3 } from './dialect-v3.ts'
import { type Failure, createHttp, failureOf } from './http.ts'

const conflict = 409

/** What is there already and is something else; only a person can decide what becomes of it. */
export interface Different {
  readonly kind: 'different'
  readonly why: string
}

/**
 * OpenMeter over plain HTTP, in the version that its address names. Nothing throws: what goes wrong is returned, with
 * a reason for people.
 */
export function createOpenMeterClient(config: OpenMeterConfig) {
  const http = createHttp(config)
  const dialect = config.url.endsWith('/v3') ? v3 : v1
  const meterIds = new Map<string, string>()

  /** Sends events, each the JSON text of a CloudEvent. All of them are taken or, on a failure, perhaps none. */
  async function ingest(events: readonly string[], signal?: AbortSignal): Promise<Failure | null> {
    return failureOf(
      await http({
        method: 'POST',
        path: dialect.eventsPath,
        contentType: 'application/cloudevents-batch+json',
        signal,
        text: `[${events.join(',')}]`,
      }),
    )
  }

  /** Creates what is missing of meters and the feature and checks what is there; null when all of it is as it should. */
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
    const found = await findMeter(meter.key, signal)
    if (found !== null && 'why' in found) return found
    if (found !== null) return checked(meter, found)
    const created = await http({ ...dialect.createMeter(meter), signal })
    const failure = failureOf(created)
    if (failure === null && 'body' in created) {
      const id = dialect.createdMeter(created.body)
      if (id !== null) meterIds.set(meter.key, id)
      return id === null ? strange(`the answer to creating the meter ${meter.key}`) : null
    }
    if (failure?.status !== conflict) return failure
    // Somebody else was faster.
    const other = await findMeter(meter.key, signal)
    if (other !== null && 'why' in other) return other
    return other === null
      ? { kind: 'different', why: `the meter ${meter.key} exists but cannot be read` }
      : checked(meter, other)
  }

  async function findMeter(
    key: string,
    signal: AbortSignal | undefined,
  ): Promise<FoundMeter | Failure | null> {
    const answer = await http({ ...dialect.findMeter(key), signal })
    const failure = failureOf(answer)
    if (failure) return failure.status === 404 ? null : failure
    return 'body' in answer ? dialect.readMeter(answer.body, key) : null
  }

  function checked(meter: Meter, found: FoundMeter): Different | null {
    const why = differenceOf(meter, found)
    if (why !== null)
      return {
        kind: 'different',
        why: `the meter ${meter.key} is there but ${why}; rename or remove it`,
      }
    meterIds.set(meter.key, found.id)
    return null
  }

  async function ensureFeature(
    signal: AbortSignal | undefined,
  ): Promise<Failure | Different | null> {
    const meter = { key: feature.meter, id: meterIds.get(feature.meter) ?? '' }
    const different: Different = {
      kind: 'different',
      why: `the feature ${feature.key} is there but counts another meter than ${meter.key}`,
    }
    const found = await http({ ...dialect.findFeature(feature.key, meter), signal })
    const missing = failureOf(found)
    if (missing) return missing
    const there = 'body' in found ? dialect.readFeature(found.body, feature.key) : null
    if (there) return dialect.isOf(there, meter) ? null : different
    const failure = failureOf(await http({ ...dialect.createFeature(feature, meter), signal }))
    if (failure?.status !== conflict) return failure
    const again = await http({ ...dialect.findFeature(feature.key, meter), signal })
    const now = 'body' in again ? dialect.readFeature(again.body, feature.key) : null
    return now && dialect.isOf(now, meter) ? null : different
  }

  /** Creates the customer, or makes sure that the one of this key gets its usage; nothing else of it is changed. */
  async function ensureCustomer(customer: Customer, signal?: AbortSignal): Promise<Failure | null> {
    const created = failureOf(await http({ ...dialect.createCustomer(customer), signal }))
    if (created?.status !== conflict) return created
    const answer = await http({ ...dialect.findCustomer(customer.key), signal })
    const failure = failureOf(answer)
    if (failure && failure.status !== 404) return failure
    const found = 'body' in answer ? dialect.readCustomer(answer.body, customer.key) : null
    if (!found)
      return { ...created, why: `another customer has the key or the subject ${customer.key}` }
    if (found.subjects.includes(customer.key)) return null
    return failureOf(await http({ ...dialect.attribute(found, customer.key), signal }))
  }

  /** The sums of a meter. What a server answers of other apps or users, because it does not know a filter, is left out. */
  async function queryMeter(
    asked: MeterQuery,
    signal?: AbortSignal,
  ): Promise<MeterRow[] | Failure> {
    const id = meterIds.get(asked.meter)
    if (id === undefined)
      return {
        kind: 'away',
        why: 'the meters are not prepared yet',
        status: null,
        retryAfterMs: undefined,
      }
    const query = { ...asked, groupBy: telling(asked) }
    const answer = await http({ ...dialect.queryMeter({ key: query.meter, id }, query), signal })
    const failure = failureOf(answer)
    if (failure) return failure
    const rows = 'body' in answer ? dialect.readRows(answer.body) : null
    return (
      rows?.filter((row) => isMeant(asked, row)) ??
      strange(`the answer to a query of ${query.meter}`)
    )
  }

  return { ingest, provision, ensureCustomer, queryMeter }
}

/** What to group by so that rows tell whose they are. */
const telling = ({ clientId, customerKey, groupBy }: MeterQuery): MeterQuery['groupBy'] => [
  ...new Set([
    ...groupBy,
    ...(clientId === null ? [] : ['client_id' as const]),
    ...(customerKey === undefined ? [] : ['subject' as const]),
  ]),
]

const isMeant = ({ clientId, customerKey }: MeterQuery, row: MeterRow): boolean =>
  (clientId === null || row.groupBy['client_id'] === clientId) &&
  (customerKey === undefined || row.subject === customerKey)

const strange = (what: string): Failure => ({
  kind: 'broken',
  why: `${what} is not what OpenMeter answers; check OPENMETER_URL`,
  status: null,
  retryAfterMs: undefined,
})

/** What of a meter that is there is not as it should be; null when nothing is. More dimensions do no harm. */
function differenceOf(meter: Meter, found: FoundMeter): string | null {
  if (found.eventType !== eventType) return `counts ${found.eventType} events`
  const aggregation = meter.sums === null ? 'count' : 'sum'
  if (found.aggregation !== aggregation)
    return `its aggregation is ${found.aggregation}, not ${aggregation}`
  if (meter.sums !== null && found.valueProperty !== pathOf(meter.sums))
    return `it sums ${found.valueProperty ?? 'nothing'}, not ${pathOf(meter.sums)}`
  const missing = meter.dimensions.filter((name) => found.groupBy[name] !== pathOf(name))
  return missing.length === 0 ? null : `it lacks the dimensions ${missing.join(', ')}`
}
