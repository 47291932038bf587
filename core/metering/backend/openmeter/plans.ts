import type { BackendPlan, RemoteId } from '../plans.ts'
import { type Request, readText } from './dialect.ts'
import {
  type HttpAnswer,
  type HttpRequest,
  type Failure,
  away,
  strange,
  toFailure,
} from './http.ts'
import {
  type FeatureIds,
  type PlanDialect,
  type PlanRecord,
  type VersionQuery,
  toContent,
} from './plan-dialect.ts'

const conflict = 409
const notFound = new Set([404, 410])
const featuresAtOnce = 4

export interface PlanClientDeps {
  readonly http: (request: HttpRequest) => Promise<HttpAnswer>
  readonly dialect: PlanDialect
  /** The meter that plans count; null until it is prepared. */
  readonly meter: () => { readonly key: string; readonly id: string } | null
}

/** Carries a failure out of a sync; never leaves this file. */
class PlanFailure extends Error {
  readonly failure: Failure
  constructor(failure: Failure) {
    super(failure.why)
    this.failure = failure
  }
}

/** The plans of OpenMeter. */
export function createPlanClient({ http, dialect, meter }: PlanClientDeps) {
  const { ensureFeatures } = createFeatures({ http, dialect, meter })

  /** Like `PlanCatalog.put`, but returns a failure instead of throwing. `save` may reject. */
  async function put(
    plan: BackendPlan,
    remote: RemoteId,
    signal: AbortSignal,
  ): Promise<{ readonly id: string } | Failure> {
    try {
      const version = await place({ plan, remote, signal })
      // Do not publish an active plan again: OpenMeter rejects that.
      if (version.status === 'draft') await send(dialect.publishPlan(version.id), signal)
      return { id: version.id }
    } catch (error) {
      return failureFrom(error)
    }
  }

  /**
   * Like `PlanCatalog.withdraw`. Searches by key, because a failed sync may have left a draft in
   * addition to the active version.
   */
  async function withdraw(key: string, signal: AbortSignal): Promise<Failure | null> {
    try {
      for (const { id } of await listVersions({ key, status: 'active' }, signal))
        await sendToVersion(dialect.archivePlan(id), signal)
      for (const { id } of await listVersions({ key, status: 'draft' }, signal))
        await sendToVersion(dialect.deletePlan(id), signal)
      return null
    } catch (error) {
      return failureFrom(error)
    }
  }

  const listVersions = async (query: VersionQuery, signal: AbortSignal): Promise<PlanRecord[]> =>
    dialect.readVersions(await send(dialect.findVersions(query), signal), query)

  /** Ignores a version that no longer exists. */
  async function sendToVersion(request: Request, signal: AbortSignal): Promise<void> {
    const failure = toFailure(await http({ ...request, signal }))
    if (failure && !notFound.has(failure.status ?? 0)) throw new PlanFailure(failure)
  }

  interface Sync {
    readonly plan: BackendPlan
    readonly remote: RemoteId
    readonly signal: AbortSignal
  }

  /** Returns the version that matches the plan: the existing one, updated, or a new one. */
  async function place(sync: Sync): Promise<PlanRecord> {
    const { plan, remote, signal } = sync
    const current = remote.id === null ? null : await findPlan(remote.id, signal)
    if (remote.id !== null && current === null) await remote.save(null)
    if (current && isWritten(current, plan)) return current
    const features = await ensureFeatures(plan, signal)
    const updated = current && (await update(current, plan, { features, signal }))
    return updated ?? createOrAdopt(sync, features)
  }

  /**
   * Adopts the draft of a sync that lost its response, because OpenMeter accepts no second draft.
   */
  async function createOrAdopt(
    { plan, remote, signal }: Sync,
    features: FeatureIds,
  ): Promise<PlanRecord> {
    const [draft] = await listVersions({ key: plan.key, status: 'draft' }, signal)
    if (draft) await remote.save(draft.id)
    const adopted =
      draft && (isWritten(draft, plan) ? draft : await update(draft, plan, { features, signal }))
    if (adopted) return adopted
    const body = await send(dialect.createPlan(plan, features), signal)
    const created = dialect.readPlan(body)
    if (!created) throw strangeAnswer('the answer to creating a plan')
    // Save before anything else can fail: a sync without the id would create another plan.
    await remote.save(created.id)
    return created
  }

  /**
   * Updates a version. Returns null if it cannot become the plan: it is immutable or deleted, or it
   * is a draft with another currency or cadence, which is removed.
   */
  async function update(
    { id, status, currency, cadence }: PlanRecord,
    plan: BackendPlan,
    { features, signal }: { readonly features: FeatureIds; readonly signal: AbortSignal },
  ): Promise<PlanRecord | null> {
    const isDraft = status === 'draft'
    if (currency !== plan.currency || cadence !== plan.cadence) {
      if (isDraft) await send(dialect.deletePlan(id), signal)
      return null
    }
    const answer = await http({ ...dialect.updatePlan(id, plan, features), signal })
    const failure = toFailure(answer)
    if (failure === null) {
      const updated = 'body' in answer ? dialect.readPlan(answer.body) : null
      if (updated) return updated
      throw strangeAnswer('the answer to updating a plan')
    }
    if (notFound.has(failure.status ?? 0) || isImmutable(failure, isDraft)) return null
    throw new PlanFailure(failure)
  }

  async function findPlan(id: string, signal: AbortSignal): Promise<PlanRecord | null> {
    const answer = await http({ ...dialect.findPlan(id), signal })
    const failure = toFailure(answer)
    if (failure && notFound.has(failure.status ?? 0)) return null
    if (failure) throw new PlanFailure(failure)
    return 'body' in answer ? dialect.readPlan(answer.body) : null
  }

  async function send(request: Request, signal: AbortSignal): Promise<unknown> {
    const answer = await http({ ...request, signal })
    const failure = toFailure(answer)
    if (failure) throw new PlanFailure(failure)
    return 'body' in answer ? answer.body : undefined
  }

  return { put, withdraw }
}

/** The features of OpenMeter that plans count. */
function createFeatures({ http, dialect, meter }: PlanClientDeps) {
  /** Returns the ids of the plan's features, and creates missing ones. */
  async function ensureFeatures(plan: BackendPlan, signal: AbortSignal): Promise<FeatureIds> {
    const ids = new Map<string, string>()
    const queue = plan.usage.values()
    await Promise.all(
      Array.from({ length: featuresAtOnce }, async () => {
        for (const { feature } of queue) ids.set(feature.key, await ensureFeature(feature, signal))
      }),
    )
    return ids
  }

  async function ensureFeature(
    feature: BackendPlan['usage'][number]['feature'],
    signal: AbortSignal,
  ): Promise<string> {
    const existing = await findFeature(feature.key, signal)
    if (existing !== null) return existing
    const counted = meter()
    if (!counted) throw new PlanFailure({ ...away, why: 'the meters are not prepared yet' })
    const answer = await http({ ...dialect.createUsageFeature(feature, counted), signal })
    const failure = toFailure(answer)
    // A conflict means that another process created it first.
    if (failure && failure.status !== conflict) throw new PlanFailure(failure)
    const id =
      failure === null && 'body' in answer
        ? readText(answer.body, 'id')
        : await findFeature(feature.key, signal)
    if (id === null) throw strangeAnswer(`the answer to creating the feature ${feature.key}`)
    return id
  }

  async function findFeature(key: string, signal: AbortSignal): Promise<string | null> {
    const answer = await http({ ...dialect.findUsageFeature(key), signal })
    const failure = toFailure(answer)
    if (failure?.status === 404) return null
    if (failure) throw new PlanFailure(failure)
    return 'body' in answer ? dialect.readFeatureId(answer.body, key) : null
  }

  return { ensureFeatures }
}

const isWritten = ({ content, status }: PlanRecord, plan: BackendPlan): boolean =>
  content === toContent(plan) && status !== 'archived'

function failureFrom(error: unknown): Failure {
  if (error instanceof PlanFailure) return error.failure
  throw error
}

/**
 * Only a draft can be changed, so the rejection of any other version means that it is immutable.
 */
const isImmutable = ({ kind, why }: Failure, isDraft: boolean): boolean =>
  kind === 'refused' && (!isDraft || /immutable/i.test(why))

const strangeAnswer = (what: string): PlanFailure => new PlanFailure(strange(what))
