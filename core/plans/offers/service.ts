import { DomainError } from '../../../proto/errors.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import type { UsdAttos } from '../../lib/money.ts'
import { type Db, afterCommit, rollbackAfter, tx } from '../../lib/sql.ts'
import type { BillingCycle } from '../../lib/time.ts'
import type { SoldRates } from '../../metering/rating/port.ts'
import { type Actor, auditSuccess } from '../../shared/audit.ts'
import { type Clocks, realTime } from '../../shared/clocks/clocks.ts'
import { type AppId, isUuid } from '../../shared/ids.ts'
import type { Discovery } from '../catalog/discovery.ts'
import { lockCatalog } from '../catalog/store.ts'
import type { Shared } from '../../shared/shared.ts'
import {
  type Body,
  type BundleTerms,
  parseCapabilities,
  parseIncluded,
  parseName,
  parseStatus,
  parseTerms,
  refuseFlags,
  refuseUnknown,
} from './input.ts'
import { createNetworkPrice, newPlan } from './defaults.ts'
import { type Bundle, type Plan, type PlanStatus, type PlanTerms, freeTerms } from './plan.ts'
import { toRetailRate, retailRules } from '../terms.ts'
import * as store from './store.ts'
import { listVersions, noSuchPlan } from './versions.ts'

/** An app that is about to sell an active plan with a price. */
export interface Sale {
  readonly appId: AppId
}

/** Activation gate: throws its refusal when the app may not sell for money. */
export interface Selling {
  require(db: Db, sale: Sale): Promise<void>
  /** Throws CONFLICT if users could not reach the threshold, because their debt has a lower ceiling. */
  requireThreshold(db: Db, app: AppId, threshold: UsdAttos): Promise<void>
}

export interface OffersDeps extends Pick<Shared, 'pool' | 'now'> {
  readonly discovery: Discovery
  readonly selling: Selling
  /** Counts users with a current or scheduled subscription on the plan. */
  readonly countSubscribers: (db: Db, plan: Pick<Plan, 'appId' | 'id'>) => Promise<number>
  /** Called with the app after its Starter's included amount has changed. */
  readonly onStarterChange: (app: AppId) => Promise<void>
  readonly clocks?: Clocks
}

/** Terms that a plan would have. */
export interface PlanDraft {
  readonly name: string
  /** Per period, in atto-dollars. */
  readonly included: bigint
  readonly cycle: BillingCycle
  /** Ratio of retail to network price, scaled by 10^18. */
  readonly ratioOf: SoldRates['ratioOf']
}

/** A parsed plan request. */
interface Draft {
  readonly name: string
  readonly status: PlanStatus
  readonly terms: Omit<PlanTerms, 'bundles'> & { readonly bundles: readonly BundleTerms[] }
}

const plansMax = 2_000
/** Limit for all plans of an app together, so that its list fits into one message. */
const capabilitiesMax = 20_000

/** The plans of an app: those that its owner sells, and the two defaults. */
export function createOffers({
  pool,
  discovery,
  selling,
  countSubscribers,
  onStarterChange,
  clocks = realTime,
  now,
}: OffersDeps) {
  const timeOf = (db: Db, app: AppId): Promise<Date> => clocks.timeOf(db, app, now())

  /** Lists the app's plans. Creates Network Price for an app that is older than this plan. */
  async function list(app: AppId): Promise<Plan[]> {
    const plans = await store.findPlans(pool, { appId: app, planId: null })
    if (plans.some(({ isNetworkDefault }) => isNetworkDefault)) return plans
    await tx(pool, async (db) => createNetworkPrice(db, app, await timeOf(db, app)))
    return store.findPlans(pool, { appId: app, planId: null })
  }

  /** Version of the list; differs after every change. */
  const version = (app: AppId): Promise<string> => store.listVersion(pool, app)
  const versions = (app: AppId, planId: string): Promise<Plan[]> => listVersions(pool, app, planId)

  /**
   * Creates a plan. Checks run in the order of docs/plans.md; the last is CONFLICT when another
   * plan has the name.
   */
  async function create(app: AppId, body: Body, actor: Actor): Promise<Plan> {
    return tx(pool, async (db) => {
      await lockCatalog(db, app)
      const draft = await draftOf(discovery, db, { app, body, current: null })
      await requireSale(selling, db, { app, draft })
      await requireRoom(db, { app, planId: null, draft })
      const at = await timeOf(db, app)
      const plan = { ...newPlan(app, draft.name, at), status: draft.status }
      const terms = { ...draft.terms, bundles: withIds(draft.terms.bundles, [], at) }
      if (!(await store.insertPlan(db, plan, { terms, at }))) throw nameConflict(draft.name)
      await note(db, { app, actor, action: 'plan_created' }, { planId: plan.id, name: draft.name })
      return own(db, { appId: app, planId: plan.id })
    })
  }

  /**
   * Changes the members in the body. A change of terms creates a version. Throws NOT_FOUND for an
   * unknown plan.
   */
  async function update(app: AppId, body: Body, actor: Actor): Promise<Plan> {
    const planId = parseId(body['id'], 'id')
    return tx(pool, async (db) => {
      const current = await lockOwn(db, { appId: app, planId })
      requireChangeable(current)
      const draft = await draftOf(discovery, db, { app, body, current })
      await requireSale(selling, db, { app, draft })
      await requireRoom(db, { app, planId, draft })
      await save(db, { current, draft })
      await note(db, { app, actor, action: 'plan_updated' }, { planId, name: draft.name })
      return own(db, { appId: app, planId })
    })
  }

  async function save(db: Db, { current, draft }: { current: Plan; draft: Draft }): Promise<void> {
    // No two versions share an instant, because a raise of Starter is identified by the time of its
    // version.
    const at = latest(
      await timeOf(db, current.appId),
      new Date(current.newest.createdAt.getTime() + 1),
    )
    const bundles = withIds(draft.terms.bundles, current.newest.bundles, at)
    const terms = { ...draft.terms, bundles }
    const plan = { ...current, name: draft.name, status: draft.status }
    if (!(await store.updatePlan(db, plan, { terms, at }))) throw nameConflict(draft.name)
    if (termsText(terms) === termsText(current.newest)) return
    await store.insertVersion(db, plan, { version: current.newest.version + 1, terms, at })
  }

  /** Throws CONFLICT, with the number of subscribers, while users are on the plan. */
  async function remove(app: AppId, planIdText: unknown, actor: Actor): Promise<void> {
    const planId = parseId(planIdText, 'planId')
    await tx(pool, async (db) => {
      const plan = await lockOwn(db, { appId: app, planId })
      if (plan.isNetworkDefault || plan.isStarterDefault)
        throw new DomainError('CONFLICT', `the ${plan.name} plan cannot be deleted`)
      const activeSubscribers = await countSubscribers(db, plan)
      if (activeSubscribers > 0)
        throw new DomainError(
          'CONFLICT',
          `${activeSubscribers} ${activeSubscribers === 1 ? 'user is' : 'users are'} on this plan; move them to another one first, or make it inactive`,
          { members: { activeSubscribers } },
        )
      await store.deletePlan(db, plan, await timeOf(db, app))
      await note(db, { app, actor, action: 'plan_deleted' }, { planId, name: plan.name })
    })
  }

  /** Returns the plan for new users. */
  async function starter(app: AppId): Promise<Plan> {
    const plans = await store.findPlans(pool, { appId: app, planId: null })
    const plan = plans.find(({ isStarterDefault }) => isStarterDefault)
    if (!plan) throw new Error('an app without a Starter plan')
    return plan
  }

  /**
   * Changes Starter's included amount by a new version. docs/subscriptions.md defines when users get
   * it.
   */
  async function setStarter(app: AppId, body: Body, actor: Actor): Promise<Plan> {
    const { includedUsdMicros } = body
    if (includedUsdMicros === undefined || includedUsdMicros === null)
      throw new DomainError('REQUEST_INVALID', 'includedUsdMicros is required')
    const included = parseIncluded(includedUsdMicros, null)
    requireStarterMembers(body)
    const { id: planId } = await starter(app)
    return tx(pool, async (db) => {
      const current = await lockOwn(db, { appId: app, planId })
      await save(db, { current, draft: { ...current, terms: { ...current.newest, included } } })
      const details = { planId, includedUsdMicros: String(includedUsdMicros) }
      await note(db, { app, actor, action: 'starter_plan_updated' }, details)
      await afterCommit(db, () => onStarterChange(app))
      return own(db, { appId: app, planId })
    })
  }

  /**
   * Parses plans without creating them, by the rules of `create` except the activation gate.
   * Changes nothing. An error names the plan it is about.
   */
  async function drafts(app: AppId, bodies: readonly Body[]): Promise<PlanDraft[]> {
    return rollbackAfter(pool, async (db) => {
      const drafts: PlanDraft[] = []
      for (const [index, body] of bodies.entries()) {
        const draft = await draftOf(discovery, db, { app, body, current: null }).catch(
          atPlan(index),
        )
        drafts.push(planDraft(draft, now()))
      }
      return drafts
    })
  }

  async function note(
    db: Db,
    { app, actor, action }: { app: AppId; actor: Actor; action: string },
    details: Readonly<Record<string, string>>,
  ): Promise<void> {
    await auditSuccess(db, { appId: app, actor, action, details, at: now() })
  }

  return { list, version, versions, create, update, remove, starter, setStarter, drafts }
}

export type Offers = ReturnType<typeof createOffers>

async function draftOf(
  discovery: OffersDeps['discovery'],
  db: Db,
  { app, body, current }: { app: AppId; body: Body; current: Plan | null },
): Promise<Draft> {
  const isNamed = current === null || body['name'] !== undefined
  const name = isNamed ? parseName(body['name'], { current: current?.name ?? null }) : current.name
  refuseFlags(body)
  const capabilities = parseCapabilities(body)
  await discovery.require(db, app, capabilities ?? [])
  const terms = parseTerms(body, { current, capabilities })
  const status = parseStatus(body['status'], current?.status ?? 'active')
  refuseUnknown(body, capabilities ?? [])
  return { name, status, terms }
}

async function requireSale(
  selling: OffersDeps['selling'],
  db: Db,
  { app, draft }: { app: AppId; draft: Draft },
): Promise<void> {
  const { status, terms } = draft
  if (terms.chargeThreshold !== null) await selling.requireThreshold(db, app, terms.chargeThreshold)
  if (status === 'active' && hasPrice(terms)) await selling.require(db, { appId: app })
}

const planDraft = ({ name, terms }: Draft, at: Date): PlanDraft => {
  const rules = retailRules({ ...terms, bundles: withIds(terms.bundles, [], at) })
  return {
    name,
    included: terms.included ?? 0n,
    cycle: terms.billingCycle,
    ratioOf: (feature) => toRetailRate({ rules }, feature).rate,
  }
}

const atPlan =
  (index: number) =>
  (error: unknown): never => {
    if (!(error instanceof DomainError)) throw error
    const { reason, message, members } = error
    throw new DomainError(reason, `plans[${index}]: ${message}`, { members, cause: error })
  }

const hasPrice = ({ priceAmount }: Pick<PlanTerms, 'priceAmount'>): boolean =>
  /[1-9]/.test(priceAmount)

const latest = (a: Date, b: Date): Date => (a > b ? a : b)

/** Throws CONFLICT when the app would exceed its limits. */
async function requireRoom(
  db: Db,
  { app, planId, draft }: { app: AppId; planId: string | null; draft: Draft },
): Promise<void> {
  const others = await store.countOthers(db, app, planId)
  if (planId === null && others.plans >= plansMax)
    throw new DomainError('CONFLICT', `an app may have ${plansMax} plans`)
  if (others.capabilities + draft.terms.bundles.length > capabilitiesMax)
    throw new DomainError(
      'CONFLICT',
      `the plans of an app may have ${capabilitiesMax} capabilities together`,
    )
}

/** Keeps the ids of bundles for pipelines and models that the plan already had. */
const withIds = (bundles: readonly BundleTerms[], before: readonly Bundle[], at: Date): Bundle[] =>
  bundles.map((bundle) => {
    const same = before.find(
      ({ pipeline, modelId }) => pipeline === bundle.pipeline && modelId === bundle.modelId,
    )
    return { ...bundle, id: same?.id ?? uuidV7(at.getTime()) }
  })

/** Text for comparing terms: equal texts mean equal terms. */
function termsText(terms: PlanTerms): string {
  const names = Object.keys(freeTerms)
  return JSON.stringify(
    sorted(Object.entries(terms).filter(([name]) => names.includes(name))),
    texts,
  )
}

const sorted = (members: readonly [string, unknown][]): [string, unknown][] =>
  members.toSorted(([a], [b]) => (a < b ? -1 : 1))

/** Writes a bigint as digits and sorts the members of objects by name. */
function texts(_: string, value: unknown): unknown {
  if (typeof value === 'bigint') return value.toString()
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  return sorted(Object.entries(value))
}

/** Returns the plan. Blocks changes to the app's plans and manifest until the transaction ends. */
async function lockOwn(db: Db, plan: { appId: AppId; planId: string }): Promise<Plan> {
  await lockCatalog(db, plan.appId)
  const locked = isUuid(plan.planId) ? await store.lockPlan(db, plan) : null
  if (!locked) throw noSuchPlan()
  return locked
}

async function own(db: Db, plan: { appId: AppId; planId: string }): Promise<Plan> {
  const [known] = isUuid(plan.planId) ? await store.findPlans(db, plan) : []
  if (!known) throw noSuchPlan()
  return known
}

function parseId(value: unknown, field: string): string {
  if (typeof value === 'string' && value !== '') return value
  throw new DomainError('REQUEST_INVALID', `${field} is required`)
}

function requireChangeable(plan: Plan): void {
  if (plan.isNetworkDefault)
    throw new DomainError('REQUEST_INVALID', 'the Network Price default plan cannot be changed')
  if (plan.isStarterDefault)
    throw new DomainError(
      'REQUEST_INVALID',
      'the Starter plan is changed by PUT /api/v1/apps/{clientId}/starter-plan',
    )
}

function requireStarterMembers(body: Body): void {
  const unknown = Object.keys(body).find((name) => name !== 'includedUsdMicros' && name !== 'id')
  if (unknown !== undefined)
    throw new DomainError(
      'REQUEST_INVALID',
      `unknown field ${unknown.slice(0, 64)}; the Starter plan has only includedUsdMicros`,
    )
}

const nameConflict = (name: string): DomainError =>
  new DomainError('CONFLICT', `the app has a plan named ${name}`)
