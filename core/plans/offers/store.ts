import { type UsdAttos, formatDecimal18, parseDecimal18, usdAttos } from '../../lib/money.ts'
import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import type { BillingCycle } from '../../lib/time.ts'
import { type AppId, appId } from '../../shared/ids.ts'
import { chainPrice, versionItem } from '../prices/chain.ts'
import {
  type Bundle,
  type Plan,
  type PlanStatus,
  type PlanTerms,
  type PlanType,
  type PlanVersion,
  nameKey,
} from './plan.ts'

/** Writes plans, plan_versions and plan_bundles. */

export type NewPlan = Omit<Plan, 'newest' | 'createdAt' | 'updatedAt'>

/**
 * Inserts a plan with its first version. Returns false when the app has a plan with that name, or
 * another plan of that kind.
 */
export async function insertPlan(
  db: Db,
  plan: NewPlan,
  { terms, at }: { terms: PlanTerms; at: Date },
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    insert into plans (app_id, id, name, name_key, type, status, is_starter_default, is_network_default, billing_cycle,
                       created_at, updated_at)
    values (${plan.appId}, ${plan.id}, ${plan.name}, ${nameKey(plan.name)}, ${terms.type}, ${plan.status},
            ${plan.isStarterDefault}, ${plan.isNetworkDefault}, ${terms.billingCycle}, ${at}, ${at})
    on conflict do nothing`)
  if (rowCount !== 1) return false
  await insertVersion(db, plan, { version: 1, terms, at })
  return true
}

/** Inserts the next version of a plan with its bundles, and its item in the price chain. */
export async function insertVersion(
  db: Db,
  plan: { readonly appId: AppId; readonly id: string },
  { version, terms, at }: { version: number; terms: PlanTerms; at: Date },
): Promise<void> {
  await db.query(sql`
    insert into plan_versions (app_id, plan_id, version, type, price_amount, price_currency, included_attos, included_units,
                               overage_rate_wei, retail_rate, billing_cycle, charge_threshold_attos, created_at)
    values (${plan.appId}, ${plan.id}, ${version}, ${terms.type}, ${terms.priceAmount}, ${terms.priceCurrency},
            ${terms.included}, ${terms.includedUnits}, ${terms.overageRateWei}, ${rateText(terms.retailRate)},
            ${terms.billingCycle}, ${terms.chargeThreshold}, ${at})`)
  if (terms.bundles.length > 0)
    await insertBundles(db, { appId: plan.appId, planId: plan.id, version }, terms.bundles)
  await chainPrice(db, plan.appId, versionItem(plan.id, version))
}

async function insertBundles(
  db: Db,
  { appId: app, planId, version }: { appId: AppId; planId: string; version: number },
  bundles: readonly Bundle[],
): Promise<void> {
  const column = <T>(value: (bundle: Bundle) => T): T[] => bundles.map(value)
  await db.query(sql`
    insert into plan_bundles (app_id, plan_id, version, id, position, pipeline, model_id, sla_target_score,
                              sla_target_p95_ms, max_price_per_unit, retail_rate)
    select ${app}, ${planId}, ${version}, id, position, pipeline, model_id, score, p95, max_price, rate
    from unnest(${column((bundle) => bundle.id)}::uuid[], ${column((bundle) => bundle.pipeline)}::text[],
                ${column((bundle) => bundle.modelId)}::text[], ${column((bundle) => bundle.slaTargetScore)}::float8[],
                ${column((bundle) => bundle.slaTargetP95Ms)}::integer[],
                ${column((bundle) => bundle.maxPricePerUnit)}::numeric[],
                ${column((bundle) => rateText(bundle.retailRate))}::numeric[])
      with ordinality as b (id, pipeline, model_id, score, p95, max_price, rate, position)`)
}

const rateText = (rate: bigint | null): string | null =>
  rate === null ? null : formatDecimal18(rate)

interface BundleJson {
  id: string
  pipeline: string
  model_id: string
  score: number | null
  p95: number | null
  max_price: string | null
  rate: string | null
}

interface VersionRow {
  terms_id: bigint
  plan_id: string
  version: number
  type: PlanType
  price_amount: string
  price_currency: string
  included_attos: string | null
  included_units: string | null
  overage_rate_wei: string | null
  retail_rate: string | null
  billing_cycle: BillingCycle
  charge_threshold_attos: string | null
  version_at: Date
  bundles: BundleJson[]
}

const integer = (text: string | null): bigint | null => (text === null ? null : BigInt(text))
const attos = (text: string | null): UsdAttos | null =>
  text === null ? null : usdAttos(BigInt(text))

function rateOf(text: string | null): bigint | null {
  if (text === null) return null
  const rate = parseDecimal18(text)
  if (rate === null) throw new Error(`a retail rate of ${text}`)
  return rate
}

const versionFromRow = (row: VersionRow): PlanVersion => ({
  termsId: row.terms_id,
  planId: row.plan_id,
  version: row.version,
  type: row.type,
  priceAmount: row.price_amount,
  priceCurrency: row.price_currency,
  included: attos(row.included_attos),
  includedUnits: integer(row.included_units),
  overageRateWei: integer(row.overage_rate_wei),
  retailRate: rateOf(row.retail_rate),
  billingCycle: row.billing_cycle,
  chargeThreshold: attos(row.charge_threshold_attos),
  createdAt: row.version_at,
  bundles: row.bundles.map((bundle) => ({
    id: bundle.id,
    pipeline: bundle.pipeline,
    modelId: bundle.model_id,
    slaTargetScore: bundle.score,
    slaTargetP95Ms: bundle.p95,
    maxPricePerUnit: integer(bundle.max_price),
    retailRate: rateOf(bundle.rate),
  })),
})

/** Returns the versions with these ids, unordered. */
export async function readVersions(db: Db, ids: readonly bigint[]): Promise<PlanVersion[]> {
  const rows = await many<VersionRow>(
    db,
    sql`
    select v.id as terms_id, v.plan_id, v.version, v.type, v.price_amount, v.price_currency, v.included_attos,
           v.included_units, v.overage_rate_wei, v.retail_rate, v.billing_cycle, v.charge_threshold_attos,
           v.created_at as version_at, b.bundles
    from plan_versions v
    cross join lateral (
      select coalesce(jsonb_agg(jsonb_build_object(
               'id', id, 'pipeline', pipeline, 'model_id', model_id, 'score', sla_target_score, 'p95', sla_target_p95_ms,
               'max_price', max_price_per_unit::text, 'rate', retail_rate::text) order by position), '[]') as bundles
      from plan_bundles
      where app_id = v.app_id and plan_id = v.plan_id and version = v.version) b
    where v.id = any(${ids}::bigint[])`,
  )
  return rows.map(versionFromRow)
}

/** Returns the ids of a plan's newest versions, unordered. */
export async function newestTermsIds(
  db: Db,
  { appId: app, planId, limit }: { appId: AppId; planId: string; limit: number },
): Promise<bigint[]> {
  const rows = await many<{ id: bigint }>(
    db,
    sql`
    select id
    from plan_versions
    where app_id = ${app} and plan_id = ${planId}
    order by version desc
    limit ${limit}`,
  )
  return rows.map(({ id }) => id)
}

/**
 * Returns the id of the newest version with `created_at` at or before `at`; null if no version is
 * that old.
 */
export async function newestTermsId(
  db: Db,
  { appId: app, planId, at }: { appId: AppId; planId: string; at: Date },
): Promise<bigint | null> {
  const row = await maybeOne<{ id: bigint }>(
    db,
    sql`
    select id
    from plan_versions
    where app_id = ${app} and plan_id = ${planId} and created_at <= ${at}
    order by version desc
    limit 1`,
  )
  return row && row.id
}

interface PlanRow extends VersionRow {
  app_id: string
  name: string
  status: PlanStatus
  is_starter_default: boolean
  is_network_default: boolean
  created_at: Date
  updated_at: Date
}

const planFromRow = (row: PlanRow): Plan => ({
  appId: appId(row.app_id),
  id: row.plan_id,
  name: row.name,
  status: row.status,
  isStarterDefault: row.is_starter_default,
  isNetworkDefault: row.is_network_default,
  createdAt: row.created_at,
  updatedAt: row.updated_at,
  newest: versionFromRow(row),
})

/**
 * Returns the app's plans that are not deleted: Starter, Network Price, then the others, oldest
 * first. With `planId`, only that plan.
 */
export async function findPlans(
  db: Db,
  { appId: app, planId }: { appId: AppId; planId: string | null },
): Promise<Plan[]> {
  const rows = await many<PlanRow>(
    db,
    sql`
    select p.app_id, p.name, p.status, p.is_starter_default, p.is_network_default, p.created_at, p.updated_at,
           v.id as terms_id, v.plan_id, v.version, v.type, v.price_amount, v.price_currency, v.included_attos,
           v.included_units, v.overage_rate_wei, v.retail_rate, v.billing_cycle, v.charge_threshold_attos,
           v.created_at as version_at, b.bundles
    from plans p
    cross join lateral (
      select *
      from plan_versions
      where app_id = p.app_id and plan_id = p.id
      order by version desc
      limit 1) v
    cross join lateral (
      select coalesce(jsonb_agg(jsonb_build_object(
               'id', id, 'pipeline', pipeline, 'model_id', model_id, 'score', sla_target_score, 'p95', sla_target_p95_ms,
               'max_price', max_price_per_unit::text, 'rate', retail_rate::text) order by position), '[]') as bundles
      from plan_bundles
      where app_id = v.app_id and plan_id = v.plan_id and version = v.version) b
    where p.app_id = ${app} and (${planId}::uuid is null or p.id = ${planId}) and p.deleted_at is null
    order by p.is_starter_default desc, p.is_network_default desc, p.created_at, p.id`,
  )
  return rows.map(planFromRow)
}

/**
 * Like `findPlans` for one plan, but locks its row until the transaction ends, so that no user
 * subscribes meanwhile.
 */
export async function lockPlan(
  db: Db,
  plan: { readonly appId: AppId; readonly planId: string },
): Promise<Plan | null> {
  await db.query(sql`
    select id from plans where app_id = ${plan.appId} and id = ${plan.planId} for update`)
  const [locked] = await findPlans(db, plan)
  return locked ?? null
}

/**
 * Updates name and status, and copies type and cycle from the newest version. Returns false when
 * another plan has the name.
 */
export async function updatePlan(
  db: Db,
  { appId: app, id, name, status }: Pick<Plan, 'appId' | 'id' | 'name' | 'status'>,
  { terms, at }: { terms: Pick<PlanTerms, 'type' | 'billingCycle'>; at: Date },
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    update plans
    set name = ${name}, name_key = ${nameKey(name)}, status = ${status}, type = ${terms.type},
        billing_cycle = ${terms.billingCycle}, updated_at = greatest(updated_at, ${at})
    where app_id = ${app} and id = ${id}
      and not exists (
        select from plans
        where app_id = ${app} and name_key = ${nameKey(name)} and id <> ${id} and deleted_at is null)`)
  return rowCount === 1
}

/**
 * Marks the plan as deleted. Its row and versions stay, because periods and tickets refer to them.
 */
export async function deletePlan(
  db: Db,
  { appId: app, id }: Pick<Plan, 'appId' | 'id'>,
  at: Date,
): Promise<void> {
  await db.query(sql`
    update plans set deleted_at = ${at}, status = 'inactive', updated_at = ${at} where app_id = ${app} and id = ${id}`)
}

/** Returns the app of a public client id; null if it is unknown or the app is deleted. */
export async function findAppId(db: Db, clientId: string): Promise<AppId | null> {
  const row = await maybeOne<{ app_id: string }>(
    db,
    sql`
    select c.app_id
    from clients c
    join apps a on a.id = c.app_id and a.status <> 'deleted'
    where c.client_id = ${clientId} and c.kind = 'public'`,
  )
  return row && appId(row.app_id)
}

/** Counts the app's plans other than `but`, and their capabilities. */
export async function countOthers(
  db: Db,
  app: AppId,
  but: string | null,
): Promise<{ plans: number; capabilities: number }> {
  const counts = await one<{ plans: bigint; capabilities: bigint }>(
    db,
    sql`
    select count(*) as plans, coalesce(sum(b.count), 0)::bigint as capabilities
    from plans p
    cross join lateral (
      select count(*)
      from plan_bundles
      where app_id = p.app_id and plan_id = p.id
        and version = (select max(version) from plan_versions where app_id = p.app_id and plan_id = p.id)) b
    where p.app_id = ${app} and p.id is distinct from ${but}::uuid and p.deleted_at is null`,
  )
  return { plans: Number(counts.plans), capabilities: Number(counts.capabilities) }
}

/** Text that differs after every change of the app's plans, since each change writes a plan row. */
export async function listVersion(db: Db, app: AppId): Promise<string> {
  const { version } = await one<{ version: string | null }>(
    db,
    sql`
    select md5(string_agg(id::text || ' ' || xmin::text || ' ' || updated_at::text, ',' order by id)) as version
    from plans
    where app_id = ${app} and deleted_at is null`,
  )
  return version ?? ''
}
