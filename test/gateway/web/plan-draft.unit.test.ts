import { describe, expect, it } from 'vitest'
import { check, toDraft } from '../../../gateway/web/plans/draft.ts'

const plan = {
  id: '8f1b9f3e-8a4c-4c43-9f6e-0d2d8a2f5f10',
  clientId: 'app_0',
  name: 'Maker',
  type: 'usage',
  priceAmount: '29.00',
  priceCurrency: 'USD',
  status: 'active',
  isNetworkDefault: false,
  isStarterDefault: false,
  includedUnits: null,
  includedUsdMicros: '0',
  overageRateUsd: '0.0000015',
  overageRateWei: null,
  billingCycle: 'monthly',
  chargeThresholdUsd: '10.00',
  chargeThresholdUsdMicros: '10000000',
  openmeterPlanId: null,
  lastSyncedAt: null,
  syncError: null,
  version: 3,
  createdAt: '2026-01-01T00:00:00Z',
  updatedAt: '2026-01-01T00:00:00Z',
  capabilities: [
    {
      id: 'c1',
      pipeline: 'text-to-image',
      modelId: 'm',
      slaTargetScore: 0.9,
      slaTargetP95Ms: 800,
      maxPricePerUnit: '12',
      retailRateUsd: null,
    },
  ],
} as const

describe('a plan in the form', () => {
  it('is sent back as it was read, with the bounds that the form does not show', () => {
    const { terms } = check(toDraft({ ...plan, capabilities: [...plan.capabilities] }))
    expect(terms).toEqual({
      name: 'Maker',
      type: 'usage',
      status: 'active',
      priceAmount: '29.00',
      includedUnits: null,
      includedUsdMicros: '0',
      overageRateUsd: '0.0000015',
      overageRateWei: null,
      billingCycle: 'monthly',
      chargeThresholdUsd: '10.00',
      capabilities: [
        {
          pipeline: 'text-to-image',
          modelId: 'm',
          slaTargetScore: 0.9,
          slaTargetP95Ms: 800,
          maxPricePerUnit: '12',
          retailRateUsd: null,
        },
      ],
    })
  })

  it.each([
    [{ included: '5 dollars' }, /^Included usage must be dollars/],
    [{ percent: '1,5' }, /^The price must be per cent/],
  ])('is refused with %j', (typed, problem) => {
    const draft = toDraft({ ...plan, capabilities: [] })
    expect(check({ ...draft, ...typed }).problem).toMatch(problem)
  })
})
