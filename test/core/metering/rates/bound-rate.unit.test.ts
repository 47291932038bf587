import { describe, expect, it } from 'vitest'
import { ethRate } from '../../../../core/lib/money.ts'
import { createBoundRate } from '../../../../core/metering/rates/bound-rate.ts'

const start = Date.parse('2026-03-10T12:00:00Z')

function world() {
  const state = { seconds: 0, observed: null as number | null, reads: 0, source: 'exchange' }
  const at = () => new Date(start + state.seconds * 1000)
  const boundRate = createBoundRate({
    findRate: async () => {
      state.reads++
      const { observed, source } = state
      if (observed === null) return null
      return {
        usdAttosPerEth: ethRate(3001n),
        observedAt: new Date(start + observed * 1000),
        source,
      }
    },
    now: at,
    maxAgeSeconds: 600,
    manualMaxAgeSeconds: 86_400,
    marginPercent: 10,
    graceSeconds: 3_600,
  })
  return { state, boundRate }
}

describe('rate for bounds', () => {
  it('reads the rate at most once a second, but does not cache its absence', async () => {
    const { state, boundRate } = world()
    expect(await boundRate()).toBeNull()
    state.observed = 0
    expect(await boundRate()).toMatchObject({ usdAttosPerEth: 3001n, isRaised: false })
    await boundRate()
    expect(state.reads).toBe(2)
    state.seconds = 1
    await boundRate()
    expect(state.reads).toBe(3)
  })

  it('raises a rate that no longer prices tickets, rounds it up, and ends with the grace time', async () => {
    const { state, boundRate } = world()
    state.observed = 0
    state.seconds = 600
    expect(await boundRate()).toMatchObject({ usdAttosPerEth: 3001n, isRaised: false })
    state.seconds = 602
    expect(await boundRate()).toMatchObject({ usdAttosPerEth: 3302n, isRaised: true })
    state.seconds = 4_200
    expect(await boundRate()).toMatchObject({ isRaised: true })
    state.seconds = 4_202
    expect(await boundRate()).toBeNull()
  })

  it("keeps an operator's rate unchanged for a day", async () => {
    const { state, boundRate } = world()
    Object.assign(state, { observed: 0, source: 'manual:desk', seconds: 86_400 })
    expect(await boundRate()).toMatchObject({ usdAttosPerEth: 3001n, isRaised: false })
    state.seconds = 86_402
    expect(await boundRate()).toMatchObject({ usdAttosPerEth: 3302n, isRaised: true })
    state.seconds = 90_002
    expect(await boundRate()).toBeNull()
  })
})
