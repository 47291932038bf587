import { type Meter, eventType, feature, meters, toPath } from '../catalog.ts'
import type { Dialect, MeterRecord } from './dialect.ts'
import { type Failure, type HttpAnswer, type HttpRequest, strange, toFailure } from './http.ts'

const conflict = 409

/** An existing meter or feature has this name but differs. Only an operator can resolve this. */
export interface Different {
  readonly kind: 'different'
  readonly why: string
}

interface MetersDeps {
  readonly http: (request: HttpRequest) => Promise<HttpAnswer>
  readonly dialect: Dialect
}

/** The meters of OpenMeter that this project counts by, and the feature of credits. */
export function createMeters({ http, dialect }: MetersDeps) {
  const ids = new Map<string, string>()

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
      if (id !== null) ids.set(meter.key, id)
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
    ids.set(meter.key, existing.id)
    return null
  }

  async function ensureFeature(
    signal: AbortSignal | undefined,
  ): Promise<Failure | Different | null> {
    const meter = { key: feature.meter, id: ids.get(feature.meter) ?? '' }
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

  /** Returns the id of a provisioned meter. */
  const idOf = (key: string): string | undefined => ids.get(key)

  return { provision, idOf }
}

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
