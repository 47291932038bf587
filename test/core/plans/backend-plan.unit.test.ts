import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { formatDecimal18, usdAttos } from '../../../core/lib/money.ts'
import type { DimensionFilter, UsageFeature } from '../../../core/metering/backend/plans.ts'
import type { Plan } from '../../../core/plans/offers/plan.ts'
import { freeTerms } from '../../../core/plans/offers/plan.ts'
import { toBackendPlan } from '../../../core/plans/sync/backend-plan.ts'
import { everyModel, toRetailRate, retailRules } from '../../../core/plans/terms.ts'
import { appId, newAppId } from '../../../core/shared/ids.ts'

const words = ['a', 'b', 'c', 'unknown']
const pairs = words.flatMap((pipeline) => words.map((modelId) => ({ pipeline, modelId })))

/** USD per micro, in units of 10^-18. */
const rate = fc.option(fc.bigInt({ min: 0n, max: 10n ** 18n }), { nil: null })
const bundles = fc.uniqueArray(
  fc.record({
    pipeline: fc.constantFrom('a', 'b', 'c'),
    modelId: fc.constantFrom('a', 'b', 'c', everyModel),
    retailRate: rate,
  }),
  { selector: ({ pipeline, modelId }) => `${pipeline}:${modelId}` },
)
const plan = fc
  .record({
    bundles,
    retailRate: rate,
    included: fc.option(fc.bigInt({ min: 0n, max: 10n ** 15n }), { nil: null }),
  })
  .map(({ bundles: named, included, retailRate }): Plan => {
    const at = new Date(0)
    const ceilings = { slaTargetScore: null, slaTargetP95Ms: null, maxPricePerUnit: null }
    const newest = {
      ...freeTerms,
      type: 'usage' as const,
      retailRate,
      included: included === null ? null : usdAttos(included * 10n ** 12n),
      bundles: named.map((bundle, i) => ({ id: String(i), ...ceilings, ...bundle })),
    }
    const ids = { id: '01920000-0000-7000-8000-000000000001', appId: appId(newAppId()) }
    return {
      ...ids,
      name: 'Pro',
      status: 'active',
      isStarterDefault: false,
      isNetworkDefault: false,
      createdAt: at,
      updatedAt: at,
      newest: { ...newest, termsId: 1n, planId: ids.id, version: 1, createdAt: at },
    }
  })

const passes = (filter: DimensionFilter | undefined, value: string): boolean =>
  filter === undefined ||
  ('only' in filter ? filter.only === value : !filter.except.includes(value))

const counts = ({ filters }: UsageFeature, of: (typeof pairs)[number]): boolean =>
  filters === null ||
  (passes(filters.pipeline, of.pipeline) && passes(filters.model_id, of.modelId))

describe('toBackendPlan', () => {
  it("splits usage into disjoint, complete parts with rating's rates and the included usage", () => {
    fc.assert(
      fc.property(plan, (any) => {
        const { usage } = toBackendPlan(any, 'app_0123456789abcdef01234567')
        const terms = { rules: retailRules(any.newest) }
        for (const pair of pairs) {
          const parts = usage.filter(({ feature }) => counts(feature, pair))
          expect(parts).toHaveLength(1)
          expect(parts[0]?.unitPrice).toBe(
            formatDecimal18(toRetailRate(terms, pair).rate / 1_000_000n),
          )
        }
        const included = Number((any.newest.included ?? 0n) / 10n ** 12n)
        expect(usage.every((part) => part.included === included)).toBe(true)
        expect(new Set(usage.map(({ feature }) => feature.key)).size).toBe(usage.length)
      }),
    )
  })

  it('derives the same feature keys for any order of bundles', () => {
    fc.assert(
      fc.property(plan, (any) => {
        const { newest } = any
        const turned = { ...any, newest: { ...newest, bundles: newest.bundles.toReversed() } }
        const keys = (of: Plan) =>
          toBackendPlan(of, 'app_0123456789abcdef01234567')
            .usage.map(({ feature }) => feature.key)
            .toSorted()
        expect(keys(turned)).toEqual(keys(any))
      }),
    )
  })
})
