import { formatDecimal18, microsToAttos, usdMicros } from '../../../lib/money.ts'
import type { Now } from '../../../lib/time.ts'
import type { GrantedCredit } from '../backend.ts'
import { creditFeature, feature } from '../catalog.ts'
import { readList, member, readText } from './dialect.ts'
import { plansV1 } from './plan-dialect.ts'
import { type Failure, type HttpAnswer, type HttpRequest, toFailure } from './http.ts'

const conflict = 409
const pageSize = 100
const pagesMax = 100

type Http = (request: HttpRequest) => Promise<HttpAnswer>

/** Creates a credit, once, for an existing customer; null if it exists afterwards. */
export type CreateCredit = (credit: GrantedCredit, signal: AbortSignal) => Promise<Failure | null>

/**
 * API v1 has no idempotency key: a grant carries the credit's id, and the list is read before one
 * is created. Grants need a metered entitlement; its limit is soft, because only the ledger decides
 * what may be spent (decision 4).
 */
export function createCreditsV1(http: Http, now: Now): CreateCredit {
  let hasFeature = false

  async function ensureFeature(signal: AbortSignal): Promise<Failure | null> {
    if (hasFeature) return null
    const meter = { key: feature.meter, id: '' }
    const request = plansV1.createUsageFeature({ ...creditFeature, filters: null }, meter)
    const failure = toFailure(await http({ ...request, signal }))
    hasFeature = failure === null || failure.status === conflict
    return hasFeature ? null : failure
  }

  async function hasCredit(path: string, id: string, signal: AbortSignal) {
    for (let page = 1; page <= pagesMax; page++) {
      const query = { page: String(page), pageSize: String(pageSize) }
      const answer = await http({ method: 'GET', path, query, signal })
      const failure = toFailure(answer)
      if (failure) return failure
      const items = 'body' in answer ? readList(answer.body, 'items') : []
      if (items.some((item) => readText(member(item, 'metadata'), 'credit_id') === id)) return true
      if (items.length < pageSize) return false
    }
    return false
  }

  return async ({ customer, id, amountMicros, source, featureKey }, signal) => {
    const missing = await ensureFeature(signal)
    if (missing) return missing
    const entitlements = `/api/v2/customers/${encodeURIComponent(customer.key)}/entitlements`
    const entitlement = {
      type: 'metered',
      featureKey: creditFeature.key,
      isSoftLimit: true,
      usagePeriod: { interval: 'MONTH' },
    }
    const ensured = toFailure(
      await http({
        method: 'POST',
        path: entitlements,
        signal,
        text: JSON.stringify(entitlement),
      }),
    )
    if (ensured && ensured.status !== conflict) return ensured
    const path = `${entitlements}/${creditFeature.key}/grants`
    const known = await hasCredit(path, id, signal)
    if (typeof known === 'object') return known
    if (known) return null
    const grant = {
      // At most 10^15, which a float holds exactly.
      amount: Number(amountMicros),
      effectiveAt: now().toISOString(),
      metadata: { credit_id: id, source, ...(featureKey === null ? {} : { feature: featureKey }) },
    }
    return toFailure(await http({ method: 'POST', path, signal, text: JSON.stringify(grant) }))
  }
}

const labelSyntax = /^[a-z0-9A-Z](?:[a-z0-9A-Z._-]{0,61}[a-z0-9A-Z])?$/

/** API v3 detects repeats by the key. `findCustomer` returns the customer's id in OpenMeter. */
export function createCreditsV3(
  http: Http,
  findCustomer: (key: string, signal: AbortSignal) => Promise<{ id: string } | Failure>,
): CreateCredit {
  return async ({ customer, id, amountMicros, source, featureKey }, signal) => {
    const remote = await findCustomer(customer.key, signal)
    if ('why' in remote) return remote
    const grant = {
      name: `${source} credit`,
      funding_method: 'none',
      currency: 'USD',
      amount: formatDecimal18(microsToAttos(usdMicros(BigInt(amountMicros)))),
      key: id,
      labels: {
        source,
        ...(featureKey !== null && labelSyntax.test(featureKey) ? { feature: featureKey } : {}),
      },
    }
    const created = toFailure(
      await http({
        method: 'POST',
        path: `/openmeter/customers/${remote.id}/credits/grants`,
        signal,
        text: JSON.stringify(grant),
      }),
    )
    return created?.status === conflict ? null : created
  }
}
