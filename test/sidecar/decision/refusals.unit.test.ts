import { describe, expect, it } from 'vitest'
import { isForMoney, ownerRefusal } from '../../../sidecar/decision/refusals.ts'

describe('ownerRefusal', () => {
  it.each([
    ['no_payment_method', 'no payment method that can be charged'],
    ['debt_ceiling_reached', 'its unpaid usage has reached its ceiling'],
    ['insufficient_balance', 'nothing is left'],
    ['', 'nothing is left'],
  ])('names the cause of the owner: "%s"', (reason, text) => {
    const refusal = ownerRefusal(reason)
    expect(refusal).toMatchObject({ status: 483, code: 'owner_debt_ceiling_reached' })
    expect(refusal.body).toContain(text)
    expect(refusal.body).toContain("the account of the app's owner")
    expect(isForMoney(refusal)).toBe(true)
  })
})
